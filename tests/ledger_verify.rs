//! The ledger from outside: a run, then `verify` and `docs/verify.py` over its files, whole and tampered with.

use std::path::Path;
use std::time::Duration;

use leafgate::admit::{CallFacts, CallId, Refusal};
use leafgate::card::Reading;
use leafgate::ledger::{Ledger, RunFacts, verify};
use leafgate::policy::{LedgerSettings, Sync};
use leafgate::terms::{Reason, Verdict};
use leafgate::tree::classify;

fn run(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let settings = LedgerSettings {
        dir: dir.to_owned(),
        segment_bytes: 2000,
        checkpoint_every: Duration::from_secs(10),
        checkpoint_copy: None,
        sync: Sync::Record,
    };
    let facts = RunFacts {
        version: env!("CARGO_PKG_VERSION"),
        policy: "00".repeat(32),
        oracle: "11".repeat(32),
    };
    let ledger = Ledger::start(&settings, facts)?;
    let ruling = classify(&Reading::Missing).ruling();
    tokio::runtime::Runtime::new()?.block_on(async {
        for number in 0..12 {
            let facts = CallFacts {
                call: CallId::new(number, [1; 10]),
                attach: None,
                card: None,
                ruling,
                route: None,
                host: None,
                failure_label: None,
                body: None,
            };
            let refusal = Refusal {
                facts,
                verdict: Verdict::Refuse,
                reason: ruling.reason,
                field: None,
                hint: String::new(),
            };
            let seq = ledger.refuse(&refusal).await.map_err(|e| e.reason.code());
            assert_eq!(seq, Ok(1 + 2 * number), "one record after the other");
            let seq = ledger.message_refused(Reason::HttpMalformed, 17).await;
            assert_eq!(seq.map_err(|e| e.reason.code()), Ok(2 + 2 * number));
        }
    });
    ledger.stop();
    Ok(())
}

/// Exit status of `docs/verify.py`; `None`, loudly, where there is no python3.
#[allow(
    clippy::disallowed_methods,
    reason = "a test runs the verifier that an auditor would"
)]
fn python(dir: &Path) -> Option<i32> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/verify.py");
    match std::process::Command::new("python3")
        .arg(script)
        .arg(dir)
        .output()
    {
        Ok(done) => done.status.code(),
        Err(cause) => {
            eprintln!("SKIPPED: docs/verify.py was not run: python3: {cause}");
            None
        }
    }
}

#[test]
fn both_verifiers_find_a_run_whole_and_a_changed_one_not() -> Result<(), Box<dyn std::error::Error>>
{
    let scratch = tempfile::tempdir()?;
    let dir = scratch.path().join("ledger");
    run(&dir)?;
    let report = verify(&dir, &mut |_, _| ())?;
    assert_eq!(report.problem.map(|problem| problem.to_string()), None);
    assert_eq!((report.records, report.covered), (26, Some(26)));
    assert!(report.segments > 2);
    assert!(matches!(python(&dir), None | Some(0)));

    let first = dir.join("000000000000.jsonl");
    let text = std::fs::read_to_string(&first)?;
    std::fs::write(&first, text.replacen("\"bytes\":17", "\"bytes\":18", 1))?;
    let problem = verify(&dir, &mut |_, _| ())?.problem.ok_or("not found")?;
    assert_eq!(problem.seq, Some(3), "{problem}");
    assert!(matches!(python(&dir), None | Some(1)));
    Ok(())
}
