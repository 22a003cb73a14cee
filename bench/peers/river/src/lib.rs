//! River for Rust: jobs are fetched in batches. The handler either ends its job in the transaction in which it writes, or commits
//! by itself and leaves the job to River's completer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use common::{BATCH, BOOK, Serving, Task, block_on};
use contestant::{Backend, Contestant, Description, Enqueue, Fill, Guarantee, Kind, Meter, Pace, Running, Skill, Work};
use riverqueue::database::begin_postgres;
use riverqueue::migrate::PostgresMigrator;
use riverqueue::{
    BoxError, Client, ClientBuilder, Job, JobArgs, QUEUE_DEFAULT, QueueConfig, WorkContext, WorkOutcome, Workers,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// The pause between two fetches, and between two notifications of a client that enqueues. It bounds the rate, so it is the
/// shortest that River takes.
const COOLDOWN: Duration = riverqueue::FETCH_COOLDOWN_MIN;

/// How many jobs are in flight for each worker that is asked for: a job that has ended is followed by another only with the next
/// fetch. The handlers' connections are as many as the workers, and bound how many jobs write at a time.
const IN_FLIGHT: usize = 64;

#[derive(Debug, Clone, Serialize, Deserialize, JobArgs)]
#[river(kind = "book")]
struct Book {
    number: i64,
}

#[derive(Debug, Clone)]
struct Books {
    task: Task,
    pool: PgPool,
    ending: Ending,
}

/// Who ends a job whose handler has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The handler, in the transaction in which it writes.
    Transaction,
    /// The client's completer, many jobs at a time.
    Completer,
}

async fn book(context: WorkContext, job: Job<Book>, books: Books) -> Result<WorkOutcome, BoxError> {
    let number = job.args.number;
    books.task.meter.handled(number);
    if books.task.books {
        let insert = sqlx::query(BOOK).bind(number).bind(100_i64);
        match books.ending {
            Ending::Transaction => {
                let mut transaction = begin_postgres(&books.pool).await?;
                insert.execute(&mut *transaction).await?;
                context.job_complete_tx(&mut transaction).await?;
                transaction.commit().await?;
            }
            Ending::Completer => {
                insert.execute(&books.pool).await?;
            }
        }
    }
    Ok(WorkOutcome::Complete)
}

/// River, with one of the two ways to end a job.
#[derive(Debug)]
pub struct River(pub Ending);

async fn pool(url: &str, size: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(size).connect(url).await?)
}

fn client(pool: PgPool) -> ClientBuilder {
    Client::builder(pool).fetch_cooldown(COOLDOWN)
}

async fn insert(client: &Client, numbers: &[i64]) -> Result<()> {
    if let [number] = *numbers {
        client.insert(Book { number }).await?;
    } else {
        client.insert_many(numbers.iter().map(|&number| Book { number })).await?;
    }
    Ok(())
}

impl Contestant for River {
    fn describe(&self) -> Description {
        let (name, guarantee, ending) = match self.0 {
            Ending::Transaction => ("river", Guarantee::SameTransaction, "job_complete_tx"),
            Ending::Completer => ("river-completer", Guarantee::AtLeastOnce, "completions in batches"),
        };
        Description {
            name: name.to_owned(),
            kind: Kind::Peer,
            backends: vec![Backend::Postgres],
            guarantee,
            pace: Pace::Single,
            skills: vec![Skill::Drain, Skill::Nothing, Skill::Enqueue, Skill::Waits, Skill::Scales, Skill::Endures],
            settings: format!(
                "riverqueue 0.5, max_workers 64 C, whose handlers share C connections, fetch_cooldown 1 ms, {ending}, LISTEN"
            ),
        }
    }

    fn prepare(&self, url: &str, _entities: usize) -> Result<()> {
        block_on(async {
            PostgresMigrator::new(pool(url, 2).await?).migrate_up().await?;
            Ok(())
        })
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        block_on(async {
            let client = client(pool(url, 1).await?).build()?;
            let numbers: Vec<i64> = (fill.first..fill.first + fill.rows).collect();
            for numbers in numbers.chunks(BATCH) {
                insert(&client, numbers).await?;
            }
            Ok(())
        })
    }

    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
        block_on(async {
            let client = client(pool(url, 1).await?).build()?;
            let numbers: Vec<i64> = (enqueue.first..enqueue.first + enqueue.count).collect();
            for batch in numbers.chunks(enqueue.batch) {
                enqueue.pause();
                insert(&client, batch).await?;
                batch.iter().for_each(|&number| committed(number));
            }
            Ok(())
        })
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        Serving::start(async {
            let (task, books) = (Task::new(work.handler, meter), pool(url, u32::try_from(work.workers)?).await?);
            let books = Books { task, pool: books, ending: self.0 };
            let mut workers = Workers::new();
            workers.add_fn(move |context, job| book(context, job, books.clone()))?;
            let queue = QueueConfig::new(work.workers * IN_FLIGHT);
            // Some connections for fetching, completing, listening and electing a leader.
            let mut run = client(pool(url, 8).await?).workers(workers).queue(QUEUE_DEFAULT, queue).build()?.start()?;
            tokio::spawn(async move {
                // It works for as long as its handle is there.
                if let Err(error) = run.wait().await {
                    eprintln!("{error}");
                }
            });
            Ok(())
        })
    }
}
