//! A file in which the workers note when their attempts begin and end, and the harness what it does to them. Each note is
//! one write at the end of the file, so the lines of all processes are in the order of their times, and nothing that
//! happens to a process or to a transaction takes a note back.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// An attempt begins: its number in its process, its queue and its row.
    Began { process: u32, attempt: u64, queue: String, row: i64 },
    /// It ends, and the row has failed or not.
    Ended { process: u32, attempt: u64, failed: bool },
    /// Rows were enqueued in this queue, up to this one.
    Enqueued { queue: String, last: i64 },
    /// This process is killed next.
    Killing { process: u32 },
    /// All sessions end next.
    Cutting,
}

/// Opens the file.
pub(crate) fn open(directory: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(directory.join("attempts"))
}

/// Appends a line.
pub(crate) fn note(mut file: &File, note: &Note) -> io::Result<()> {
    let line = match note {
        Note::Began { process, attempt, queue, row } => format!("began {process} {attempt} {queue} {row}\n"),
        Note::Ended { process, attempt, failed } => format!("ended {process} {attempt} {failed}\n"),
        Note::Enqueued { queue, last } => format!("enqueued {queue} {last}\n"),
        Note::Killing { process } => format!("killing {process}\n"),
        Note::Cutting => "cutting\n".to_owned(),
    };
    file.write_all(line.as_bytes())
}

/// Reads all lines.
pub(crate) fn read(directory: &Path) -> Result<Vec<Note>> {
    let text = fs::read_to_string(directory.join("attempts"))?;
    text.lines().map(|line| parse(line).with_context(|| format!("no note: {line}"))).collect()
}

fn parse(line: &str) -> Option<Note> {
    let words: Vec<_> = line.split(' ').collect();
    Some(match words[..] {
        ["began", process, attempt, queue, row] => Note::Began {
            process: process.parse().ok()?,
            attempt: attempt.parse().ok()?,
            queue: queue.to_owned(),
            row: row.parse().ok()?,
        },
        ["ended", process, attempt, failed] => {
            Note::Ended { process: process.parse().ok()?, attempt: attempt.parse().ok()?, failed: failed.parse().ok()? }
        }
        ["enqueued", queue, last] => Note::Enqueued { queue: queue.to_owned(), last: last.parse().ok()? },
        ["killing", process] => Note::Killing { process: process.parse().ok()? },
        ["cutting"] => Note::Cutting,
        _ => return None,
    })
}
