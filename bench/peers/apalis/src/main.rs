//! apalis-postgres: jobs are fetched in batches; the handler commits by itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use apalis::prelude::*;
use apalis_postgres::queries::push_tasks;
use apalis_postgres::{Config, PostgresStorage};
use common::{BATCH, BOOK, Driven, block_on};
use contestant::{
    Backend, Contestant, Description, Enqueue, Fill, Guarantee, Kind, Meter, Pace, Running, Skill, Work, serve,
};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const QUEUE: &str = "book";

#[derive(Debug, Clone)]
struct Books {
    task: common::Task,
    pool: PgPool,
}

async fn book(number: i64, books: Data<Books>) -> Result<(), BoxDynError> {
    books.task.meter.handled(number);
    if books.task.books {
        sqlx::query(BOOK).bind(number).bind(100_i64).execute(&books.pool).await?;
    }
    Ok(())
}

struct Apalis;

async fn pool(url: &str, size: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(size).connect(url).await?)
}

async fn push(pool: &PgPool, numbers: &[i64]) -> Result<()> {
    let tasks = numbers
        .iter()
        .map(|number| Ok(TaskBuilder::new(serde_json::to_vec(number)?).build()))
        .collect::<Result<Vec<_>>>()?;
    let mut connection = pool.acquire().await?;
    push_tasks(&mut *connection, QUEUE, tasks).await.map_err(|error| anyhow!("{error}"))
}

impl Contestant for Apalis {
    fn describe(&self) -> Description {
        Description {
            name: "apalis".to_owned(),
            kind: Kind::Peer,
            backends: vec![Backend::Postgres],
            guarantee: Guarantee::AtLeastOnce,
            pace: Pace::Single,
            skills: vec![Skill::Drain, Skill::Nothing, Skill::Enqueue, Skill::Waits, Skill::Scales, Skill::Endures],
            settings: "apalis-postgres 1.0, batches of 100, LISTEN and polling each 100 ms, a tokio task per job"
                .to_owned(),
        }
    }

    fn prepare(&self, url: &str, _entities: usize) -> Result<()> {
        block_on(async { PostgresStorage::<()>::setup(&pool(url, 2).await?).await.map_err(|error| anyhow!("{error}")) })
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        block_on(async {
            let pool = pool(url, 1).await?;
            let numbers: Vec<i64> = (fill.first..fill.first + fill.rows).collect();
            for numbers in numbers.chunks(BATCH) {
                push(&pool, numbers).await?;
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
                push(&pool, batch).await?;
                batch.iter().for_each(|&number| committed(number));
            }
            Ok(())
        })
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        let (url, work, task) = (url.to_owned(), work.clone(), common::Task::new(work.handler, meter));
        Ok(Driven::start(move || async move {
            let pool = pool(&url, u32::try_from(work.workers)? + 4).await?;
            let books = Books { task, pool: pool.clone() };
            let backend = PostgresStorage::new(&pool)
                .with_config(Config::default().queue(QUEUE).batch_size(100))
                .with_pubsub()
                .poll_with_interval(Duration::from_millis(100));
            let worker = WorkerBuilder::new(format!("bench-{}", std::process::id()))
                .backend(backend)
                .concurrency(work.workers)
                .parallelize(tokio::spawn)
                .data(books)
                .build(book);
            worker.run().await.map_err(|error| anyhow!("{error}"))
        }))
    }
}

fn main() -> Result<()> {
    serve(&Apalis)
}
