//! Any bytes as a chunked body, cut anywhere. Beside "no panic": where the cuts fall changes nothing, and nothing after the end is taken.
//!
//! The first byte says how long each piece is.
#![no_main]

use leafgate::ingress::{ChunkFault, Chunked};
use libfuzzer_sys::fuzz_target;

/// How many bytes belong to the body, and whether it is over.
fn taken(bytes: &[u8], piece: usize) -> Result<(usize, bool), ChunkFault> {
    let mut body = Chunked::default();
    let mut taken = 0;
    for part in bytes.chunks(piece) {
        let now = body.take(part)?;
        taken += now;
        if body.is_over() {
            break;
        }
        assert_eq!(now, part.len());
    }
    Ok((taken, body.is_over()))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, bytes)) = bytes.split_first() else { return };
    let whole = taken(bytes, bytes.len().max(1));
    assert_eq!(taken(bytes, usize::from(*piece).max(1)), whole);
    if let Ok((length, true)) = whole {
        assert!(bytes[..length].ends_with(b"0\r\n\r\n"));
        assert_eq!(taken(&bytes[..length], 1), whole);
    }
});
