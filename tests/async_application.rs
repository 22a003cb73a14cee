//! What an application on tokio and diesel-async uses: async handlers, connections from any source, and the queue's calls
//! from async code.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/async_postgres.rs"]
mod db;

#[path = "only/async_adoption.rs"]
mod async_adoption;
#[path = "only/async_calls.rs"]
mod async_calls;
#[path = "only/async_code.rs"]
mod async_code;
#[path = "only/async_handlers.rs"]
mod async_handlers;
#[path = "only/async_sources.rs"]
mod async_sources;
#[path = "only/dropped_statements.rs"]
mod dropped_statements;

/// The part of the suite that these tests need.
mod suite {
    #[allow(unused, reason = "the suite needs more of it")]
    pub(crate) mod bank;
}
