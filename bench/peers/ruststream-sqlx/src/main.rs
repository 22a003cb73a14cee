//! ruststream-sqlx: the handler writes in the transaction that has locked its row and deletes it.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow};
use common::{BOOK, Serving, Task, block_on};
use contestant::{
    Backend, Contestant, Description, Enqueue, Fill, Guarantee, Kind, Meter, Pace, Running, Skill, Work, serve,
};
use ruststream_sqlx::prelude::*;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres};

/// The table, and the trigger by which the documentation lets rows be announced that other programs insert.
const TABLE: &str = "
    CREATE TABLE jobs (id BIGSERIAL PRIMARY KEY, number BIGINT NOT NULL);
    CREATE FUNCTION announce_job() RETURNS trigger AS $$
    BEGIN
        PERFORM pg_notify(TG_TABLE_NAME, '');
        RETURN NULL;
    END;
    $$ LANGUAGE plpgsql;
    CREATE TRIGGER job_announced AFTER INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION announce_job();
";

/// A handler has no other way to its surroundings that costs as little.
static TASK: OnceLock<Task> = OnceLock::new();

#[derive(Debug, Clone, Inbox, sqlx::FromRow)]
#[inbox(table = "jobs")]
struct Job {
    #[field(id, generated)]
    id: i64,
    number: i64,
}

#[subscriber(InboxQueue::<Job>::new("book"))]
async fn book(job: &Job, Ctx(mut transaction): Ctx<keys::Tx<Postgres>>) -> HandlerOutcome {
    let Some(task) = TASK.get() else { return HandlerOutcome::retry() };
    task.meter.handled(job.number);
    if task.books {
        let booked = sqlx::query(BOOK).bind(job.number).bind(100_i64).execute(&mut *transaction).await;
        if let Err(error) = booked {
            eprintln!("{error}");
            return HandlerOutcome::retry();
        }
    }
    HandlerOutcome::ack()
}

struct RustStreamSqlx;

async fn pool(url: &str, size: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(size).connect(url).await?)
}

impl Contestant for RustStreamSqlx {
    fn describe(&self) -> Description {
        Description {
            name: "ruststream-sqlx".to_owned(),
            kind: Kind::Peer,
            backends: vec![Backend::Postgres],
            guarantee: Guarantee::SameTransaction,
            pace: Pace::Single,
            skills: vec![Skill::Drain, Skill::Nothing, Skill::Enqueue, Skill::Waits, Skill::Scales, Skill::Endures],
            settings: "ruststream-sqlx 0.7, row lock, transactional, workers(C), LISTEN".to_owned(),
        }
    }

    fn prepare(&self, url: &str, _entities: usize) -> Result<()> {
        block_on(async {
            sqlx::raw_sql(TABLE).execute(&pool(url, 1).await?).await?;
            Ok(())
        })
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        block_on(async {
            // The queue is the service's own table, and any insert is an enqueue.
            let insert = "INSERT INTO jobs (number) SELECT generate_series($1, $2)";
            let last = fill.first + fill.rows - 1;
            sqlx::query(insert).bind(fill.first).bind(last).execute(&pool(url, 1).await?).await?;
            Ok(())
        })
    }

    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
        block_on(async {
            let pool = pool(url, 1).await?;
            let numbers: Vec<i64> = (enqueue.first..enqueue.first + enqueue.count).collect();
            for batch in numbers.chunks(enqueue.batch) {
                enqueue.pause();
                if let [number] = *batch {
                    Job { id: 0, number }.insert(&mut *pool.acquire().await?).await?;
                } else {
                    let insert = "INSERT INTO jobs (number) SELECT unnest($1::BIGINT[])";
                    sqlx::query(insert).bind(batch).execute(&pool).await?;
                }
                batch.iter().for_each(|&number| committed(number));
            }
            Ok(())
        })
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        Serving::start(async {
            TASK.set(Task::new(work.handler, meter)).map_err(|_| anyhow!("it was started already"))?;
            let workers = NonZeroUsize::new(work.workers).context("there are workers")?;
            // A connection for each worker, one to listen, and some that the subscription leaves to others.
            let pool = pool(url, u32::try_from(work.workers)? + 4).await?;
            let broker = SqlxBroker::new(pool).listen_notify();
            let app = RustStream::new(AppInfo::new("bench", "0.1.0")).with_broker(broker, |broker| {
                broker.include(book.transactional().workers(workers));
            });
            let running = app.start().await?;
            tokio::spawn(async move {
                // It says here why it has stopped by itself.
                running.stopping().await;
                eprintln!("the service has stopped");
            });
            Ok(())
        })
    }
}

fn main() -> Result<()> {
    serve(&RustStreamSqlx)
}
