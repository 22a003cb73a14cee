//! The application's threads, which use Diesel and the library: they enqueue payments, and read and write their table.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use diesel::prelude::*;
use queueable::Queueable;

use super::operator::Operator;
use super::pick::pick;
use super::{Conn, be_patient};
use crate::application::{Books, Pace, Role};
use crate::bank::{Locked, NewPayment, payments, remarks};
use crate::options::Mode;
use crate::session::{Dialect, Session};

/// Enqueues payments in batches.
pub(crate) fn enqueue(url: &str, new: &[NewPayment]) -> Result<()> {
    let connection = &mut connect(url)?;
    for some in new.chunks(1000) {
        insert(connection, some)?;
    }
    Ok(())
}

fn insert(connection: &mut Conn, new: &[NewPayment]) -> QueryResult<usize> {
    let new: Vec<_> = new.iter().map(|payment| (payment.clone(), Locked::due_now())).collect();
    diesel::insert_into(payments::table).values(new).execute(connection)
}

/// A connection that waits for others, as an application with a busy database needs.
pub(crate) fn connect(url: &str) -> Result<Conn> {
    let mut connection = Conn::establish(url)?;
    be_patient(&mut connection)?;
    Ok(connection)
}

/// The application pauses while this many payments are pending, because the run must drain them at the end.
const ENOUGH: i64 = 1000;

