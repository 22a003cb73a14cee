//! The console of an application: its entities, and the run of a command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use diesel::Connection;
use queue_core::{
    AllFilters, ComparesSchema, EveryRow, Explains, Filtered, LoadsRows, MovesRows, QueueOn, QueueTable, StoredIn,
};
use queueable::{Migrations, Queueable};

use crate::cli::{Command, Global, Line};
use crate::command;
use crate::database::{Database, TheDatabase};
use crate::failure::{Answer, Failure, Result};
use crate::filter::Filter;
use crate::queue::{Of, Queue};
use crate::shown::Screen;
use crate::{replay, top, web};

/// The console of an application: it knows the entities, and runs commands on their queues.
///
/// # Examples
///
/// As a program:
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use queueable::Queueable;
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// use queueable_console::Console;
///
/// fn main() -> queueable_console::Result {
///     Console::<SqliteConnection>::new().entity::<Payment>().run()
/// }
/// ```
///
/// As a command of the application's own program:
///
/// ```
/// # use diesel::prelude::*;
/// # use queueable::Queueable;
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// use queueable_console::Console;
///
/// let console = Console::<SqliteConnection>::new().entity::<Payment>();
/// let shop = clap::Command::new("shop").subcommand(console.subcommand().name("queue"));
/// let matches = shop.get_matches_from(["shop", "queue", "completions", "bash"]);
/// if let Some(("queue", matches)) = matches.subcommand() {
///     console.run_matches(matches)?;
/// }
/// # Ok::<(), std::convert::Infallible>(())
/// ```
#[must_use = "nothing happens before it runs"]
pub struct Console<C: Database> {
    pub(crate) parts: Arc<Parts<C>>,
}

pub(crate) struct Parts<C: Database> {
    pub(crate) queues: Vec<Box<dyn Queue<C>>>,
    /// An entity that cannot be served, for example because its table's name is unusable.
    pub(crate) broken: Option<String>,
    #[allow(dead_code, reason = "only `replay` asks for them")]
    pub(crate) handlers: replay::Handlers<C>,
    pub(crate) read_only: bool,
    pub(crate) production: String,
    pub(crate) tables: Vec<Tables<C>>,
    pub(crate) address: Option<String>,
    #[allow(dead_code, reason = "only the page reads it")]
    pub(crate) page: web::Page,
}

/// Adds migrations of the application's own choice.
type Tables<C> = Box<dyn Fn(MigrationsOf<C>) -> MigrationsOf<C> + Send + Sync>;
type MigrationsOf<C> = Migrations<<C as Connection>::Backend>;

/// An entity that the console can operate on a connection: every one whose queue works there.
#[diagnostic::on_unimplemented(
    message = "the console cannot operate `{Self}` on `{C}`",
    note = "the entity derives `Queryable`, `Selectable` and `Queueable`, and all its fields can be read on this database"
)]
pub trait Operable<C: Database>: Queueable {
    #[doc(hidden)]
    fn served(hidden: Vec<String>) -> std::result::Result<Served<C>, String>;
}

/// A queue without its type.
#[doc(hidden)]
pub struct Served<C: Database>(pub(crate) Box<dyn Queue<C>>);

type TableOf<Q> = <<Q as queueable::Entity>::Queue as QueueTable>::Table;

#[diagnostic::do_not_recommend]
impl<C, Q> Operable<C> for Q
where
    C: Database
        + LoadsRows<Q, AllFilters>
        + MovesRows<Q, EveryRow>
        + MovesRows<Q, Filtered<Filter<TableOf<Q>>>>
        + Explains<Q>
        + ComparesSchema<Q>,
    Q: Queueable + QueueOn<C> + StoredIn<<C as Connection>::Backend> + 'static,
{
    fn served(hidden: Vec<String>) -> std::result::Result<Served<C>, String> {
        Ok(Served(Box::new(Of::<Q>::new::<C>(hidden)?)))
    }
}

impl<C: Database> Console<C> {
    /// Makes a console without queues.
    #[expect(clippy::new_without_default, reason = "a default would need the type of the connection in words")]
    pub fn new() -> Self
    where
        (): TheDatabase<C>,
    {
        let parts = Parts {
            queues: Vec::new(),
            broken: None,
            handlers: replay::Handlers::default(),
            read_only: false,
            production: "production".to_owned(),
            tables: Vec::new(),
            address: None,
            page: web::Page::default(),
        };
        Console { parts: Arc::new(parts) }
    }

    /// Adds the queue of an entity. Values of columns whose names contain `password`, `passwd`, `secret`, `token`, `api_key`, `apikey`,
    /// `private_key`, `credential` or `cvv` are not shown.
    pub fn entity<Q: Operable<C>>(self) -> Self {
        self.entity_without::<Q>([])
    }

