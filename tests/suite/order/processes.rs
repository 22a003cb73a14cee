//! One message at a time, even among processes, and when one of them is killed.
//!
//! The process that is killed is this program itself, started again with a single test. The environment holds its
//! orders.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queue_core::internals::statement::Scope;
use queueable::{CrashAccounting, Lease, Message, Outcome, Queueable};
use tempfile::TempDir;

use super::{bank_of, entity, sql};
use crate::db::{self, Conn};
use crate::suite::bank::{Bank, payments};
use crate::suite::keyed::erased;
use crate::suite::main_job::program::Program;
use queue_core::internals::backend::Transactions;

entity!(Alone, alone_queue, exclusive);
entity!(AloneCalled, alone_called_queue, exclusive, lease = "60s");
entity!(AloneCalledBriefly, alone_called_briefly_queue, exclusive, lease = "10s");

/// The amount whose handler never ends by itself, and the one that ends the process.
const ENDLESS: i64 = -1;
const DEADLY: i64 = -2;

const URL: &str = "QUEUEABLE_ALONE_URL";
const NOTES: &str = "QUEUEABLE_ALONE_NOTES";
/// Whether the process works under leases, whether its accounts are strict, and whether it gets over what is endless.
const WORDS: &str = "QUEUEABLE_ALONE_WORDS";

#[test]
fn a_process_of_its_own() {
    // As one of the other tests, it has nothing to do.
    let (Ok(url), Ok(notes), Ok(words)) = (env::var(URL), env::var(NOTES), env::var(WORDS)) else { return };
    // A pool that opens connections while its process exits makes libpq's Kerberos library abort it.
    let pool = Pool::builder().max_size(6).min_idle(Some(0)).build(ConnectionManager::<Conn>::new(url)).unwrap();
    let notes = PathBuf::from(notes);
    let patient = words.contains("patient");
    let work = move |amount: i64, notes: &Path| {
        note(notes, &format!("begin {amount}"));
        let (_nobody, pace) = mpsc::channel::<()>();
        match amount {
            ENDLESS if !patient => _ = pace.recv(),
            DEADLY => std::process::abort(),
            _ => _ = pace.recv_timeout(Duration::from_millis(2)),
        }
        note(notes, &format!("end {amount}"));
    };
    let mut session = pool.get().unwrap();
    macro_rules! in_transactions {
        ($entity:ident) => {
            $entity::poller(pool, move |row: &$entity, _: &mut Message<'_, Conn>| {
                work(row.amount_cents, &notes);
                Ok(Outcome::Done)
            })
        };
    }
    macro_rules! under_leases {
        ($entity:ident) => {{
            let handler = (
                move |row: &$entity, _: &Lease| {
                    work(row.amount_cents, &notes);
                    Ok(())
                },
                |_: &$entity, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
            );
            $entity::poller(pool, handler)
        }};
    }
    let poller = match () {
        () if words.contains("briefly") => under_leases!(AloneCalledBriefly),
        () if words.contains("leased") => under_leases!(AloneCalled),
        () => in_transactions!(Alone),
    };
    let accounting = if words.contains("strict") { CrashAccounting::Strict } else { CrashAccounting::On };
    let poller = poller.workers(4).poll_interval(Duration::from_millis(50));
    let handle = poller.crash_accounting(accounting).start().unwrap();
    let (_nobody, pace) = mpsc::channel::<()>();
    // While another connection recovers from the last crash, SQLite reports that the database is locked.
    while Alone::queue().pending().count(&mut session).unwrap_or(1) > 0 {
        let _ = pace.recv_timeout(Duration::from_millis(10));
    }
    handle.shutdown(Duration::from_secs(60));
}

fn note(notes: &Path, line: &str) {
    let mut notes = OpenOptions::new().append(true).create(true).open(notes).unwrap();
    notes.write_all(format!("{line}\n").as_bytes()).unwrap();
}

