//! The ledger (contract, section 9).
