//! The test kit on MySQL and MariaDB through diesel-async, as far as the client can break it in its own way.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/async_mysql.rs"]
mod db;

#[path = "kit/async_handlers.rs"]
mod async_handlers;
#[path = "kit/in_async_code.rs"]
mod in_async_code;

/// The part of the kit in which the client counts: how a message's transaction begins, is recorded and ends.
#[allow(unused, reason = "the whole kit needs more of it")]
mod kit {
    mod attempt;
    mod clock;
    mod drain;
    mod failures;
    mod limits;
    pub(crate) mod shop;
}