struct Scene {
    bank: Bank,
    directory: TempDir,
}

impl Scene {
    fn new(amounts: impl IntoIterator<Item = i64>) -> Self {
        let bank = bank_of::<Alone>();
        for amount in amounts {
            sql(
                &bank,
                &format!(
                    "INSERT INTO payments (company_id, amount_cents, next_attempt_time)
                     VALUES (1, {amount}, '2026-01-01 00:00:00.000')"
                ),
            );
        }
        Scene { bank, directory: tempfile::tempdir().unwrap() }
    }

    fn start(&self, words: &str) -> Program {
        let notes = self.notes().to_str().unwrap().to_owned();
        let url = self.bank.database.url().to_owned();
        let variables = [(URL, url), (NOTES, notes), (WORDS, words.to_owned())];
        Program::of_this_test("suite::order::processes::a_process_of_its_own", variables)
    }

    fn notes(&self) -> PathBuf {
        self.directory.path().join("notes")
    }

    fn noted(&self) -> Vec<String> {
        fs::read_to_string(self.notes()).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

fn pairs(amounts: impl IntoIterator<Item = i64>) -> Vec<String> {
    amounts.into_iter().flat_map(|amount| [format!("begin {amount}"), format!("end {amount}")]).collect()
}

#[test]
fn processes_take_turns_and_never_overlap() {
    for words in ["", "strict", "leased"] {
        let scene = Scene::new(1..=20);
        let programs = [scene.start(words), scene.start(words)];
        programs.map(Program::end).into_iter().for_each(|ended| drop(ended.well()));
        assert_eq!(scene.noted(), pairs(1..=20), "`{words}`");
    }
}

#[test]
fn when_the_holder_is_killed_another_process_goes_on_and_not_before() {
    for words in ["", "leased briefly"] {
        let scene = Scene::new([ENDLESS, 1, 2, 3]);
        let mut holder = scene.start(words);
        holder.await_answer("the first handler runs", || (!scene.noted().is_empty()).then_some(()));
        let heir = scene.start(&format!("patient {words}"));
        if db::NAME != "sqlite" {
            let mut session = scene.bank.connect();
            for _ in 0..20 {
                session.begin().unwrap();
                let claimed = queue_core::internals::claim_one(erased::<Alone>(), &mut session, Scope::ALL).unwrap();
                let claimed = claimed.map(|row| *row.key);
                <Conn as Connection>::TransactionManager::rollback_transaction(&mut session).unwrap();
                erased::<Alone>().end_exclusion(&mut session).unwrap();
                assert_eq!(claimed, None, "`{words}`");
            }
        }
        assert_eq!(scene.noted(), [format!("begin {ENDLESS}")]);
        holder.kill();
        heir.end().well();
        let after: Vec<_> = scene.noted().into_iter().skip(1).collect();
        // On a slow disk a lease may end before the answer is written. The call then runs again.
        let mut calls: Vec<_> = after.chunks(2).map(<[String]>::to_vec).collect();
        if words.contains("leased") {
            calls.dedup();
        }
        assert_eq!(calls.concat(), pairs([ENDLESS, 1, 2, 3]), "`{words}`");
    }
}

#[test]
fn a_row_that_ends_its_process_is_set_aside_and_those_behind_it_have_waited() {
    for words in ["", "strict"] {
        let scene = Scene::new([DEADLY, 1, 2]);
        let ended = (0..10).find(|_| scene.start(words).end().status.success());
        assert_eq!(ended, Some(3), "`{words}`");
        let crashes = vec![format!("begin {DEADLY}"); 3];
        assert_eq!(scene.noted(), [crashes, pairs([1, 2])].concat(), "`{words}`");
        let state = payments::table.filter(payments::amount_cents.eq(DEADLY)).select(Alone::queue_state());
        let state: queueable::QueueState = state.first(&mut scene.bank.connect()).unwrap();
        assert_eq!(state.status, queueable::Status::Failed);
    }
}
