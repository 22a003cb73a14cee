//! The handlers of the kinds of work, in each mode.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Failure, HandlerResult, Lease, Message, Outcome, Poller};

use super::Conn;
use crate::kinds::{Step, copies, grouped, leased, locked, runs, steps, taken};
use crate::options::Mode;

/// A poller that serves all kinds.
pub(crate) fn poller(pool: Pool<ConnectionManager<Conn>>, mode: Mode, directory: &Path) -> Poller<Conn> {
    let room = Arc::new(Room::new(directory));
    let poller = Poller::new(pool);
    macro_rules! serve_with {
        ($module:ident) => {
            poller
                .serve::<$module::Invoice>(|invoice: &$module::Invoice, message: &mut Message<'_, Conn>| {
                    advance(invoice.id, message.stage(), message)
                })
                .serve::<$module::Document>(|document: &$module::Document, message: &mut Message<'_, Conn>| {
                    copy(document.id, &document.body, message)
                })
                .serve::<$module::Turn>(move |turn: &$module::Turn, message: &mut Message<'_, Conn>| {
                    let _alone = room.enter()?;
                    take_turn(turn.id, message)
                })
                .serve::<$module::Job>(|job: &$module::Job, message: &mut Message<'_, Conn>| {
                    run(job.id, message.scheduled_for(), message)
                })
        };
    }
    match mode {
        Mode::Transaction => serve_with!(locked),
        Mode::Group => serve_with!(grouped),
        Mode::Lease => poller
            .serve::<leased::Invoice>((
                |_: &leased::Invoice, lease: &Lease| Ok(lease.stage::<Step>()),
                |invoice: &leased::Invoice, step: &Step, message: &mut Message<'_, Conn>| {
                    advance(invoice.id, *step, message)
                },
            ))
            .serve::<leased::Document>((
                |document: &leased::Document, _: &Lease| Ok(document.body.clone()),
                |document: &leased::Document, body: &String, message: &mut Message<'_, Conn>| {
                    copy(document.id, body, message)
                },
            ))
            .serve::<leased::Turn>((
                move |_: &leased::Turn, _: &Lease| {
                    let _alone = room.enter()?;
                    thread::sleep(Duration::from_millis(2));
                    Ok(())
                },
                |turn: &leased::Turn, (): &(), message: &mut Message<'_, Conn>| take_turn(turn.id, message),
            ))
            .serve::<leased::Job>((
                |_: &leased::Job, lease: &Lease| Ok(lease.scheduled_for()),
                |job: &leased::Job, scheduled: &Option<DateTime<Utc>>, message: &mut Message<'_, Conn>| {
                    run(job.id, *scheduled, message)
                },
            )),
    }
}

/// Does a step of an invoice. One in thirteen fails at first, after it has written, and one in fifty is never sent.
fn advance(invoice: i64, step: Step, message: &mut Message<'_, Conn>) -> HandlerResult {
    let name = format!("{step:?}");
    diesel::insert_into(steps::table)
        .values((steps::invoice_id.eq(invoice), steps::step.eq(name)))
        .execute(message.connection())?;
    if step == Step::Send && invoice % 50 == 7 {
        return Err(Failure::fatal("nobody lives there"));
    }
    if invoice % 13 == 5 && message.try_number() == 1 {
        return Err(Failure::retry("not at the first try"));
    }
    Ok(match step {
        Step::Render => Outcome::next(Step::Send),
        Step::Send => Outcome::next(Step::Book),
        Step::Book => Outcome::Done,
    })
}

/// Copies the document's text as it was when the attempt began.
fn copy(document: i64, body: &str, message: &mut Message<'_, Conn>) -> HandlerResult {
    thread::sleep(Duration::from_millis(1));
    diesel::delete(copies::table.find(document)).execute(message.connection())?;
    diesel::insert_into(copies::table)
        .values((copies::document_id.eq(document), copies::body.eq(body)))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}

/// Takes a turn. One in eleven fails at first, and no later turn may pass it.
fn take_turn(turn: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    diesel::insert_into(taken::table).values(taken::turn_id.eq(turn)).execute(message.connection())?;
    if turn % 11 == 3 && message.try_number() == 1 {
        return Err(Failure::retry("not at the first try"));
    }
    Ok(Outcome::Done)
}

/// Notes the scheduled time of this run.
fn run(job: i64, scheduled: Option<DateTime<Utc>>, message: &mut Message<'_, Conn>) -> HandlerResult {
    let scheduled = scheduled.map_or(0, |time| time.timestamp_millis());
    diesel::insert_into(runs::table)
        .values((runs::job_id.eq(job), runs::scheduled.eq(scheduled)))
        .execute(message.connection())?;
    Ok(Outcome::Done)
}

/// A file whose lock shows that only one turn is taken at a time, in all processes. The system unlocks it for a killed one.
struct Room(PathBuf);

impl Room {
    fn new(directory: &Path) -> Self {
        Room(directory.to_owned())
    }

    /// Takes the lock. If another process has it, creates a file that tells the harness.
    fn enter(&self) -> Result<File, std::io::Error> {
        let door = File::options().create(true).append(true).open(self.0.join("room"))?;
        match door.try_lock() {
            Ok(()) => Ok(door),
            Err(TryLockError::Error(error)) => Err(error),
            Err(TryLockError::WouldBlock) => {
                File::create(self.0.join(OVERLAP))?;
                Err(std::io::Error::other("somebody else takes a turn"))
            }
        }
    }
}

/// The file that exists if two turns were taken at once.
pub(crate) const OVERLAP: &str = "overlap";
