//! Any text as a policy file. Beside "no panic": a fault is one line that names the file, and no policy is both loaded and faulty.
#![no_main]

use std::io::Write as _;

use leafgate::policy::Policy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("a temporary file can be written");
    if let Err(faults) = Policy::load(file.path()) {
        assert!(!faults.is_empty());
        for fault in faults {
            assert!(!fault.to_string().contains('\n'));
        }
    }
});
