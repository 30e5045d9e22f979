//! The one door out (contract, section 4).

/// The proof that the code opening a plan is egress: its field is private, and egress makes one inside `send` alone.
#[derive(Debug)]
pub struct Door(());
