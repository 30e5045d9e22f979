//! The `leafgate` program: arguments to exit status.

fn main() {}
