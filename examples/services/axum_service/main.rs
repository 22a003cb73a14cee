//! A web service on axum that processes its queue in the same process. `POST /payments` enqueues a payment in the
//! request's transaction, the poller charges it, `GET /payments/{id}` shows what has become of it. `/healthz` and
//! `/metrics` are for those who operate it. SIGTERM and Ctrl-C shut down in order: the server answers its last requests,
//! then the poller finishes the payments that it has begun.
//!
//! ```console
//! $ cargo run --example axum_service -- --listen 127.0.0.1:8080 --database payments.sqlite
//! $ curl -H 'content-type: application/json' -d '{"company_id": 3345, "amount_cents": 1999}' localhost:8080/payments
//! {"id":1}
//! $ curl localhost:8080/payments/1
//! {"id":1,"company_id":3345,"amount_cents":1999,"status":"SUCCESS","try_count":1,"last_error":null}
//! ```

mod payments;
mod routes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Error as PoolError, Pool};
use diesel_migrations::MigrationHarness;
use metrics_exporter_prometheus::PrometheusBuilder;
use queueable::{Migrations, Queueable};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;

use self::payments::{Charge, Payment};
use self::routes::Service;

/// How long the payments that have begun may take at the shutdown.
const GRACE: Duration = Duration::from_secs(10);

/// The bounds of the histograms, in seconds.
const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 5.0, 60.0];

/// Enqueues payments by HTTP, and charges them.
#[derive(Parser)]
struct Arguments {
    /// Where to listen; port 0 is any that is free
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The SQLite file, which is made if it is not there
    #[arg(long, default_value = "payments.sqlite")]
    database: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    // What waits for the database has to run beside the runtime's own threads.
    let pool = spawn_blocking(|| open(arguments.database)).await??;
    let poller = Arc::new(Payment::poller(pool.clone(), Charge).workers(2).metrics().start_async().await?);

    let service = Service::new(pool, &poller, recorder);
    let listener =
        TcpListener::bind(arguments.listen).await.with_context(|| format!("listen on {}", arguments.listen))?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, routes::router(service)).with_graceful_shutdown(stop_signal()?).await?;

    let poller = Arc::into_inner(poller).context("a request still asks for the poller's health")?;
    let shutdown = poller.shutdown_async(GRACE).await;
    println!("charged {}, rolled back {}", shutdown.tally.succeeded, shutdown.rolled_back);
    Ok(())
}

/// Prepares the database.
fn open(url: String) -> Result<Pool<ConnectionManager<SqliteConnection>>> {
    payments::create_tables(&mut SqliteConnection::establish(&url).with_context(|| format!("open {url}"))?)?;
    // Two workers, the poller's own connection, and two for the requests.
    let pool = Pool::builder()
        .max_size(5)
        .connection_customizer(Box::new(WaitForTheWriter))
        .build(ConnectionManager::<SqliteConnection>::new(url))?;
    pool.get()?.run_pending_migrations(Migrations::new().entity::<Payment>()).map_err(anyhow::Error::from_boxed)?;
    Ok(pool)
}

/// SQLite has one writer at a time: a request waits for its turn.
#[derive(Debug)]
struct WaitForTheWriter;

impl CustomizeConnection<SqliteConnection, PoolError> for WaitForTheWriter {
    fn on_acquire(&self, connection: &mut SqliteConnection) -> Result<(), PoolError> {
        connection.batch_execute("PRAGMA busy_timeout = 5000").map_err(PoolError::QueryError)
    }
}

/// Ends with the first SIGTERM or Ctrl-C.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    // Before the first request, so that no signal is missed.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
        println!("shutting down");
    })
}
