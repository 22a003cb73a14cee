//! Operates the queues of [queueable](https://docs.rs/queueable) from a terminal.

#[allow(dead_code, unused_imports, reason = "no command uses it yet")]
mod filter;
