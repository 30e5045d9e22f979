//! The room against scripted hosts on loopback: every fault with its twin, and what the outcome says of it.

mod answers;
mod faults;
mod kept;
mod kit;
mod names;
mod nameserver;
mod release;
mod sent;
mod sessions;
mod steering;
mod tls;
