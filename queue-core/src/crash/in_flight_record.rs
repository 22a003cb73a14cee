//! The text of a record: one line for the database, one for each row that is in flight or reported, and one for their end.
//!
//! Other processes read it, even of other versions, after a crash or on a full disk. They skip what they cannot read,
//! and a line counts only if its end was written.

use crate::row::Fence;

/// Stands at the beginning of every record, with the version of the format.
const MAGIC: &str = "queueable-flight-1";

/// Says that all rows before it have ended.
pub(crate) const ENDED: &str = "-\n";

/// A row in a record. Its texts are escaped, so that each fits on a line. They are compared, and never unescaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    queue: String,
    key: String,
    pub(crate) fence: Fence,
    /// How many times the row ended a process in which it was alone. 0: it has ended one at least, beside others.
    pub(crate) alone: u32,
}

impl Entry {
    /// Makes the entry of a row that is about to be handled.
    pub(crate) fn new(queue: &str, key: &str, fence: Fence, alone: bool) -> Self {
        // Only what a record keeps of the fence, so that the entry compares with one that was read.
        let fence = Fence::new(fence.status, fence.try_count);
        Entry { queue: escaped(queue), key: escaped(key), fence, alone: alone.into() }
    }

    pub(crate) fn is_of(&self, queue: &str) -> bool {
        self.queue == escaped(queue)
    }

    /// Tells whether both are about the same row, in any state.
    pub(crate) fn is_about(&self, other: &Entry) -> bool {
        self.queue == other.queue && self.key == other.key
    }

    /// Appends the entry's line.
    pub(crate) fn push(&self, text: &mut String) {
        let Fence { status, try_count, .. } = self.fence;
        let columns = [&self.queue, &self.key, status.as_str(), &try_count.to_string(), &self.alone.to_string()];
        text.push_str(&columns.join("\t"));
        text.push('\n');
    }

    fn read(line: &str) -> Option<Self> {
        let mut columns = line.split('\t');
        let mut next = || columns.next();
        let (queue, key) = (next()?.to_owned(), next()?.to_owned());
        let fence = Fence::new(next()?.parse().ok()?, next()?.parse().ok()?);
        let alone = next()?.parse().ok()?;
        columns.next().is_none().then_some(Entry { queue, key, fence, alone })
    }
}

/// Returns the first line, which names the database of the rows.
pub(crate) fn header(database: &str) -> String {
    format!("{MAGIC}\t{}\n", escaped(database))
}

/// Reads a record. `None`: it is not a record of this database.
pub(crate) fn read(text: &[u8], database: &str) -> Option<Vec<Entry>> {
    let text = String::from_utf8_lossy(text);
    let entries = text.strip_prefix(&header(database))?;
    // The text after the last line end is incomplete, so its row was never handled.
    let (whole, _half) = entries.rsplit_once('\n').unwrap_or_default();
    let mut open = Vec::new();
    for line in whole.lines() {
        if line == ENDED.trim_end() {
            open.clear();
        }
        open.extend(Entry::read(line));
    }
    Some(open)
}

fn escaped(text: &str) -> String {
    text.escape_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Status;

    fn entry(key: &str) -> Entry {
        Entry::new("shop.payments.status", key, Fence::new(Status::Error, 2), true)
    }

    fn written(entries: &[Entry]) -> String {
        let mut text = header("shop");
        entries.iter().for_each(|entry| entry.push(&mut text));
        text
    }

    #[test]
    fn a_record_is_read_as_it_was_written_whatever_is_in_a_key() {
        let entries: Vec<_> =
            ["7", "", "(1, \"a\")", "a\nb\tc\r\\", "\u{e9}\0\u{2028}", &"long".repeat(10_000)].map(entry).into();
        let read = read(written(&entries).as_bytes(), "shop").expect("the test's own files");
        assert_eq!(read, entries);
        assert!(read[3].is_about(&entry("a\nb\tc\r\\")) && read[3].is_of("shop.payments.status"));
        assert!(!read[3].is_about(&entry("a\\nb\tc\r\\")));
    }

    #[test]
    fn what_has_landed_is_in_the_air_no_more() {
        let mut text = written(&[entry("1"), entry("-")]);
        text.push_str(ENDED);
        assert_eq!(read(text.as_bytes(), "shop"), Some(vec![]));
        entry("2").push(&mut text);
        assert_eq!(read(text.as_bytes(), "shop"), Some(vec![entry("2")]));
    }

    #[test]
    fn a_half_written_line_does_not_count() {
        let text = written(&[entry("1"), entry("2")]);
        let first = written(&[entry("1")]).len();
        for length in 0..text.len() {
            let read = read(&text.as_bytes()[..length], "shop");
            assert_eq!(read.map_or(0, |entries| entries.len()), usize::from(length >= first), "{length}");
        }
    }

    #[test]
    fn garbage_and_the_records_of_others_are_passed_over() {
        assert_eq!(read(b"", "shop"), None);
        assert_eq!(read(b"\xff\xfe\0\0", "shop"), None);
        assert_eq!(read(written(&[]).as_bytes(), "another"), None);
        assert_eq!(read(b"queueable-flight-2\tshop\n", "shop"), None);
        let mut text = written(&[]).into_bytes();
        text.extend(b"q\tk\tDONE\t0\t0\n\n\t\t\nq\tk\tERROR\t99999999999\t0\nq\tk\tERROR\t0\t0\tmore\n\xff\xff\n");
        assert_eq!(read(&text, "shop"), Some(vec![]));
    }
}
