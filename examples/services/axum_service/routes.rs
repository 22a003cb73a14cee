//! What the service answers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use metrics_exporter_prometheus::PrometheusHandle;
use queueable::{PollerHandle, Queueable, Status};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::payments::{Payment, payment_queue, payments};

/// How old the poller's last answer from the database may be.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

/// What the requests share.
#[derive(Clone)]
pub(crate) struct Service {
    pool: Pool<ConnectionManager<SqliteConnection>>,
    /// It belongs to `main`, which shuts it down.
    poller: Weak<PollerHandle>,
    recorder: PrometheusHandle,
}

/// The body of `POST /payments`.
#[derive(Deserialize, Insertable)]
#[diesel(table_name = payments)]
#[serde(deny_unknown_fields)]
struct NewPayment {
    company_id: i64,
    amount_cents: i64,
}

/// Its answer.
#[derive(Serialize)]
struct Enqueued {
    id: i64,
}

/// The answer of `GET /payments/{id}`: the payment, and what has become of it.
#[derive(Serialize)]
struct PaymentState {
    id: i64,
    company_id: i64,
    amount_cents: i64,
    status: Status,
    try_count: i32,
    last_error: Option<String>,
}

/// Why a request is not answered as it should be.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(serde_json::json!({ "error": self.1 }))).into_response()
    }
}

impl Service {
    pub(crate) fn new(
        pool: Pool<ConnectionManager<SqliteConnection>>,
        poller: &Arc<PollerHandle>,
        recorder: PrometheusHandle,
    ) -> Self {
        Service { pool, poller: Arc::downgrade(poller), recorder }
    }

    /// Runs a query beside the runtime's threads, which may not wait for a database.
    async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut SqliteConnection) -> QueryResult<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let pool = self.pool.clone();
        let run = move || query(&mut *pool.get()?).map_err(anyhow::Error::from);
        spawn_blocking(run).await.map_err(anyhow::Error::from).flatten().map_err(|error| {
            // Clients do not read how the database is doing.
            tracing::error!(%error, "a query failed");
            Refusal(StatusCode::SERVICE_UNAVAILABLE, "the database does not answer, try again later".into())
        })
    }
}

pub(crate) fn router(service: Service) -> Router {
    Router::new()
        .route("/payments", post(enqueue))
        .route("/payments/{id}", get(state))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .with_state(service)
}

/// Whatever else the request writes belongs into the same transaction.
async fn enqueue(
    State(service): State<Service>,
    Json(payment): Json<NewPayment>,
) -> Result<(StatusCode, Json<Enqueued>), Refusal> {
    if payment.amount_cents <= 0 {
        let error = format!("`amount_cents` is {}, and has to be positive", payment.amount_cents);
        return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, error));
    }
    let insert = move |connection: &mut SqliteConnection| {
        connection.immediate_transaction(|connection| {
            diesel::insert_into(payments::table)
                .values((payment, Payment::due_now()))
                .returning(payments::id)
                .get_result(connection)
        })
    };
    Ok((StatusCode::CREATED, Json(Enqueued { id: service.query(insert).await? })))
}

async fn state(State(service): State<Service>, Path(id): Path<i64>) -> Result<Json<PaymentState>, Refusal> {
    let columns = (
        Payment::as_select(),
        payment_queue::status,
        payment_queue::try_count,
        payment_queue::last_attempt_error_message,
    );
    let found = service.query(move |connection| payments::table.find(id).select(columns).first(connection).optional());
    let Some((payment, status, try_count, last_error)) = found.await? else {
        return Err(Refusal(StatusCode::NOT_FOUND, format!("there is no payment {id}")));
    };
    let Payment { id, company_id, amount_cents } = payment;
    Ok(Json(PaymentState { id, company_id, amount_cents, status, try_count, last_error }))
}

async fn health(State(service): State<Service>) -> Response {
    let Some(poller) = service.poller.upgrade() else {
        return Refusal(StatusCode::SERVICE_UNAVAILABLE, "shutting down".into()).into_response();
    };
    let health = poller.health();
    let status = if health.is_well(LONGEST_LOOK) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}

async fn metrics(State(service): State<Service>) -> String {
    // Nobody else tidies up what the recorder has counted.
    service.recorder.run_upkeep();
    service.recorder.render()
}
