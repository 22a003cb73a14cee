//! The rows of a search as a file: CSV for people with spreadsheets, JSON for programs.

use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};
use queue_core::internals::by_name::{Holds, TextColumn};
use serde_json::{Map, Value};

use super::at::At;
use super::export_csv::Sheet;
use super::layout::show;
use super::queue::MOST;
use super::search::{Fields, Search};
use super::site::{Named, Site};
use super::trouble::{Told, Trouble};
use crate::database::Database;
use crate::queue::{Facts, Line, Paging, Queue};

/// More characters of a value are cut.
const LONGEST: u32 = 10_000;

/// How many rows are read at once, if their columns are short.
const PAGE: usize = 1_000;

/// How large a file may become, and how large what is read at once. A process has two of each at most, and those that are sent.
const LARGEST: usize = 20 * 1024 * 1024;

/// The bytes of a short value, at most: a number, a time, a UUID.
const SHORT: usize = 128;

/// How long rows are read: then what was read is sent, before the request is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says whether the file lacks rows, or the ends of long values.
const MORE: HeaderName = HeaderName::from_static("x-queueable-more");

/// A file that grows row by row.
pub(super) trait File: Sized + Send + 'static {
    const KIND: &'static str;
    const ENDING: &'static str;
    fn begin(columns: &[TextColumn]) -> Self;
    fn add(&mut self, facts: &Facts, columns: &[TextColumn], line: &Line) -> Told<()>;
    fn len(&self) -> usize;
    fn end(self) -> Told<Vec<u8>>;
}

/// Sends the rows as CSV.
pub(super) async fn csv<C: Database>(site: State<Site<C>>, at: At, fields: Query<Fields>) -> Response {
    export::<C, Sheet>(site, at, fields).await
}

/// Sends the rows as JSON.
pub(super) async fn json<C: Database>(site: State<Site<C>>, at: At, fields: Query<Fields>) -> Response {
    export::<C, List>(site, at, fields).await
}

async fn export<C: Database, F: File>(
    State(site): State<Site<C>>,
    At { visit, named }: At,
    Query(fields): Query<Fields>,
) -> Response {
    match file::<C, F>(&site, &named, &fields).await {
        Ok((file, more)) => {
            let name = file_name(&named.name, more, F::ENDING);
            let headers = [(CONTENT_TYPE, F::KIND.to_owned()), (CONTENT_DISPOSITION, name)];
            // The name of a file that is cut says so, too: nobody who opens it later sees a header.
            (headers, [(MORE, if more { "yes" } else { "no" })], file).into_response()
        }
        Err(trouble) => show(&site, &visit, ("Rows", Some((&named, None))), Err(trouble)).await,
    }
}

fn file_name(queue: &str, more: bool, ending: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let queue: String = queue.chars().map(safe).collect();
    format!("attachment; filename=\"{queue}{}.{ending}\"", if more { "-incomplete" } else { "" })
}

async fn file<C: Database, F: File>(site: &Site<C>, named: &Named, fields: &Fields) -> Told<(Vec<u8>, bool)> {
    let search = Search::of(fields)?;
    let (parts, place) = (site.parts.clone(), named.place);
    let facts = site.of(named).facts();
    let columns = columns(facts.key_columns().into_iter().chain(search.listed(facts)?));
    let work = move |connection: &mut C| written::<C, F>(&*parts.queues[place], connection, &search, columns);
    site.connections.work(work).await
}

/// Each column once: an address may name one a thousand times.
fn columns(listed: impl IntoIterator<Item = TextColumn>) -> Vec<TextColumn> {
    let mut columns: Vec<TextColumn> = Vec::new();
    for column in listed {
        if !columns.iter().any(|of| of.name == column.name) {
            columns.push(column);
        }
    }
    columns
}

