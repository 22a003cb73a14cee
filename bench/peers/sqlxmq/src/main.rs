//! sqlxmq: the handler completes its job in the transaction in which it writes.

use std::error::Error;
use std::sync::Arc;

use anyhow::Result;
use common::{BOOK, Serving, Task, block_on};
use contestant::{
    Backend, Contestant, Description, Enqueue, Fill, Guarantee, Kind, Meter, Pace, Running, Skill, Work, serve,
};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use sqlxmq::{CurrentJob, JobRegistry, job};

const MIGRATIONS: &str = include_str!(concat!(env!("OUT_DIR"), "/migrations.sql"));

#[job(channel_name = "book")]
async fn book(mut job: CurrentJob, task: Task) -> Result<(), Box<dyn Error + Send + Sync + 'static>> {
    let number: i64 = job.json()?.ok_or("a job has a number")?;
    task.meter.handled(number);
    if task.books {
        let mut transaction = job.pool().begin().await?;
        sqlx::query(BOOK).bind(number).bind(100_i64).execute(&mut *transaction).await?;
        // Commits it.
        job.complete_with_transaction(transaction).await?;
    } else {
        job.complete().await?;
    }
    Ok(())
}

struct Sqlxmq;

async fn pool(url: &str, size: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(size).connect(url).await?)
}

async fn spawn(pool: &PgPool, numbers: &[i64]) -> Result<()> {
    let mut transaction = pool.begin().await?;
    for number in numbers {
        book.builder().set_json(number)?.spawn(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(())
}

impl Contestant for Sqlxmq {
    fn describe(&self) -> Description {
        Description {
            name: "sqlxmq".to_owned(),
            kind: Kind::Peer,
            backends: vec![Backend::Postgres],
            guarantee: Guarantee::SameTransaction,
            pace: Pace::Slow,
            skills: vec![Skill::Drain, Skill::Nothing, Skill::Enqueue, Skill::Waits, Skill::Scales],
            settings: "sqlxmq 0.6, concurrency C to 2 C, complete_with_transaction, LISTEN".to_owned(),
        }
    }

    fn prepare(&self, url: &str, _entities: usize) -> Result<()> {
        block_on(async {
            sqlx::raw_sql(MIGRATIONS).execute(&pool(url, 1).await?).await?;
            Ok(())
        })
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        let numbers: Vec<i64> = (fill.first..fill.first + fill.rows).collect();
        block_on(async {
            let pool = pool(url, 1).await?;
            for numbers in numbers.chunks(common::BATCH) {
                spawn(&pool, numbers).await?;
            }
            Ok(())
        })
    }

    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
        block_on(async {
            let pool = pool(url, 1).await?;
            let numbers: Vec<i64> = (enqueue.first..enqueue.first + enqueue.count).collect();
            for batch in numbers.chunks(enqueue.batch) {
                enqueue.pause();
                spawn(&pool, batch).await?;
                batch.iter().for_each(|&number| committed(number));
            }
            Ok(())
        })
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        Serving::start(async {
            let pool = pool(url, u32::try_from(work.workers)? * 2 + 4).await?;
            let mut registry = JobRegistry::new(&[book]);
            registry.set_context(Task::new(work.handler, meter));
            let runner = registry.runner(&pool).set_concurrency(work.workers, work.workers * 2).run().await?;
            tokio::spawn(async move {
                // It works for as long as its handle is there.
                let _runner = runner;
                std::future::pending::<()>().await;
            });
            Ok(())
        })
    }
}

fn main() -> Result<()> {
    serve(&Sqlxmq)
}
