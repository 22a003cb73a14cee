//! Pauses of a stage.

use std::sync::{Arc, Mutex};

use diesel::connection::SimpleConnection;
use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{
    Explanation, HandlerResult, Lease, Message, Migrations, Outcome, Pause, Poller, Queueable, Stage, Tally,
};

use super::{BY, MODES, Mode, await_true};
use crate::db::{BIGINT, Conn, Database};
use crate::suite::warnings::{await_warning, keep_warnings};

diesel::table! {
    letters (id) { id -> BigInt, }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, AsExpression, FromSqlRow, Stage)]
#[diesel(sql_type = Text)]
enum LetterStage {
    Write,
    Send,
}

macro_rules! letters {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = letters)]
        #[queue(stage = LetterStage, timeout = "30s", $($key)*)]
        struct $name {
            id: i64,
        }
    )*};
}

letters! {
    Letter();
    LetterInGroup(group(10));
}

#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = letters)]
#[queue(stage = LetterStage, lease = "60s")]
struct LetterLeased {
    id: i64,
}

/// Makes letters that are due, the first half in the second stage.
fn office(number: i64) -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(&format!("CREATE TABLE letters (id {BIGINT} PRIMARY KEY NOT NULL)")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Letter>().control()).unwrap();
    let rows: Vec<_> = (1..=number).map(|id| (letters::id.eq(id), Letter::due_now())).collect();
    diesel::insert_into(letters::table).values(rows).execute(&mut connection).unwrap();
    diesel::update(letters::table.filter(letters::id.le(number / 2)))
        .set(letter_queue::stage.eq(LetterStage::Send))
        .execute(&mut connection)
        .unwrap();
    database
}

/// What is done when a letter's attempt begins, and inside its transaction, or under a lease beside it.
trait Errand: Clone + Send + Sync + 'static {
    fn begin(&self, id: i64, stage: LetterStage);

    fn write(&self, _id: i64, _connection: &mut Conn) {}
}

/// Notes the stages in which attempts begin.
#[derive(Clone, Default)]
struct NoteStages(Arc<Mutex<Vec<LetterStage>>>);

impl Errand for NoteStages {
    fn begin(&self, _: i64, stage: LetterStage) {
        self.0.lock().unwrap().push(stage);
    }
}

/// Serves the letters in one of the modes. Each passes through its stages.
fn post(database: &Database, mode: Mode, errand: impl Errand) -> Poller<Conn> {
    fn outcome(stage: LetterStage) -> HandlerResult {
        Ok(if stage == LetterStage::Write { Outcome::next(LetterStage::Send) } else { Outcome::Done })
    }
    let poller = Poller::new(database.pool(3)).control().workers(1);
    match mode {
        Mode::Transaction => poller.serve::<Letter>(move |letter: &Letter, message: &mut Message<'_, Conn>| {
            errand.begin(letter.id, message.stage());
            errand.write(letter.id, message.connection());
            outcome(message.stage())
        }),
        Mode::Group => poller.serve::<LetterInGroup>(move |letter: &LetterInGroup, message: &mut Message<'_, Conn>| {
            errand.begin(letter.id, message.stage());
            errand.write(letter.id, message.connection());
            outcome(message.stage())
        }),
        Mode::Lease => {
            // The next row may be called before the answer of this one is applied.
            let outside = Mutex::new(database.connect());
            let call = move |letter: &LetterLeased, lease: &Lease| {
                errand.begin(letter.id, lease.stage());
                errand.write(letter.id, &mut outside.lock().unwrap());
                Ok(lease.stage::<LetterStage>())
            };
            let apply = |_: &LetterLeased, stage: &LetterStage, _: &mut Message<'_, Conn>| outcome(*stage);
            poller.serve::<LetterLeased>((call, apply)).claim_batch(3)
        }
    }
}

