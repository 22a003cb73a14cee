//! Operates the queues of [queueable](https://docs.rs/queueable) from a terminal.
