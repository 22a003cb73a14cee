//! A person at a terminal is asked, and what was shown is what is changed.

use std::io::{Read, Write};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use queueable::Status;

use super::served::{Served, fail};

/// A console that waits for an answer.
struct Asked {
    child: Box<dyn Child + Send + Sync>,
    terminal: Box<dyn MasterPty + Send>,
    reader: Box<dyn Read + Send>,
    shown: String,
}

impl Asked {
    fn new(served: &Served, arguments: &[&str]) -> Self {
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_served"));
        command.args(arguments);
        command.env("DATABASE_URL", served.database.url());
        command.env("USER", "ops");
        let child = pair.slave.spawn_command(command).expect("the console runs");
        drop(pair.slave);
        let reader = pair.master.try_clone_reader().expect("the terminal can be read");
        let mut asked = Asked { child, terminal: pair.master, reader, shown: String::new() };
        asked.read_until(|shown| shown.contains("[y/N]") || shown.contains("environment:"));
        asked
    }

    /// Reads until this is shown, or the console has ended.
    fn read_until(&mut self, is_shown: impl Fn(&str) -> bool) {
        let mut bytes = [0; 4096];
        while !is_shown(&self.shown) {
            // A terminal that nobody writes to any more ends, or fails.
            match self.reader.read(&mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(read) => self.shown += &String::from_utf8_lossy(&bytes[..read]),
            }
        }
    }

    /// Answers, and returns the exit code and all that was shown.
    fn answer(mut self, text: &str) -> (u32, String) {
        let mut writer = self.terminal.take_writer().expect("the terminal can be written");
        writer.write_all(text.as_bytes()).expect("the console reads");
        self.read_until(|_| false);
        let code = self.child.wait().expect("it is our child").exit_code();
        (code, self.shown)
    }
}

const RETRY: [&str; 3] = ["retry", "payments", "--failed"];

#[test]
fn a_person_says_yes_or_no() {
    let served = Served::filled();
    let (code, shown) = Asked::new(&served, &RETRY).answer("n\n");
    assert!(code == 130 && shown.contains("nothing was changed"), "{code}: {shown}");
    assert_eq!(served.status(6), Status::Failed);
    let asked = Asked::new(&served, &RETRY);
    assert!(asked.shown.contains("retry: 2 rows. Go on?"), "{}", asked.shown);
    let (code, shown) = asked.answer("y\n");
    assert!(code == 0 && shown.contains("2 rows changed"), "{code}: {shown}");
    assert_eq!(served.status(6), Status::NotAttempted);
    assert_eq!(served.objects(&["audit"])[0]["by"], "ops");
}

#[test]
fn rows_that_come_in_the_meantime_are_not_changed() {
    let served = Served::filled();
    let asked = Asked::new(&served, &RETRY);
    fail(&mut served.connect(), 8, "no route");
    let (code, shown) = asked.answer("y\n");
    assert!(code == 1 && shown.contains("there were 2 rows, and now there are 3 rows"), "{code}: {shown}");
    assert_eq!([6, 7, 8].map(|id| served.status(id)), [Status::Failed; 3]);
}

#[test]
fn a_sum_that_changes_in_the_meantime_stops_the_change() {
    use diesel::prelude::*;

    use crate::entities::payments;

    let served = Served::filled();
    let asked = Asked::new(&served, &RETRY);
    let dearer = diesel::update(payments::table.find(6)).set(payments::amount_cents.eq(99_999));
    dearer.execute(&mut served.connect()).expect("the row is there");
    let (code, shown) = asked.answer("y\n");
    assert!(code == 1 && shown.contains("with other sums"), "{code}: {shown}");
    assert_eq!(served.status(6), Status::Failed);
}