    /// Adds the queue of an entity, and never shows the values of these columns either. The console does not run if the table has no
    /// such column, or if it is part of the key.
    pub fn entity_without<Q: Operable<C>>(self, columns: impl IntoIterator<Item = &'static str>) -> Self {
        let secret = columns.into_iter().map(str::to_owned).collect();
        self.with(|parts| match Q::served(secret) {
            Ok(Served(queue)) => parts.queues.push(queue),
            Err(error) => parts.broken = Some(error),
        })
    }

    /// Names the database that is meant where neither `--database-url` nor DATABASE_URL does.
    pub fn default_database(self, url: impl Into<String>) -> Self {
        let url = url.into();
        self.with(|parts| parts.address = Some(url))
    }

    /// Makes a console without the commands that change something.
    pub fn read_only(self) -> Self {
        self.with(|parts| parts.read_only = true)
    }

    /// Names the environment in which a person types its name before more than 1,000 rows are changed; the default is `production`.
    /// See [`Poller::environment`](queueable::Poller::environment).
    pub fn production(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.with(|parts| parts.production = name)
    }

    /// Adds to the migrations of the queues, for `migrate`: `console.migrations(|queues| queues.control().audit())`.
    pub fn migrations(self, add: impl Fn(MigrationsOf<C>) -> MigrationsOf<C> + Send + Sync + 'static) -> Self {
        self.with(|parts| parts.tables.push(Box::new(add)))
    }

    /// Returns the command for [`run_matches`](Self::run_matches), to be put into a command of the application's own.
    pub fn subcommand(&self) -> clap::Command {
        let names: Vec<_> = self.parts.queues.iter().map(|queue| queue.facts().accepted(&self.parts)).collect();
        let has_queue = |of: &clap::Command| of.get_arguments().any(|argument| argument.get_id() == "queue");
        let named = |of: clap::Command| match has_queue(&of) {
            true => of.mut_arg("queue", |argument| {
                argument
                    .value_parser(PossibleValuesParser::new(names.clone()))
                    .ignore_case(true)
                    .hide_possible_values(true)
            }),
            false => of,
        };
        let command = if names.is_empty() { Line::command() } else { Line::command().mut_subcommands(named) };
        // Options that change something are refused when they are used.
        let hidden = Command::CHANGES.iter().filter(|_| self.parts.read_only);
        hidden.fold(command, |command, name| command.mut_subcommand(name, |of| of.hide(true)))
    }

    /// Runs the command that the process was called with.
    ///
    /// # Errors
    ///
    /// None: what goes wrong is written to standard error, and [the exit code](type@crate::Result) says which kind it is.
    pub fn run(&self) -> Result {
        let command = self.subcommand();
        let command = match program() {
            Some(name) => command.bin_name(name),
            None => command,
        };
        match command.try_get_matches() {
            Ok(matches) => self.run_matches(&matches),
            Err(error) if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let is_json = std::env::args_os().any(|argument| argument == "--json");
                let text = error.render().to_string();
                let failure = Failure::Usage(text.trim_start_matches("error: ").trim_end().to_owned());
                Screen::bare(is_json).fail(&failure);
                Ok(ExitCode::from(failure.code()))
            }
            Err(error) => error.exit(),
        }
    }

    /// Runs a command that was parsed by [`subcommand`](Self::subcommand).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_matches(&self, matches: &ArgMatches) -> Result {
        let line = match Line::from_arg_matches(matches) {
            Ok(line) => line,
            Err(error) => error.exit(),
        };
        let global = line.global.clone();
        let ended = self.ended(line);
        let Err(failure) = ended else { return Ok(ExitCode::SUCCESS) };
        Screen::new(&global).fail(&failure);
        Ok(ExitCode::from(failure.code()))
    }

    fn ended(&self, line: Line) -> Answer {
        let parts = &self.parts;
        if let Some(error) = &parts.broken {
            return Err(Failure::Failed(error.clone()));
        }
        if parts.read_only && line.command.changes() {
            return Err(Failure::Usage("this console is read-only: it changes nothing".to_owned()));
        }
        if let Command::Completions { .. } | Command::Man = line.command {
            let of = match program() {
                Some(name) => self.subcommand().bin_name(name),
                None => self.subcommand(),
            };
            return command::write_of(&Screen::new(&line.global), &line.command, of);
        }
        if let Command::Top(of) = &line.command {
            return top::run(parts.clone(), &line.global, of);
        }
        if let Command::Serve(of) = &line.command {
            return web::run(parts, &line.global, of);
        }
        if line.global.watch.is_some() && !line.command.is_report() {
            return Err(Failure::Usage("`--watch` repeats reports, and this command changes something".to_owned()));
        }
        if line.global.watch.is_some() || !line.command.is_report() {
            return command::run(parts, &line);
        }
        // A report ends after a while, whatever the server does.
        let (sender, receiver) = sync_channel(1);
        let (parts, patience) = (parts.clone(), line.global.timeout);
        thread::spawn(move || sender.send(command::run(&parts, &line)));
        match receiver.recv_timeout(patience) {
            Ok(ended) => ended,
            Err(RecvTimeoutError::Timeout) => Err(Failure::NoConnection(format!(
                "the database has not answered within {}: `--timeout` waits longer",
                humantime::format_duration(patience)
            ))),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::Failed("the command has panicked".to_owned())),
        }
    }

    pub(crate) fn with(self, change: impl FnOnce(&mut Parts<C>)) -> Self {
        let mut parts = Arc::into_inner(self.parts).expect("a console that is built is shared with nobody");
        change(&mut parts);
        Console { parts: Arc::new(parts) }
    }
}

