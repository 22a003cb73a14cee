//! A web server in the process of a test.

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::browser::runtime;

/// Serves a router on a free port of this machine until the value is dropped.
pub(crate) struct Site {
    origin: String,
    server: JoinHandle<()>,
}

impl Site {
    /// Starts the server.
    pub(crate) fn new(router: Router) -> Self {
        let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0")).expect("the system has a free port");
        let origin = format!("http://{}", listener.local_addr().expect("the port is bound"));
        let server =
            runtime().spawn(async { axum::serve(listener, router).await.expect("it serves until it is dropped") });
        Site { origin, server }
    }

    /// The address of a path.
    pub(crate) fn address(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}