/// How long a role's last action may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats a role's actions until told to end. While the database is away, it tries again.
pub(crate) fn act(url: &str, role: Role, pace: Pace, random: fastrand::Rng, books: &Books) {
    let mut actor = Actor { pace, random, books, number: 0 };
    let mut connection = None;
    let mut left_since = None;
    while !books.is_over() {
        let ending = books.is_ending();
        if ending && left_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return;
        }
        let turn = match &mut connection {
            Some(connection) => Ok(connection),
            None => connect(url).map(|new| connection.insert(new)),
        }
        .and_then(|connection| if ending { actor.leave(role, connection) } else { actor.turn(role, connection) });
        match turn {
            Ok(()) if ending => return,
            Ok(()) => {}
            Err(error) => {
                books.met(&error);
                connection = None;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// One thread of the application.
struct Actor<'a> {
    pace: Pace,
    random: fastrand::Rng,
    books: &'a Books,
    /// How many payments it has invented.
    number: i64,
}

impl Actor<'_> {
    /// Does one action, and returns the pause after it.
    fn turn(&mut self, role: Role, connection: &mut Conn) -> Result<()> {
        match role {
            Role::Insert => self.insert(connection),
            Role::Remark => self.remark(connection),
            Role::SaveStale => self.save_stale(connection),
            Role::Lock => self.lock(connection),
            Role::Delete => self.delete(connection),
            Role::Operate => {
                Operator { mode: self.pace.mode }.operate(connection, &mut self.random, self.books)?;
                self.pause(50..300);
                Ok(())
            }
        }
        .with_context(|| format!("{role:?}"))
    }

    /// Does the role's last action.
    fn leave(&mut self, role: Role, connection: &mut Conn) -> Result<()> {
        match role {
            Role::Operate => Operator { mode: self.pace.mode }.restart_all(connection, self.books),
            _ => Ok(()),
        }
    }

    fn insert(&mut self, connection: &mut Conn) -> Result<()> {
        let backlog = "SELECT COUNT(*) AS n FROM payments WHERE next_attempt_time IS NOT NULL";
        if connection.count(backlog)? > ENOUGH {
            self.books.pause(Duration::from_millis(50));
            return Ok(());
        }
        let at_once = match self.random.u8(..10) {
            0..7 => self.random.i64(1..6),
            _ => self.random.i64(20..120),
        };
        let note = self.books.mark();
        let new: Vec<_> = (0..at_once).map(|_| NewPayment { note: note.clone(), ..self.make_up() }).collect();
        if self.random.u8(..10) == 0 {
            let taken_back = connection.transaction(|connection| {
                insert(connection, &new)?;
                Err::<(), _>(diesel::result::Error::RollbackTransaction)
            });
            match taken_back {
                Err(diesel::result::Error::RollbackTransaction) => self.books.count("inserts taken back", 1),
                other => other?,
            }
        } else if let Err(error) = connection.transaction(|connection| insert(connection, &new)) {
            // Perhaps the commit took place and only its answer was lost.
            self.books.perhaps_inserted(note, at_once);
            return Err(error.into());
        } else {
            self.books.inserted(at_once);
            self.books.count("payments inserted", new.len());
        }
        let wait = at_once.unsigned_abs() * 1000 / self.pace.payments_per_second;
        self.books.pause(Duration::from_millis(wait));
        Ok(())
    }

    /// The usual mix, and some slow ones.
    fn make_up(&mut self) -> NewPayment {
        self.number += 1;
        let payment = NewPayment::mixed(self.number);
        if payment.kind != "plain" || self.random.u8(..100) >= 20 {
            return payment;
        }
        let at_most = match (self.pace.mode, super::DIALECT) {
            (Mode::Lease, _) => 150,
            // SQLite allows no other writer meanwhile.
            (_, Dialect::Sqlite) => 5,
            _ => 60,
        };
        payment.kind(format!("slow {}", self.random.u32(1..at_most)))
    }

    /// Inserts a payment's child. On PostgreSQL that takes a shared lock on the payment's row, which a worker may hold.
    fn remark(&mut self, connection: &mut Conn) -> Result<()> {
        for (id, _) in self.pick(connection, 1, "next_attempt_time IS NOT NULL")? {
            let values = (remarks::payment_id.eq(id), remarks::text.eq("looked at"));
            match diesel::insert_into(remarks::table).values(values).execute(connection) {
                Ok(remarks) => self.books.count("remarks", remarks),
                // The payment was deleted meanwhile.
                Err(error) if error.to_string().to_lowercase().contains("foreign key") => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.pause(5..40);
        Ok(())
    }

    /// Saves a payment that it has loaded earlier, after the workers had time to change the row.
    fn save_stale(&mut self, connection: &mut Conn) -> Result<()> {
        let ids: Vec<_> =
            self.pick(connection, 5, "next_attempt_time IS NOT NULL")?.into_iter().map(|(id, _)| id).collect();
        let stale: Vec<Locked> =
            payments::table.filter(payments::id.eq_any(&ids)).select(Locked::as_select()).load(connection)?;
        self.books.pause(Duration::from_millis(self.random.u64(0..300)));
        for payment in stale {
            let saved = diesel::update(payments::table.find(payment.id)).set(&payment).execute(connection)?;
            self.books.count("stale saves", saved);
        }
        self.pause(10..100);
        Ok(())
    }

    /// Locks rows for long, as a report or another program's transaction does. On SQLite it locks the database.
    fn lock(&mut self, connection: &mut Conn) -> Result<()> {
        if super::DIALECT == Dialect::Sqlite {
            connection.run("BEGIN IMMEDIATE")?;
            self.books.pause(Duration::from_millis(self.random.u64(100..300)));
            connection.run("COMMIT")?;
            self.books.count("long locks", 1);
        } else {
            let ids: Vec<_> = self.pick(connection, 10, "next_attempt_time IS NOT NULL")?;
            let ids: Vec<_> = ids.into_iter().map(|(id, _)| id.to_string()).collect();
            if !ids.is_empty() {
                connection.run("BEGIN")?;
                let locked = connection.lines(&format!(
                    "SELECT note AS line FROM payments WHERE id IN ({}) ORDER BY id FOR UPDATE",
                    ids.join(", ")
                ))?;
                self.books.pause(Duration::from_millis(self.random.u64(100..1000)));
                connection.run("COMMIT")?;
                self.books.count("long locks", locked.len());
            }
        }
        self.pause(300..1000);
        Ok(())
    }

    /// Deletes payments that are not booked. A worker may be about to book them.
    fn delete(&mut self, connection: &mut Conn) -> Result<()> {
        for (id, note) in self.pick(connection, 3, "status <> 'SUCCESS'")? {
            match connection.change(&format!("DELETE FROM payments WHERE id = {id} AND status <> 'SUCCESS'")) {
                Ok(0) => self.books.count("deletes too late", 1),
                Ok(_) => {
                    self.books.deleted(id, note);
                    self.books.count("payments deleted", 1);
                }
                Err(error) => {
                    self.books.perhaps_deleted(id, note);
                    return Err(error.into());
                }
            }
        }
        self.pause(100..400);
        Ok(())
    }

    /// Some of the queue's payments that meet the condition, with their notes.
    fn pick(&mut self, connection: &mut Conn, at_most: u32, condition: &str) -> Result<Vec<(i64, String)>> {
        let some = self.random.u32(1..=at_most);
        pick(connection, some, condition)
    }

    /// Waits a random time; longer on SQLite, so that the workers have their time with the only writer lock.
    fn pause(&mut self, millis: std::ops::Range<u64>) {
        let slower = if super::DIALECT == Dialect::Sqlite { 4 } else { 1 };
        self.books.pause(Duration::from_millis(self.random.u64(millis) * slower));
    }
}