#[test]
fn a_paused_stage_waits_and_the_others_go_on() {
    for mode in MODES {
        let database = office(6);
        let mut connection = database.connect();
        Letter::pause(&mut connection, Pause::new("no stamps", BY).stage(LetterStage::Send)).unwrap();
        let errand = NoteStages::default();
        let run = || post(&database, mode, errand.clone()).run_until_idle().unwrap();
        let tally = run();
        assert_eq!((tally.advanced, tally.succeeded), (3, 0), "{mode:?}");
        assert_eq!(*errand.0.lock().unwrap(), [LetterStage::Write; 3]);
        let explained = Letter::explain(&mut connection, &1).unwrap();
        assert!(
            matches!(&explained, Explanation::Paused { pause } if pause.stage.as_deref() == Some("SEND")),
            "{explained}"
        );
        let backlog = Letter::queue().backlog(&mut connection).unwrap();
        assert_eq!(
            (backlog.paused.len(), backlog.due, backlog.paused_due),
            (1, 6, Some(6)),
            "all have come to the stage"
        );
        assert!(!Letter::unpause(&mut connection).unwrap(), "the whole queue is not paused");
        assert!(!Letter::unpause_stage(&mut connection, LetterStage::Write).unwrap());
        assert!(Letter::unpause_stage(&mut connection, LetterStage::Send).unwrap());
        assert_eq!(run().succeeded, 6, "{mode:?}");
    }
}

#[test]
fn a_queue_whose_stages_are_all_paused_is_paused() {
    for mode in MODES {
        let database = office(4);
        let mut connection = database.connect();
        for stage in [LetterStage::Write, LetterStage::Send] {
            Letter::pause(&mut connection, Pause::new("closed", BY).stage(stage)).unwrap();
        }
        let run = || post(&database, mode, NoteStages::default()).run_until_idle().unwrap();
        assert_eq!(run(), Tally::default(), "{mode:?}");
        Letter::unpause_stage(&mut connection, LetterStage::Write).unwrap();
        assert_eq!((run().advanced, run().succeeded), (2, 0), "{mode:?}");
        assert!(matches!(Letter::explain(&mut connection, &4).unwrap(), Explanation::Paused { .. }));
    }
}

/// The first letter to send pauses its own stage, and the second waits until the poller knows.
#[derive(Clone)]
struct PausesItsStage {
    begun: Arc<Mutex<Vec<(i64, LetterStage)>>>,
    reason: String,
}

impl Errand for PausesItsStage {
    fn begin(&self, id: i64, stage: LetterStage) {
        self.begun.lock().unwrap().push((id, stage));
        if id == 2 && stage == LetterStage::Send {
            await_warning(&["INFO", "paused", &self.reason, "SEND"]);
        }
    }

    fn write(&self, id: i64, connection: &mut Conn) {
        if id == 1 {
            Letter::pause(connection, Pause::new(self.reason.as_str(), BY).stage(LetterStage::Send)).unwrap();
        }
    }
}

#[test]
fn a_stage_is_paused_and_unpaused_while_its_poller_runs() {
    keep_warnings();
    for mode in MODES {
        // Twelve letters to send come first, and then twelve to write.
        let database = office(24);
        let reason = format!("no stamps in {mode:?} mode");
        let errand = PausesItsStage { begun: Arc::default(), reason: reason.clone() };
        let handle = post(&database, mode, errand.clone()).start().unwrap();
        await_true(|| handle.tally().advanced == 12);
        let begun = errand.begun.lock().unwrap().clone();
        let sent: Vec<_> = begun.iter().filter(|(_, stage)| *stage == LetterStage::Send).map(|(id, _)| *id).collect();
        // The poller may know of the pause before the second begins.
        assert!(sent == [1] || sent == [1, 2], "{mode:?}: {sent:?}");
        Letter::unpause_stage(&mut database.connect(), LetterStage::Send).unwrap();
        await_true(|| handle.tally().succeeded == 24);
        await_warning(&["INFO", "no longer paused", &reason]);
        drop(handle);
    }
}
