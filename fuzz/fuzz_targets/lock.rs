//! Any text as `fixtures.lock`. Beside "no panic": a fault is one line and names a line of the file; what passes is TOML for a second reader, with
//! a path for each fixture and no id twice.
#![no_main]

use std::collections::HashSet;
use std::path::Path;

use leafgate::fixture::parse_lock;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match parse_lock(Path::new("fixtures.lock"), text) {
        Ok(entries) => {
            let table: toml::Table = toml::from_str(text).expect("a second reader reads it too");
            assert_eq!(table["version"].as_integer(), Some(1));
            let listed = table.get("fixture").and_then(toml::Value::as_array).map_or(0, Vec::len);
            assert_eq!(listed, entries.len());
            let ids: HashSet<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
            assert_eq!(ids.len(), entries.len());
            assert!(entries.iter().all(|entry| !entry.paths.is_empty()));
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            let lines = text.lines().count() + 1;
            for fault in faults {
                let fault = fault.to_string();
                assert!(!fault.contains('\n'));
                let rest = fault.strip_prefix("fixtures.lock:").expect("the file");
                let line: usize = rest.split(':').next().and_then(|line| line.parse().ok()).expect("the line");
                assert!((1..=lines).contains(&line), "{fault}");
            }
        }
    }
});
