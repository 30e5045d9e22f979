//! Any bytes as the body of a release, against a small fixture with glue and the vocabulary of its route. Beside "no panic": what is bound has no
//! finding and is JSON for serde_json too, with one of the host's models; what is not bound has a finding at the place the answer names.
//!
//! The first byte chooses the route; the rest is the body.
#![no_main]

use std::sync::{Arc, LazyLock};

use leafgate::fixture::{Fixture, Hasher, Registry};
use leafgate::policy::{Host, Policy};
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;

const TEXT: &str = "def clamp(value, low, high):\n    \"\"\"Return value limited to the closed interval from low to high.\"\"\"\n    return max(low, min(value, high))\n";
const GLUE: &str = r#"["Explain this function in one sentence:\n\n", "\n\nAnswer:", "\nA. "]"#;
const ROUTES: [&str; 4] = ["/chat/completions", "/completions", "/responses", "/embeddings"];

struct Room {
    host: Arc<Host>,
    fixture: Arc<Fixture>,
}

static ROOM: LazyLock<Room> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("a file");
    write("clamp.py", TEXT);
    write("glue.json", GLUE);
    let mut hasher = Hasher::new(None);
    hasher.update(TEXT.as_bytes());
    let hash = hasher.finish().to_string();
    write(
        "fixtures.lock",
        &format!("version = 1\n[[fixture]]\nid = \"seed-04\"\nhash = \"{hash}\"\npath = \"clamp.py\"\nformat = \"text\"\nglue = \"glue.json\"\n"),
    );
    write(
        "policy.toml",
        "version = 1\n[fixtures]\nlock = \"fixtures.lock\"\n[hosts.local]\nbase_url = \"http://127.0.0.1:11434/v1\"\nmodels = [\"m\"]\nbind = \"cover\"\nvocabulary = { min_p = \"number\", guided_choice = \"[text]\", mode = \"'plain' | null\" }\n",
    );
    let policy = Policy::load(&dir.path().join("policy.toml")).unwrap_or_else(|faults| panic!("{faults:?}"));
    let registry = Registry::load(&policy.fixtures).unwrap_or_else(|faults| panic!("{faults:?}"));
    let entry = registry.entries().next().expect("one fixture");
    let fixture = registry.admit_now(&entry.id, &entry.hash).expect("the fixture is whole");
    Room { host: policy.hosts["local"].clone(), fixture }
});

fuzz_target!(|bytes: &[u8]| {
    let Some((route, body)) = bytes.split_first() else { return };
    let route = ROUTES[usize::from(*route) % ROUTES.len()];
    let Room { host, fixture } = &*ROOM;
    let bound = fixture.bind(host, route, body, &[0; 32]);
    let findings = fixture.explain(&host.models, std::slice::from_ref(&host.vocabularies), route, body);
    match bound {
        Ok(facts) => {
            assert_eq!(facts.mode, "cover");
            assert_eq!(findings.expect("a route with a vocabulary"), []);
            serde_json::from_slice::<IgnoredAny>(body).expect("a second reader reads it too");
            #[derive(serde::Deserialize)]
            struct Model {
                model: String,
            }
            // Fails on a member that stands twice, too.
            let said: Model = serde_json::from_slice(body).expect("one model");
            assert!(host.models.contains(&said.model));
        }
        Err(unbound) => {
            assert!(unbound.pointer.is_ascii() && unbound.hint.is_ascii());
            match findings {
                Ok(findings) => {
                    let first = findings.first().expect("what is refused has a finding");
                    assert_eq!(first.pointer, unbound.pointer);
                    assert_eq!(first.uncovered, unbound.uncovered);
                    for finding in findings {
                        assert!(finding.ranges.iter().all(|(from, to)| finding.text.get(*from..*to).is_some_and(|bad| !bad.is_empty())));
                    }
                }
                Err(same) => assert_eq!(same, unbound),
            }
        }
    }
});
