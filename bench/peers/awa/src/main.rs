//! awa: jobs are claimed and completed in batches; the handler commits by itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use awa::insert::params_with;
use awa::{
    Client, InsertOpts, JobArgs, JobError, JobResult, QueueConfig, QueueStorage, QueueStorageConfig, insert_with,
    migrations,
};
use common::{BATCH, BOOK, Serving, Task, block_on};
use contestant::{
    Backend, Contestant, Description, Enqueue, Fill, Guarantee, Kind, Meter, Pace, Running, Skill, Work, serve,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const QUEUE: &str = "book";

/// How many jobs are in flight for each worker that is asked for. A job holds its place until its completion is committed, and a
/// claim takes no more jobs than there are places: with one place for each worker awa would claim and complete jobs one by one.
/// The handlers' connections are as many as the workers, and bound how many jobs write at a time.
const IN_FLIGHT: usize = 64;

#[derive(Debug, Clone, Serialize, Deserialize, JobArgs)]
struct Book {
    number: i64,
}

async fn book(number: i64, task: Task, pool: PgPool) -> Result<JobResult, JobError> {
    task.meter.handled(number);
    if task.books {
        sqlx::query(BOOK).bind(number).bind(100_i64).execute(&pool).await.map_err(JobError::retryable)?;
    }
    Ok(JobResult::Completed)
}

struct Awa;

async fn pool(url: &str, size: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(size).connect(url).await?)
}

fn storage() -> Result<QueueStorage> {
    Ok(QueueStorage::new(QueueStorageConfig::default())?)
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.to_owned(), ..InsertOpts::default() }
}

/// Copies jobs into the storage, which is the way for many at once.
async fn copy(storage: &QueueStorage, pool: &PgPool, numbers: &[i64]) -> Result<()> {
    let jobs = numbers.iter().map(|&number| params_with(&Book { number }, options())).collect::<Result<Vec<_>, _>>()?;
    storage.enqueue_params_copy(pool, &jobs).await?;
    Ok(())
}

impl Contestant for Awa {
    fn describe(&self) -> Description {
        Description {
            name: "awa".to_owned(),
            kind: Kind::Peer,
            backends: vec![Backend::Postgres],
            guarantee: Guarantee::AtLeastOnce,
            pace: Pace::Single,
            skills: vec![Skill::Drain, Skill::Nothing, Skill::Enqueue, Skill::Waits, Skill::Scales, Skill::Endures],
            settings: "awa 0.6, queue storage, max_workers 64 C, whose handlers share C connections, no deadline, completions in batches, LISTEN".to_owned(),
        }
    }

    fn prepare(&self, url: &str, _entities: usize) -> Result<()> {
        block_on(async {
            let pool = pool(url, 2).await?;
            migrations::run(&pool).await?;
            // Otherwise the first worker would do it, and the jobs before it would lie in the old tables.
            storage()?.install(&pool).await?;
            Ok(())
        })
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        block_on(async {
            let (pool, storage) = (pool(url, 1).await?, storage()?);
            let numbers: Vec<i64> = (fill.first..fill.first + fill.rows).collect();
            for numbers in numbers.chunks(BATCH) {
                copy(&storage, &pool, numbers).await?;
            }
            Ok(())
        })
    }

    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
        block_on(async {
            let (pool, storage) = (pool(url, 1).await?, storage()?);
            let numbers: Vec<i64> = (enqueue.first..enqueue.first + enqueue.count).collect();
            for batch in numbers.chunks(enqueue.batch) {
                enqueue.pause();
                if let [number] = *batch {
                    insert_with(&pool, &Book { number }, options()).await?;
                } else {
                    copy(&storage, &pool, batch).await?;
                }
                batch.iter().for_each(|&number| committed(number));
            }
            Ok(())
        })
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        Serving::start(async {
            let max_workers = u32::try_from(work.workers * IN_FLIGHT)?;
            // For claiming, completing, listening and maintenance.
            let own = pool(url, 8).await?;
            let (task, books) = (Task::new(work.handler, meter), pool(url, u32::try_from(work.workers)?).await?);
            // Without a deadline a claim is one row for its whole batch.
            let queue = QueueConfig { max_workers, deadline_duration: Duration::ZERO, ..QueueConfig::default() };
            let client = Client::builder(own)
                .queue(QUEUE, queue)
                .register::<Book, _, _>(move |job, _| book(job.number, task.clone(), books.clone()))
                .build()?;
            client.start().await?;
            tokio::spawn(async move {
                // It works for as long as its client is there.
                let _client = client;
                std::future::pending::<()>().await;
            });
            Ok(())
        })
    }
}

fn main() -> Result<()> {
    serve(&Awa)
}