/// The name by which the process was called.
fn program() -> Option<String> {
    let path = std::env::args_os().next().map(PathBuf::from);
    path.as_deref().and_then(Path::file_name).map(|name| name.display().to_string())
}

impl<C: Database> Parts<C> {
    /// Returns the migrations of all queues.
    pub(crate) fn migrations(&self) -> MigrationsOf<C> {
        let queues = self.queues.iter().fold(Migrations::new(), |migrations, queue| queue.migrate(migrations));
        self.tables.iter().fold(queues, |migrations, add| add(migrations))
    }

    /// Finds a queue by its table, by `table.status`, or by its entity.
    pub(crate) fn queue(&self, name: &str) -> Answer<&dyn Queue<C>> {
        let is = |test: &dyn Fn(&crate::queue::Facts) -> bool| -> Vec<&dyn Queue<C>> {
            self.queues.iter().map(|queue| &**queue).filter(|queue| test(queue.facts())).collect()
        };
        let found = [
            is(&|facts| facts.queue.eq_ignore_ascii_case(name)),
            is(&|facts| facts.table.eq_ignore_ascii_case(name)),
            is(&|facts| facts.entity.eq_ignore_ascii_case(name)),
        ];
        let names = |queues: &[&dyn Queue<C>]| {
            let names: Vec<_> = queues.iter().map(|queue| queue.facts().name(self)).collect();
            names.join(", ")
        };
        match found.iter().find(|found| !found.is_empty()).map(Vec::as_slice) {
            Some([queue]) => Ok(*queue),
            Some(several) => Err(Failure::Usage(format!(
                "`{name}` has several queues: {}",
                several.iter().map(|queue| queue.facts().queue.clone()).collect::<Vec<_>>().join(", ")
            ))),
            None => {
                let all: Vec<_> = self.queues.iter().map(|queue| &**queue).collect();
                Err(Failure::Usage(format!("there is no queue `{name}`; there are {}", names(&all))))
            }
        }
    }

    /// Returns one queue, or all.
    pub(crate) fn queues(&self, name: Option<&str>) -> Answer<Vec<&dyn Queue<C>>> {
        match name {
            Some(name) => Ok(vec![self.queue(name)?]),
            None if self.queues.is_empty() => {
                Err(Failure::Usage("the console has no queues: add them with `Console::entity`".to_owned()))
            }
            None => Ok(self.queues.iter().map(|queue| &**queue).collect()),
        }
    }

    pub(crate) fn connect(&self, global: &Global) -> Answer<C> {
        crate::database::connect(self.address(global)?, global.timeout)
    }

    /// Returns the address of the database.
    pub(crate) fn address<'a>(&'a self, global: &'a Global) -> Answer<&'a str> {
        let address = global.database_url.as_deref();
        let address = address.filter(|address| !address.trim().is_empty()).or(self.address.as_deref());
        address.ok_or_else(|| Failure::Usage("which database? Give `--database-url`, or set DATABASE_URL".to_owned()))
    }
}

impl crate::queue::Facts {
    /// The name for completions, and the other names that are accepted.
    fn accepted<C: Database>(&self, parts: &Parts<C>) -> PossibleValue {
        PossibleValue::new(self.name(parts)).aliases([self.queue.clone(), self.table.clone(), self.entity.to_owned()])
    }

    /// The shortest name that tells the queue from the others.
    pub(crate) fn name<C: Database>(&self, parts: &Parts<C>) -> String {
        let of_table = parts.queues.iter().filter(|queue| queue.facts().table == self.table).count();
        if of_table > 1 { self.queue.clone() } else { self.table.clone() }
    }
}
