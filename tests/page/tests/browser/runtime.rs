//! The runtime on which the clients of the browsers run, and the servers that they visit.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};

/// It lives as long as the process, because tests share it.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("the system has threads")
    })
}
