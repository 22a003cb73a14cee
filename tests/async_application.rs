//! What an application on tokio and diesel-async uses: async handlers, connections from any source, and the queue's calls
//! from async code.

#[allow(unused, reason = "the `db` modules offer the same, also where a root needs less")]
#[path = "db/async_postgres.rs"]
mod db;

#[path = "only/async_code.rs"]
mod async_code;

/// The part of the suite that these tests need.
mod suite {
    #[allow(unused, reason = "the suite needs more of it")]
    pub(crate) mod bank;
}
