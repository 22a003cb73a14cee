//! A full-text index (SQLite's FTS5) that stays in step with a folder of text and Markdown files.
//!
//! ```sh
//! cargo run --example reindex                                   # a folder of its own; a file changes while it is indexed
//! cargo run --example reindex -- FOLDER                         # index a folder and check the index
//! cargo run --example reindex -- FOLDER --search 'lost update' --database index.sqlite
//! ```
//!
//! The scan writes the files into the table `documents`, by an upsert, and does not decide which of them to index:
//! `rerun_on_change(body)` makes a row due when its text changes, whoever writes it. If a text changes while it is
//! being indexed, it is indexed again: the attempt has indexed the old text, so it does not end in SUCCESS.
//!
//! Exit codes: 0, or 1 when the index is not in step at the end, or something cannot be read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::query_dsl::methods::FilterDsl;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::Text;
use diesel::upsert::excluded;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Lease, LeaseHandler, Message, Migrations, Outcome, Queueable, Tally};

use self::schema::{documents, search};

mod schema {
    diesel::table! { documents (id) { id -> BigInt, path -> Text, modified -> BigInt, body -> Text, } }
    // The index: a virtual table of FTS5, whose rowid is the document's id.
    diesel::table! { search (rowid) { rowid -> BigInt, title -> Text, body -> Text, } }
}

/// Keeps a full-text index of a folder of text and Markdown files
#[derive(Debug, Parser)]
#[command(name = "reindex")]
struct Options {
    /// The folder [default: a new one with three files, of which one changes while it is indexed]
    folder: Option<PathBuf>,

    /// Words to search for afterwards
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,

    /// The SQLite file that keeps the index [default: a new one that is removed at the end]
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
}

/// A file of the folder. Reading and parsing may be slow, so it uses lease mode, in which no transaction is open
/// meanwhile.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(lease = "60s", rerun_on_change(body), max_tries = 5)]
struct Document {
    id: i64,
    path: String,
    body: String,
}

