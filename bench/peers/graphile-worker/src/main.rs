//! graphile_worker: jobs are fetched in batches into a local queue and completed in batches; the handler commits by itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use common::{BATCH, BOOK, Serving, Task, block_on};
use contestant::{
    Backend, Contestant, Description, Enqueue, Fill, Guarantee, Kind, Meter, Pace, Running, Skill, Work, serve,
};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Book {
    number: i64,
}

impl TaskHandler for Book {
    const IDENTIFIER: &'static str = "book";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let task = context.get_ext::<Task>().ok_or("the task is an extension")?;
        task.meter.handled(self.number);
        if task.books {
            sqlx::query(BOOK)
                .bind(self.number)
                .bind(100_i64)
                .execute(context.pg_pool())
                .await
                .map_err(|error| error.to_string())?;
        }
        Ok::<(), String>(())
    }
}

struct Graphile;

async fn pool(url: &str, size: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(size).connect(url).await?)
}

/// A worker, which also has the means to enqueue.
async fn worker(url: &str, work: &Work, task: Task) -> Result<Worker> {
    // As many connections as jobs, and some for fetching, completing and listening.
    let pool = pool(url, u32::try_from(work.workers)? + 4).await?;
    Ok(WorkerOptions::default()
        .concurrency(work.workers)
        .local_queue(LocalQueueConfig::builder().size(1000_usize).build())
        .complete_job_batch_delay(Duration::from_millis(5))
        .fail_job_batch_delay(Duration::from_millis(5))
        .add_extension(task)
        .define_job::<Book>()
        .pg_pool(pool)
        .init()
        .await?)
}

/// A worker that is only there to enqueue.
async fn enqueuer(url: &str) -> Result<Worker> {
    let work = Work { workers: 1, handler: contestant::Handler::Nothing, entities: 1 };
    worker(url, &work, Task::new(work.handler, &Arc::default())).await
}

impl Contestant for Graphile {
    fn describe(&self) -> Description {
        Description {
            name: "graphile-worker".to_owned(),
            kind: Kind::Peer,
            backends: vec![Backend::Postgres],
            guarantee: Guarantee::AtLeastOnce,
            pace: Pace::Single,
            skills: vec![Skill::Drain, Skill::Nothing, Skill::Enqueue, Skill::Waits, Skill::Scales, Skill::Endures],
            settings: "graphile_worker 0.14, local queue of 1000, completions in batches of 5 ms, LISTEN".to_owned(),
        }
    }

    fn prepare(&self, url: &str, _entities: usize) -> Result<()> {
        // `init` migrates.
        block_on(async { enqueuer(url).await.map(drop) })
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        block_on(async {
            let utils = enqueuer(url).await?.create_utils();
            let numbers: Vec<i64> = (fill.first..fill.first + fill.rows).collect();
            for numbers in numbers.chunks(BATCH) {
                let jobs: Vec<_> = numbers.iter().map(|&number| raw(number)).collect();
                utils.add_raw_jobs(&jobs).await?;
            }
            Ok(())
        })
    }

    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
        block_on(async {
            let utils = enqueuer(url).await?.create_utils();
            let numbers: Vec<i64> = (enqueue.first..enqueue.first + enqueue.count).collect();
            for batch in numbers.chunks(enqueue.batch) {
                enqueue.pause();
                if let [number] = *batch {
                    utils.add_job(Book { number }, JobSpec::default()).await?;
                } else {
                    let jobs: Vec<_> = batch.iter().map(|&number| raw(number)).collect();
                    utils.add_raw_jobs(&jobs).await?;
                }
                batch.iter().for_each(|&number| committed(number));
            }
            Ok(())
        })
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        Serving::start(async {
            let worker = worker(url, work, Task::new(work.handler, meter)).await?;
            tokio::spawn(async move {
                if let Err(error) = worker.run().await {
                    eprintln!("{error}");
                }
            });
            Ok(())
        })
    }
}

fn raw(number: i64) -> RawJobSpec {
    let payload = serde_json::json!({ "number": number });
    RawJobSpec { identifier: Book::IDENTIFIER.to_owned(), payload, spec: JobSpec::default() }
}

fn main() -> Result<()> {
    serve(&Graphile)
}
