use super::*;

#[test]
fn the_embedded_default_loads() {
    let policy = Policy::embedded();
    assert_eq!(policy.hosts.len(), 1);
    assert_eq!(policy.hash.len(), 64);
}