/// An action that runs while the document with this title is indexed.
type Meanwhile = (&'static str, fn() -> Result<()>);

/// No action.
const NOTHING: Option<Meanwhile> = None;

/// The contents of the index for a document.
#[derive(Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = search)]
struct Entry {
    title: String,
    body: String,
}

/// The handler. `meanwhile` runs once, while the document with that title is being indexed.
struct Index<F> {
    meanwhile: Mutex<Option<(&'static str, F)>>,
}

impl<F: FnOnce() -> Result<()> + Send> LeaseHandler<Document, SqliteConnection> for Index<F> {
    type Answer = Entry;

    fn call(&self, document: &Document, _: &Lease) -> Result<Entry, Failure> {
        let entry = entry(document);
        let meanwhile =
            self.meanwhile.lock().unwrap_or_else(PoisonError::into_inner).take_if(|(title, _)| *title == entry.title);
        if let Some((_, meanwhile)) = meanwhile {
            meanwhile().map_err(|error| Failure::retry(error.into_boxed_dyn_error()))?;
        }
        Ok(entry)
    }

    fn apply(&self, document: &Document, entry: &Entry, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
        diesel::delete(search::table.find(document.id)).execute(message.connection())?;
        diesel::insert_into(search::table)
            .values((search::rowid.eq(document.id), search::title.eq(&entry.title), search::body.eq(&entry.body)))
            .execute(message.connection())?;
        println!("indexed {}: {}", document.path, entry.title);
        Ok(Outcome::Done)
    }
}

/// The title: the first line, without Markdown's marks.
fn entry(document: &Document) -> Entry {
    let title = document.body.lines().find(|line| !line.trim().is_empty()).unwrap_or(&document.path);
    Entry { title: title.trim_start_matches('#').trim().to_owned(), body: document.body.clone() }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let temporary = tempfile::tempdir()?;
    let url = options.database.clone().unwrap_or_else(|| temporary.path().join("index.sqlite"));
    let place = Place { url: url.display().to_string() };
    let mut connection = place.connect()?;
    prepare(&mut connection)?;
    match &options.folder {
        Some(folder) => {
            scan(&mut connection, folder)?;
            place.work(NOTHING)?;
            check(&mut connection, folder)?;
        }
        None => demonstrate(&place, &mut connection, &temporary.path().join("notes"))?,
    }
    if let Some(words) = &options.search {
        find(&mut connection, words)?;
    }
    Ok(())
}

/// Shows how the index follows files that are new, change, change at the wrong moment, and disappear.
fn demonstrate(place: &Place, connection: &mut SqliteConnection, folder: &Path) -> Result<()> {
    fs::create_dir(folder)?;
    fs::write(folder.join("lost.md"), "# Lost updates\n\nTwo readers, two writers, one value.\n")?;
    fs::write(folder.join("queues.md"), "# Queues\n\nA row that is due is a message.\n")?;
    fs::write(folder.join("todo.txt"), "buy milk\n")?;
    scan(connection, folder)?;

    // While one of them is being indexed, its author goes on writing.
    let (changing, other) = (folder.join("lost.md"), place.connect()?);
    let meanwhile = {
        let (folder, other) = (folder.to_owned(), Mutex::new(other));
        move || {
            fs::write(&changing, "# Lost updates\n\nWhoever comes second has to look again.\n")?;
            scan(&mut other.into_inner().unwrap_or_else(PoisonError::into_inner), &folder)
        }
    };
    let tally = place.work(Some(("Lost updates", meanwhile)))?;
    ensure!(tally.succeeded == 4, "three files, and one of them twice: {tally:?}");
    check(connection, folder)?;

    fs::remove_file(folder.join("todo.txt"))?;
    fs::write(folder.join("queues.md"), "# Queues\n\nA row that has changed is due again.\n")?;
    scan(connection, folder)?;
    let tally = place.work(NOTHING)?;
    ensure!(tally.succeeded == 1, "one file has changed: {tally:?}");
    check(connection, folder)?;
    ensure!(find(connection, "milk")? == 0, "a removed file is found no more");
    ensure!(find(connection, "second")? == 1 && find(connection, "readers")? == 0, "the newer text is found");
    Ok(())
}

/// Writes the folder's files into the table, each by an upsert, and removes those that are gone.
fn scan(connection: &mut SqliteConnection, folder: &Path) -> Result<()> {
    let files = files(folder)?;
    for (path, modified, body) in &files {
        diesel::insert_into(documents::table)
            .values((
                (documents::path.eq(path), documents::modified.eq(modified), documents::body.eq(body)),
                Document::due_now(),
            ))
            .on_conflict(documents::path)
            .do_update()
            .set((documents::modified.eq(excluded(documents::modified)), documents::body.eq(excluded(documents::body))))
            // Another scan may have read the file later and written it sooner.
            .filter(excluded(documents::modified).ge(documents::modified))
            .execute(connection)?;
    }
    connection.immediate_transaction(|connection| {
        let present: Vec<_> = files.iter().map(|(path, ..)| path).collect();
        let known: Vec<(i64, String)> = documents::table.select((documents::id, documents::path)).load(connection)?;
        for (id, path) in known.iter().filter(|(_, path)| !present.contains(&path)) {
            diesel::delete(search::table.find(id)).execute(connection)?;
            diesel::delete(documents::table.find(id)).execute(connection)?;
            println!("removed {path}");
        }
        Ok(())
    })
}

/// The text and Markdown files below a folder: path, time of the last change in nanoseconds, text.
fn files(folder: &Path) -> Result<Vec<(String, i64, String)>> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    for entry in entries {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            files.extend(self::files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md" || extension == "txt") {
            // Reads the time first: a change after that has a later time, so the next scan reads the file again.
            let modified = fs::metadata(&path)?.modified()?.duration_since(UNIX_EPOCH)?.as_nanos();
            let body = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let body = String::from_utf8_lossy(&body).into_owned();
            files.push((path.display().to_string(), i64::try_from(modified)?, body));
        }
    }
    files.sort();
    Ok(files)
}

/// Compares the index with the files themselves.
fn check(connection: &mut SqliteConnection, folder: &Path) -> Result<()> {
    let files = files(folder)?;
    for (path, _, body) in &files {
        let document: Document = QueryDsl::filter(documents::table, documents::path.eq(path))
            .select(Document::as_select())
            .get_result(connection)
            .with_context(|| format!("{path} is not known"))?;
        let indexed = search::table.find(document.id).select(Entry::as_select()).get_result(connection);
        let indexed = indexed.with_context(|| format!("{path} is not in the index"))?;
        ensure!(indexed == entry(&Document { body: body.clone(), ..document }), "the index of {path} is out of date");
    }
    let indexed: i64 = search::table.count().get_result(connection)?;
    ensure!(usize::try_from(indexed)? == files.len(), "{indexed} files are indexed, {} are there", files.len());
    let unfinished = Document::queue().pending().count(connection)? + Document::queue().failed().count(connection)?;
    ensure!(unfinished == 0, "{unfinished} files are not done with");
    connection.batch_execute("INSERT INTO search(search) VALUES('integrity-check')")?;
    println!("check: the index is in step with {} files", files.len());
    Ok(())
}

/// Prints the files in which all the words are found, best first.
fn find(connection: &mut SqliteConnection, words: &str) -> Result<usize> {
    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = Text)]
        path: String,
        #[diesel(sql_type = Text)]
        passage: String,
    }
    // In quotes: the user's input is words, not FTS5's query language.
    let words: Vec<_> = words.split_whitespace().map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect();
    let found: Vec<Found> = diesel::sql_query(
        "SELECT documents.path, snippet(search, 1, '[', ']', '..', 10) AS passage \
         FROM search JOIN documents ON documents.id = search.rowid WHERE search MATCH ? ORDER BY rank LIMIT 10",
    )
    .bind::<Text, _>(words.join(" "))
    .load(connection)?;
    println!("{} files with {}", found.len(), words.join(" "));
    for Found { path, passage } in &found {
        println!("  {path}: {}", passage.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    Ok(found.len())
}

/// The database.
struct Place {
    url: String,
}

impl Place {
    fn connect(&self) -> Result<SqliteConnection> {
        let mut connection =
            SqliteConnection::establish(&self.url).with_context(|| format!("cannot open the database {}", self.url))?;
        connection.batch_execute("PRAGMA busy_timeout = 5000")?;
        Ok(connection)
    }

    fn work(&self, meanwhile: Option<(&'static str, impl FnOnce() -> Result<()> + Send + 'static)>) -> Result<Tally> {
        let pool = Pool::builder().max_size(4).build(ConnectionManager::<SqliteConnection>::new(&self.url))?;
        let handler = Index { meanwhile: Mutex::new(meanwhile) };
        Ok(Document::poller(pool, handler).workers(2).run_until_idle()?)
    }
}

fn prepare(connection: &mut SqliteConnection) -> Result<()> {
    connection.batch_execute(
        "CREATE TABLE IF NOT EXISTS documents
             (id INTEGER PRIMARY KEY NOT NULL, path TEXT NOT NULL UNIQUE, modified BIGINT NOT NULL, body TEXT NOT NULL);
         CREATE VIRTUAL TABLE IF NOT EXISTS search USING fts5 (title, body)",
    )?;
    connection.run_pending_migrations(Migrations::new().entity::<Document>()).map_err(anyhow::Error::from_boxed)?;
    Ok(())
}
