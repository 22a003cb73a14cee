//! backie: the handler commits by itself.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use async_trait::async_trait;
use backie::{BackgroundTask, BackgroundTaskExt, CurrentTask, PgTaskStore, QueueConfig, RetentionMode, WorkerPool};
use common::{BATCH, Serving, Task, block_on};
use contestant::{
    Backend, Contestant, Description, Enqueue, Fill, Guarantee, Kind, Meter, Pace, Running, Skill, Work, serve,
};
use diesel::ExpressionMethods;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use serde::{Deserialize, Serialize};

const MIGRATIONS: &str = include_str!(concat!(env!("OUT_DIR"), "/migrations.sql"));

diesel::table! {
    /// What the handler writes to.
    ledger (id) {
        /// The key.
        id -> BigInt,
        /// The job's number.
        payment_id -> BigInt,
        /// Always the same.
        amount_cents -> BigInt,
    }
}

#[derive(Clone)]
struct Books {
    task: Task,
    pool: Pool<AsyncPgConnection>,
}

#[derive(Serialize, Deserialize)]
struct Book {
    number: i64,
}

#[async_trait]
impl BackgroundTask for Book {
    const TASK_NAME: &'static str = "book";
    type AppData = Books;
    type Error = String;

    async fn run(&self, _: CurrentTask, books: Books) -> Result<(), String> {
        books.task.meter.handled(self.number);
        if books.task.books {
            let mut connection = books.pool.get().await.map_err(|error| error.to_string())?;
            diesel::insert_into(ledger::table)
                .values((ledger::payment_id.eq(self.number), ledger::amount_cents.eq(100)))
                .execute(&mut *connection)
                .await
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

struct Backie;

async fn pool(url: &str, size: u32) -> Result<Pool<AsyncPgConnection>> {
    Ok(Pool::builder().max_size(size).build(AsyncDieselConnectionManager::new(url)).await?)
}

impl Contestant for Backie {
    fn describe(&self) -> Description {
        Description {
            name: "backie".to_owned(),
            kind: Kind::Peer,
            backends: vec![Backend::Postgres],
            guarantee: Guarantee::AtLeastOnce,
            pace: Pace::Slow,
            skills: vec![Skill::Drain, Skill::Nothing, Skill::Enqueue, Skill::Waits, Skill::Scales, Skill::Endures],
            settings: "backie 0.9, C workers, pull interval 100 ms, finished tasks are removed".to_owned(),
        }
    }

    fn prepare(&self, url: &str, _entities: usize) -> Result<()> {
        block_on(async {
            AsyncPgConnection::establish(url).await?.batch_execute(MIGRATIONS).await?;
            Ok(())
        })
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        block_on(async {
            let Fill { first, rows, .. } = fill;
            // As `enqueue` does it, which knows one task at a time.
            let insert = format!(
                "INSERT INTO backie_tasks (task_name, queue_name, payload, timeout_msecs, max_retries, backoff_mode) \
                 SELECT 'book', 'default', jsonb_build_object('number', n), 0, 3, '\"ExponentialBackoff\"' \
                 FROM generate_series({first}, {}) AS numbers (n)",
                first + rows - 1
            );
            AsyncPgConnection::establish(url).await?.batch_execute(&insert).await?;
            Ok(())
        })
    }

    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
        ensure!(enqueue.batch < BATCH, "backie has no call for several tasks");
        block_on(async {
            let mut connection = AsyncPgConnection::establish(url).await?;
            for number in enqueue.first..enqueue.first + enqueue.count {
                enqueue.pause();
                Book { number }.enqueue::<PgTaskStore>(&mut connection).await.map_err(|error| anyhow!("{error}"))?;
                committed(number);
            }
            Ok(())
        })
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        Serving::start(async {
            let workers = u32::try_from(work.workers)?;
            let books = Books { task: Task::new(work.handler, meter), pool: pool(url, workers).await? };
            let store = PgTaskStore::new(pool(url, workers).await?);
            let queue = QueueConfig::new("default")
                .num_workers(workers)
                .retention_mode(RetentionMode::RemoveDone)
                .pull_interval(Duration::from_millis(100));
            WorkerPool::new(store, move || books.clone())
                .register_task_type::<Book>()
                .configure_queue(queue)
                .start(pending())
                .await
                .map_err(|error| anyhow!("{error}"))?;
            Ok(())
        })
    }
}

fn main() -> Result<()> {
    serve(&Backie)
}
