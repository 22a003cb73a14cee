//! fang: the handler commits by itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Result, anyhow};
use common::{BATCH, BOOK, Serving, Task, block_on};
use contestant::{
    Backend, Contestant, Description, Enqueue, Fill, Guarantee, Kind, Meter, Pace, Running, Skill, Work, serve,
};
use fang::asynk::async_queue::{AsyncQueue, AsyncQueueable};
use fang::asynk::async_worker_pool::AsyncWorkerPool;
use fang::serde::{Deserialize, Serialize};
use fang::{AsyncRunnable, FangError, SleepParams, async_trait, typetag};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const MIGRATIONS: &str = include_str!(concat!(env!("OUT_DIR"), "/migrations.sql"));

/// A task has no other way to its surroundings.
static BOOKS: OnceLock<(Task, PgPool)> = OnceLock::new();

#[derive(Serialize, Deserialize)]
#[serde(crate = "fang::serde")]
struct Book {
    number: i64,
}

#[typetag::serde]
#[async_trait]
impl AsyncRunnable for Book {
    async fn run(&self, _: &dyn AsyncQueueable) -> Result<(), FangError> {
        let failed = |text: &str| FangError { description: text.to_owned() };
        let (task, pool) = BOOKS.get().ok_or_else(|| failed("nothing was started"))?;
        task.meter.handled(self.number);
        if task.books {
            let booked = sqlx::query(BOOK).bind(self.number).bind(100_i64).execute(pool).await;
            booked.map_err(|error| failed(&error.to_string()))?;
        }
        Ok(())
    }
}

struct Fang;

async fn pool(url: &str, size: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(size).connect(url).await?)
}

async fn queue(url: &str, size: u32) -> Result<AsyncQueue> {
    let mut queue = AsyncQueue::builder().uri(url).max_pool_size(size).build();
    queue.connect().await.map_err(|error| anyhow!("{error}"))?;
    Ok(queue)
}

impl Contestant for Fang {
    fn describe(&self) -> Description {
        Description {
            name: "fang".to_owned(),
            kind: Kind::Peer,
            backends: vec![Backend::Postgres],
            guarantee: Guarantee::AtLeastOnce,
            pace: Pace::Slow,
            skills: vec![Skill::Drain, Skill::Nothing, Skill::Enqueue, Skill::Waits, Skill::Scales, Skill::Endures],
            settings: "fang 0.11, asynchronous, C workers that sleep 100 ms, finished tasks are removed".to_owned(),
        }
    }

    fn prepare(&self, url: &str, _entities: usize) -> Result<()> {
        block_on(async {
            sqlx::raw_sql(MIGRATIONS).execute(&pool(url, 1).await?).await?;
            Ok(())
        })
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        block_on(async {
            // As `insert_task` does it, which knows one task at a time.
            let insert = "INSERT INTO fang_tasks (metadata) \
                          SELECT jsonb_build_object('type', 'Book', 'number', n) FROM generate_series($1, $2) AS numbers (n)";
            let last = fill.first + fill.rows - 1;
            sqlx::query(insert).bind(fill.first).bind(last).execute(&pool(url, 1).await?).await?;
            Ok(())
        })
    }

    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
        anyhow::ensure!(enqueue.batch < BATCH, "fang has no call for several tasks");
        block_on(async {
            let queue = queue(url, 1).await?;
            for number in enqueue.first..enqueue.first + enqueue.count {
                enqueue.pause();
                queue.insert_task(&Book { number }).await.map_err(|error| anyhow!("{error}"))?;
                committed(number);
            }
            Ok(())
        })
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        Serving::start(async {
            let workers = u32::try_from(work.workers)?;
            let books = (Task::new(work.handler, meter), pool(url, workers).await?);
            BOOKS.set(books).map_err(|_| anyhow!("it was started already"))?;
            let pause = Duration::from_millis(100);
            let sleep = SleepParams::builder().sleep_period(pause).min_sleep_period(pause);
            let sleep = sleep.max_sleep_period(pause).sleep_step(pause).build();
            let mut pool: AsyncWorkerPool<AsyncQueue> = AsyncWorkerPool::builder()
                .queue(queue(url, workers).await?)
                .number_of_workers(workers)
                .sleep_params(sleep)
                .build();
            pool.start().await;
            Ok(())
        })
    }
}

fn main() -> Result<()> {
    serve(&Fang)
}
