//! Tests of the ledger as a whole. Each part's own tests stand beside it.

mod faults;
mod forged;
mod keep;
mod kept;
mod proofs;
mod reading;
mod records;
mod refused;
mod run;
mod tamper;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::cleared::{Outcome, Sent, Ticket};
use super::entry::Leaves;
use super::queue::{Durable, Kind};
use super::*;
use crate::admit::{BodyFacts, CallFacts, CallId, Dropped};
use crate::card::{Attach, Card, Reading};
use crate::policy::Sync;
use crate::terms::Verdict;
use crate::tree::{Decision, classify};

pub(super) const HASH: &str =
    "sha256:9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c9f2c";

pub(super) fn settings(dir: &Path) -> LedgerSettings {
    LedgerSettings {
        dir: dir.join("ledger"),
        segment_bytes: 64 << 20,
        checkpoint_every: Duration::from_secs(10),
        checkpoint_copy: None,
        sync: Sync::Record,
    }
}

pub(super) fn facts() -> RunFacts {
    RunFacts {
        version: "0.1.0",
        policy: "ab".repeat(32),
        oracle: "cd".repeat(32),
    }
}

pub(super) fn folder() -> TempDir {
    tempfile::tempdir().expect("a scratch folder")
}

pub(super) fn start_in(dir: &TempDir) -> Ledger {
    Ledger::start(&settings(dir.path()), facts()).expect("the ledger starts")
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

pub(super) fn call(number: u64) -> CallId {
    CallId::new(number, [7; 10])
}

/// What the record says of a call with this card.
pub(super) fn call_facts(number: u64, card: &str) -> CallFacts {
    let card = Arc::new(Card::parse(card.as_bytes()).expect("a card"));
    let ruling = match classify(&Reading::Card(card.clone())) {
        Decision::Hold(hold) => hold.ruling(),
        Decision::Split(split) => split.ruling(),
        Decision::Release(release) => release.ruling(),
    };
    CallFacts {
        call: call(number),
        attach: Some(Attach::Header),
        card: Some(card),
        ruling,
        route: Some("POST /chat/completions".to_owned()),
        host: None,
        failure_label: None,
        peer_uid: None,
        body: Some(BodyFacts {
            len: 2048,
            sha256: [5; 32],
        }),
    }
}

pub(super) fn release_card() -> String {
    format!(
        r#"{{"fixture_id":"seed-04","fixture_hash":"{HASH}","egress_class":"public-fixture","residue":[],"host_pin":"local","replay_window":"24h","writable_surface":"scratch"}}"#
    )
}

pub(super) fn hold(number: u64, card: &str) -> Refusal {
    let facts = call_facts(number, card);
    Refusal {
        verdict: Verdict::Refuse,
        reason: facts.ruling.reason,
        field: facts.ruling.field,
        hint: String::new(),
        facts,
    }
}

/// The way of `commit` without a plan, which admission alone can make: the decision's draft, the queue, the ticket.
pub(super) async fn forward(ledger: &Ledger, number: u64) -> Result<(u64, Ticket), Reason> {
    let facts = call_facts(number, &release_card());
    let leaves = Leaves {
        bind: None,
        dropped: &Dropped::default(),
        len: 2048,
        sha256: [5; 32],
        clear_text: false,
    };
    let draft = ledger.shared().stamp.forward_of(&facts, leaves);
    let Durable { seq, ticket } = ledger
        .shared()
        .record(draft, Kind::Forward(facts.call))
        .await?;
    Ok((seq, ticket.expect("a forwarding decision has a ticket")))
}

pub(super) fn outcome() -> Outcome {
    Outcome {
        sent: Sent::All,
        sent_len: 2048,
        sent_sha256: Some([5; 32]),
        peer: Some(([127, 0, 0, 1], 11434).into()),
        status: Some(200),
        received_len: 10,
        received_sha256: Some([6; 32]),
        model: Some(("m-small".to_owned(), true)),
        split: false,
        took: Duration::from_millis(3),
        error: None,
    }
}

pub(super) fn all(dir: &TempDir) -> Vec<serde_json::Value> {
    records(&dir.path().join("ledger"))
        .expect("a folder")
        .map(|record| record.expect("a record").1)
        .collect()
}

pub(super) fn check(dir: &TempDir) -> Report {
    verify(&dir.path().join("ledger"), &mut |_, _| ()).expect("readable files")
}

pub(super) fn whole(dir: &TempDir) -> Report {
    let report = check(dir);
    assert_eq!(
        report.problem.as_ref().map(ToString::to_string),
        None,
        "{report:?}"
    );
    report
}

/// A stopped ledger of `calls` forwarded calls and one hold.
pub(super) fn filled(dir: &TempDir, calls: u64) {
    let ledger = start_in(dir);
    runtime().block_on(async {
        for number in 0..calls {
            let (_, ticket) = forward(&ledger, number).await.expect("recorded");
            ticket.close(outcome());
        }
        let card = release_card().replace("public-fixture", "machine-local");
        ledger.refuse(&hold(99, &card)).await.expect("recorded");
    });
    ledger.stop();
}

/// A stopped ledger of refused messages in `dir/ledger`, all of it pruned but the newest segment; gives how many records went.
pub(crate) fn pruned_in(dir: &Path) -> u64 {
    let mut settings = settings(dir);
    settings.segment_bytes = 2000;
    let ledger = Ledger::start(&settings, facts()).expect("the ledger starts");
    runtime().block_on(async {
        for bytes in 0..30 {
            let seq = ledger.message_refused(Reason::HttpMalformed, bytes).await;
            seq.expect("recorded");
        }
    });
    ledger.stop();
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
    let pruned = prune(&settings.dir, soon, &mut |_| true).expect("a whole ledger");
    assert!(pruned.done);
    gone(&settings.dir).expect("readable")
}

/// What `docs/verify.py` says: exit status and text. `None`, loudly, where there is no python3 here.
pub(super) fn second(dir: &TempDir) -> Option<(i32, String)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/verify.py");
    #[allow(
        clippy::disallowed_methods,
        reason = "a test runs the verifier that an auditor would"
    )]
    let run = std::process::Command::new("python3")
        .arg(script)
        .arg(dir.path().join("ledger"))
        .output();
    match run {
        Ok(done) => {
            let text =
                String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
            Some((done.status.code().unwrap_or(-1), text.into_owned()))
        }
        Err(cause) => {
            eprintln!("SKIPPED: docs/verify.py was not run: python3: {cause}");
            None
        }
    }
}

/// That `docs/verify.py` says what [`verify`] said: whole, or a problem that names the same record.
pub(super) fn second_agrees(dir: &TempDir, name: &str, problem: Option<&Problem>) {
    let Some((status, text)) = second(dir) else {
        return;
    };
    assert_eq!(
        status,
        i32::from(problem.is_some()),
        "{name}: verify.py said {text} and verify {problem:?}"
    );
    if let Some(seq) = problem.and_then(|problem| problem.seq) {
        assert!(text.contains(&format!("record {seq}")), "{name}: {text}");
    }
}
