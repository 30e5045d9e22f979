//! The room against scripted hosts on loopback: every fault with its twin, and what the outcome says of it.

mod faults;
mod kept;
mod kit;
mod names;
mod release;
mod sent;
mod tls;
