//! Calls by hand on PostgreSQL: a thread that claims under a lease, a tokio task for each call, and threads that write the
//! answers, each in a transaction.

use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use contestant::{Meter, Work};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::libpq::Connection;
use super::{PAUSE, Threads};
use crate::service::{Client, IN_FLIGHT, runtime};

/// How many rows one claim takes.
const CLAIM: u32 = 256;

/// A row that was answered. The place is free again when the answer is written.
struct Answer {
    id: CString,
    number: i64,
    amount: CString,
    _place: OwnedSemaphorePermit,
}

pub(super) fn start(url: &str, work: &Work, port: u16, meter: &Arc<Meter>) -> Result<Threads> {
    let stop = Arc::default();
    let (sender, answers) = mpsc::channel();
    let answers = Arc::new(Mutex::new(answers));
    let mut threads: Vec<JoinHandle<Result<()>>> = (1..work.workers)
        .map(|_| {
            let (url, answers, meter) = (url.to_owned(), answers.clone(), meter.clone());
            thread::spawn(move || write(&url, &answers, &meter))
        })
        .collect();
    let (url, stopped, runtime) = (url.to_owned(), Arc::clone(&stop), runtime()?);
    threads.push(thread::spawn(move || claim(&url, port, &runtime, &sender, &stopped)));
    Ok(Threads { threads, stop })
}

/// Claims rows as places are free, and begins their calls.
fn claim(
    url: &str,
    port: u16,
    runtime: &Runtime,
    answers: &mpsc::Sender<Answer>,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<()> {
    let mut connection = Connection::open(url)?;
    connection.prepare(
        c"claim",
        &format!(
            "UPDATE payments SET status = 'IN_PROGRESS', next_attempt_time = clock_timestamp() + '60 s', \
             try_count = try_count + 1, last_attempt_time = clock_timestamp() \
             WHERE id = ANY (ARRAY (SELECT id FROM payments WHERE next_attempt_time <= statement_timestamp() \
             ORDER BY next_attempt_time LIMIT {CLAIM} FOR UPDATE SKIP LOCKED)) RETURNING id, number, amount_cents"
        ),
    )?;
    let (client, places) = (Arc::new(Client::new(port)), Arc::new(Semaphore::new(IN_FLIGHT)));
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        let mut free = runtime.block_on(places.clone().acquire_many_owned(CLAIM))?;
        let claimed = connection.execute(c"claim", &[])?;
        let text = |row, column| claimed.text(row, column).context("the column has a value").map(CStr::to_owned);
        for row in 0..claimed.count() {
            let place = free.split(1).context("a place for each row")?;
            let number = text(row, 1)?.to_str()?.parse()?;
            let answer = Answer { id: text(row, 0)?, number, amount: text(row, 2)?, _place: place };
            let (client, answers) = (client.clone(), answers.clone());
            runtime.spawn(async move {
                if client.post(number).await.is_ok() {
                    let _ = answers.send(answer);
                }
            });
        }
        if claimed.count() == 0 {
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Writes answers until nobody claims any more.
fn write(url: &str, answers: &Mutex<mpsc::Receiver<Answer>>, meter: &Meter) -> Result<()> {
    let mut connection = Connection::open(url)?;
    connection.prepare(c"book", "INSERT INTO ledger (payment_id, amount_cents) VALUES ($1, $2)")?;
    connection.prepare(
        c"settle",
        "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL, last_attempt_error_message = NULL \
         WHERE id = $1 AND status = 'IN_PROGRESS' AND try_count = 1",
    )?;
    loop {
        let answer = answers.lock().expect("nobody panics while holding the answers").recv();
        let Ok(Answer { id, number, amount, _place }) = answer else { return Ok(()) };
        connection.run(c"BEGIN")?;
        connection.execute(c"book", &[&id, &amount])?;
        connection.execute(c"settle", &[&id])?;
        connection.run(c"COMMIT")?;
        meter.handled(number);
    }
}
