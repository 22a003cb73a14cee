//! underway: the handler writes in a savepoint of the transaction that ends its task.

use std::sync::Arc;

use anyhow::Result;
use common::{BATCH, BOOK, Serving, block_on};
use contestant::{
    Backend, Contestant, Description, Enqueue, Fill, Guarantee, Handler, Kind, Meter, Pace, Running, Skill, Work, serve,
};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres, Transaction};
use underway::task::Error;
use underway::{Queue, Task, Worker};

struct Book(common::Task);

impl Task for Book {
    type Input = i64;
    type Output = ();

    async fn execute(&self, mut transaction: Transaction<'_, Postgres>, number: i64) -> Result<(), Error> {
        self.0.meter.handled(number);
        if self.0.books {
            let booked = sqlx::query(BOOK).bind(number).bind(100_i64).execute(&mut *transaction).await;
            booked.map_err(|error| Error::Retryable(error.to_string()))?;
        }
        transaction.commit().await.map_err(|error| Error::Retryable(error.to_string()))
    }
}

struct Underway;

async fn pool(url: &str, size: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(size).connect(url).await?)
}

async fn queue(pool: &PgPool) -> Result<Queue<Book>> {
    Ok(Queue::builder().name("book").pool(pool.clone()).build().await?)
}

fn idle() -> Book {
    Book(common::Task::new(Handler::Nothing, &Arc::default()))
}

impl Contestant for Underway {
    fn describe(&self) -> Description {
        Description {
            name: "underway".to_owned(),
            kind: Kind::Peer,
            backends: vec![Backend::Postgres],
            guarantee: Guarantee::SameTransaction,
            pace: Pace::Slow,
            skills: vec![Skill::Drain, Skill::Nothing, Skill::Enqueue, Skill::Waits, Skill::Scales, Skill::Endures],
            settings: "underway 0.2, C workers, LISTEN".to_owned(),
        }
    }

    fn prepare(&self, url: &str, _entities: usize) -> Result<()> {
        block_on(async {
            let pool = pool(url, 2).await?;
            underway::run_migrations(&pool).await?;
            queue(&pool).await?;
            Ok(())
        })
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        block_on(async {
            let pool = pool(url, 2).await?;
            let queue = queue(&pool).await?;
            let numbers: Vec<i64> = (fill.first..fill.first + fill.rows).collect();
            for numbers in numbers.chunks(BATCH) {
                queue.enqueue_multi_wth_chunk_size(&pool, &idle(), numbers, BATCH).await?;
            }
            Ok(())
        })
    }

    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
        block_on(async {
            let pool = pool(url, 1).await?;
            let queue = queue(&pool).await?;
            let numbers: Vec<i64> = (enqueue.first..enqueue.first + enqueue.count).collect();
            for batch in numbers.chunks(enqueue.batch) {
                enqueue.pause();
                if let [number] = batch {
                    queue.enqueue(&pool, &idle(), number).await?;
                } else {
                    queue.enqueue_multi_wth_chunk_size(&pool, &idle(), batch, BATCH).await?;
                }
                batch.iter().for_each(|&number| committed(number));
            }
            Ok(())
        })
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        Serving::start(async {
            // A worker listens, another connection works, and heartbeats have one of their own.
            let pool = pool(url, u32::try_from(work.workers)? * 3 + 2).await?;
            let queue = Arc::new(queue(&pool).await?);
            // A worker takes up one more task at a time for each notification or poll, so one worker with a limit of C would
            // work alone on what is there already.
            for _ in 0..work.workers {
                let worker = Worker::new(queue.clone(), Book(common::Task::new(work.handler, meter)));
                tokio::spawn(async move {
                    if let Err(error) = worker.run().await {
                        eprintln!("{error}");
                    }
                });
            }
            Ok(())
        })
    }
}

fn main() -> Result<()> {
    serve(&Underway)
}