/// Reads the rows in pages, and returns the file and whether it lacks something.
fn written<C: Database, F: File>(
    queue: &dyn Queue<C>,
    connection: &mut C,
    search: &Search,
    columns: Vec<TextColumn>,
) -> Told<(Vec<u8>, bool)> {
    let (facts, order) = (queue.facts(), search.page_order());
    let rows = search.rows(facts)?;
    let group = search.group_among(queue, connection, &rows)?;
    let most = usize::try_from(MOST).unwrap_or(10_000);
    let at_once = at_once(&columns);
    let mut file = F::begin(&columns);
    let mut paging = Paging { columns, longest: LONGEST, order, after: None, limit: at_once, backwards: false };
    let mut cursor = search.after.clone();
    let (mut written, mut is_cut, begun) = (0, false, Instant::now());
    loop {
        paging.after = cursor.as_deref().map(|cursor| facts.after(cursor, order, false)).transpose()?;
        let (lines, stopped_at) = match &group {
            Some(group) => queue.page_of_group(connection, &rows, &group.pattern, &paging)?,
            None => {
                let lines = queue.page(connection, &rows, &paging)?;
                let last = lines.last().filter(|_| lines.len() == at_once).cloned();
                (lines, last)
            }
        };
        for line in &lines {
            if written == most || file.len() >= LARGEST || begun.elapsed() > PATIENCE {
                return Ok((file.end()?, true));
            }
            is_cut |= line.values.iter().flatten().any(|value| is_longest(value));
            file.add(facts, &paging.columns, line)?;
            written += 1;
        }
        let is_last = stopped_at.is_none();
        cursor = stopped_at.and_then(|line| facts.cursor(&line, order));
        // After a row whose key has a null, or no order, no page begins.
        if is_last || cursor.is_none() || begun.elapsed() > PATIENCE {
            return Ok((file.end()?, is_cut || !is_last));
        }
    }
}

/// How many rows are read at once, so that they fit into memory even if each value is as long as it may be.
fn at_once(columns: &[TextColumn]) -> usize {
    let of_row: usize =
        columns.iter().map(|column| if is_long(column.holds) { LONGEST as usize * 4 } else { SHORT }).sum();
    (LARGEST / of_row.max(1)).clamp(1, PAGE)
}

/// Whether a value may have been cut.
fn is_longest(value: &str) -> bool {
    value.len() >= LONGEST as usize && value.chars().count() >= LONGEST as usize
}

fn is_long(holds: Holds) -> bool {
    matches!(holds, Holds::Texts | Holds::Json | Holds::Bytes | Holds::Printed | Holds::Others)
}

/// A JSON array with an object for each row.
struct List(Vec<u8>);

impl File for List {
    const KIND: &'static str = "application/json";
    const ENDING: &'static str = "json";

    fn begin(_: &[TextColumn]) -> Self {
        List(b"[".to_vec())
    }

    fn add(&mut self, facts: &Facts, columns: &[TextColumn], line: &Line) -> Told<()> {
        let values = columns.iter().zip(&line.values);
        let row: Map<String, Value> =
            values.map(|(column, value)| (column.name.clone(), facts.json_value(column, value.as_deref()))).collect();
        self.0.extend(if self.0.len() > 1 { ",\n" } else { "\n" }.bytes());
        serde_json::to_writer(&mut self.0, &row).map_err(|error| Trouble::logged(&error))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn end(mut self) -> Told<Vec<u8>> {
        self.0.extend(b"\n]\n");
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, holds: Holds) -> TextColumn {
        TextColumn { name: name.to_owned(), holds }
    }

    #[test]
    fn what_is_read_at_once_is_bounded_by_the_longest_values() {
        let texts = |count: usize| vec![column("text", Holds::Texts); count];
        assert_eq!(at_once(&[column("id", Holds::Integers(8))]), PAGE);
        assert_eq!(at_once(&texts(1)), 524);
        assert_eq!(at_once(&texts(200)), 2);
        assert_eq!(at_once(&[]), PAGE);
    }

    #[test]
    fn a_file_has_each_column_once() {
        let [a, b] = ["a", "b"].map(|name| column(name, Holds::Texts));
        let names: Vec<_> = columns([a.clone(), b, a]).into_iter().map(|of| of.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn the_name_of_a_file_is_harmless() {
        let name = file_name("shop.\"pay\r\nments/..\u{202e}", true, "csv");
        assert_eq!(name, "attachment; filename=\"shop._pay__ments_.._-incomplete.csv\"");
    }
}
