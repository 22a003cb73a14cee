//! An entity's queue, behind the trait that does not name the entity.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use diesel::Table;
use diesel::query_builder::QueryFragment;
use queue_core::internals::by_name::{
    self, Figure, Figures, GroupTexts, Operate, Operated, PageOrder, PausedPart, Picked, Size, TextColumn, TextPage,
    TextRow, plans, sizes,
};
use queue_core::{
    AllFilters, ComparesSchema, EveryRow, Explains, Filtered, LoadsRows, MovesRows, QueueOn, QueueTable, StoredIn,
};
use queueable::control::Limits;
use queueable::report::{Backlog, By, ErrorReport, Explanations, Ill, Interval, Progress, Statistics};
use queueable::{Error, Explanation, Finding, Migrations, Pause, QueueRows, Queueable};

use super::asked::{Asked, Author, Ends, Limiting, Line, Paging, Prepared, Queue, Rows, Scope, Shape, State};
use super::facts::Facts;
use super::key::{joined, text_of};
use crate::database::Database;
use crate::filter::{Condition, Filter, FilterSql, ValueOf};

type TableOf<Q> = <<Q as queue_core::Entity>::Queue as QueueTable>::Table;
type FilterOf<Q> = Filter<TableOf<Q>>;

/// The queue of an entity.
pub(crate) struct Of<Q> {
    pub(crate) facts: Facts,
    entity: PhantomData<fn() -> Q>,
}

impl<Q: Queueable> Of<Q> {
    pub(crate) fn new<C>(hidden: Vec<String>) -> Result<Self, String>
    where
        C: Database + ComparesSchema<Q>,
        Q: QueueOn<C> + StoredIn<C::Backend>,
    {
        Ok(Of { facts: Facts::of::<Q, C>(hidden)?, entity: PhantomData })
    }
}

impl Rows {
    fn restrict<Q: Queueable, F>(&self, mut rows: QueueRows<Q, F>) -> QueueRows<Q, F> {
        for state in &self.states {
            rows = match state {
                State::Due => rows.due(),
                State::Scheduled => rows.scheduled(),
                State::Running => rows.running(),
                State::Failed => rows.failed(),
                State::Skipped => rows.skipped(),
                State::Finished => rows.finished(),
            };
        }
        match self.within {
            Some(time) => rows.attempted_within(time),
            None => rows,
        }
    }
}

impl Paging {
    /// How the core reads such a page of a table.
    fn text_page<'a, DB, T>(&'a self, keys: &'a [TextColumn], table: &'static T) -> TextPage<'a, DB>
    where
        DB: FilterSql,
        T: Table + QueryFragment<DB>,
    {
        let Paging { columns, longest, order, backwards, after, limit } = self;
        let after = after.as_ref().map(|(time, beyond)| (time.clone(), Rc::new(beyond.on(table)) as Rc<_>));
        TextPage { keys, columns, longest: *longest, order: *order, backwards: *backwards, after, limit: *limit }
    }
}

/// Asks the rows of an entity, with the filter or without one.
macro_rules! asked {
    ($rows:expr, |$of:ident| $ask:expr) => {
        match &$rows.filter {
            Some(filter) => {
                let $of = $rows.restrict(Q::queue().filter(filter.on(<Q::Queue as QueueTable>::TABLE)));
                $ask
            }
            None => {
                let $of = $rows.restrict(Q::queue());
                $ask
            }
        }
    };
}

impl<C, Q> Queue<C> for Of<Q>
where
    C: Database
        + LoadsRows<Q, AllFilters>
        + MovesRows<Q, EveryRow>
        + MovesRows<Q, Filtered<FilterOf<Q>>>
        + Explains<Q>
        + ComparesSchema<Q>,
    Q: Queueable + QueueOn<C> + StoredIn<C::Backend> + 'static,
{
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn backlog(&self, connection: &mut C, rows: &Rows) -> Result<Backlog, Error> {
        asked!(rows, |of| of.backlog(connection)).map(|backlog| self.facts.shown_backlog(backlog))
    }

    fn backlog_by(&self, connection: &mut C, rows: &Rows, column: &str) -> Result<By<Backlog>, Error> {
        asked!(rows, |of| of.backlog_by_name(connection, column))
            .map(|by| by.map(|backlog| self.facts.shown_backlog(backlog)))
    }

    fn errors(&self, connection: &mut C, rows: &Rows) -> Result<ErrorReport<String>, Error> {
        asked!(rows, |of| of.errors(connection)).map(with_texts)
    }

    fn errors_by(&self, connection: &mut C, rows: &Rows, column: &str) -> Result<By<ErrorReport<String>>, Error> {
        asked!(rows, |of| of.errors_by_name(connection, column)).map(by_with_texts)
    }

    fn statistics(&self, connection: &mut C, rows: &Rows, interval: Interval) -> Result<Statistics, Error> {
        asked!(rows, |of| of.statistics(connection, interval))
    }

    fn statistics_by(
        &self,
        connection: &mut C,
        rows: &Rows,
        interval: Interval,
        column: &str,
    ) -> Result<By<Statistics>, Error> {
        asked!(rows, |of| of.statistics_by_name(connection, interval, column))
    }

    fn count(&self, connection: &mut C, rows: &Rows) -> Result<i64, Error> {
        asked!(rows, |of| of.count(connection))
    }

    fn figures(&self, connection: &mut C, rows: &Rows, figures: &[Figure], most: i64) -> Result<Figures, Error> {
        asked!(rows, |of| of.figures(connection, figures, most))
    }

    fn recent(&self, connection: &mut C, within: Duration) -> Result<Option<Statistics>, Error> {
        Q::queue().attempted_within(within).read_counted(connection, Interval::Minute)
    }

    fn why(&self, connection: &mut C, rows: &Rows) -> Result<Explanations, Error> {
        asked!(rows, |of| of.explain(connection)).map(|explanations| self.facts.shown_explanations(explanations))
    }

    fn explain(&self, connection: &mut C, key: &Condition) -> Result<Option<(String, Explanation)>, Error> {
        let rows = Q::queue().filter(key.on(<Q::Queue as QueueTable>::TABLE));
        let keys = &self.facts.key_columns();
        let page =
            TextPage { keys, columns: &[], longest: 1, order: PageOrder::Key, backwards: false, after: None, limit: 1 };
        let Some(TextRow { key, parts, .. }) = rows.texts(connection, page)?.into_iter().next() else {
            return Ok(None);
        };
        let explanation = self.facts.shown_explanation(Q::explain(connection, &key)?);
        Ok(Some((joined(&parts), explanation)))
    }

    fn page(&self, connection: &mut C, rows: &Rows, paging: &Paging) -> Result<Vec<Line>, Error> {
        let keys = &self.facts.key_columns();
        let page = paging.text_page(keys, <Q::Queue as QueueTable>::TABLE);
        let rows = asked!(rows, |of| of.texts(connection, page))?;
        Ok(rows.into_iter().map(Line::from).collect())
    }

    fn page_of_group(
        &self,
        connection: &mut C,
        rows: &Rows,
        pattern: &str,
        paging: &Paging,
    ) -> Result<(Vec<Line>, Option<Line>), Error> {
        let keys = &self.facts.key_columns();
        let page = paging.text_page(keys, <Q::Queue as QueueTable>::TABLE);
        let GroupTexts { rows, stopped_at } = asked!(rows, |of| of.texts_of_group(connection, pattern, page))?;
        Ok((rows.into_iter().map(Line::from).collect(), stopped_at.map(Line::from)))
    }

    fn prepare<'a>(&'a self, connection: &mut C, asked: &'a Asked) -> Result<Box<dyn Prepared<C> + 'a>, Error> {
        let Asked { operate, rows, group, figures, author, batch } = asked;
        let author = author.recorded.then_some(author);
        match &rows.filter {
            Some(filter) => {
                let of = Q::queue().filter(filter.on(<Q::Queue as QueueTable>::TABLE));
                let rows = authored(rows.restrict(of).batch(*batch), author);
                let picked = rows.pick(connection, operate, group.as_deref(), figures)?;
                Ok(Box::new(Ready { facts: &self.facts, rows, operate, picked }))
            }
            None => {
                let rows = authored(rows.restrict(Q::queue().all_rows()).batch(*batch), author);
                let picked = rows.pick(connection, operate, group.as_deref(), figures)?;
                Ok(Box::new(Ready { facts: &self.facts, rows, operate, picked }))
            }
        }
    }

    fn pause(&self, connection: &mut C, scope: &Scope, end: Ends, author: &Author) -> Result<(), Error> {
        let mut pause = Pause::<Q>::new(&author.reason, &author.by).stage_named(scope.stage);
        match end {
            Ends::Never => {}
            Ends::At(time) => pause = pause.until(time),
            Ends::After(time) => pause = pause.lasting(time),
        }
        match &scope.value {
            Some((column, value)) => {
                let value = ValueOf(value);
                by_name::pause(connection, Q::SQL, Some((column, &value)), &pause)
            }
            None => Q::pause(connection, pause),
        }
    }

    fn unpause(&self, connection: &mut C, scope: &Scope, author: &Author) -> Result<bool, Error> {
        let value = scope.value.as_ref().map(|(column, value)| (column, ValueOf(value)));
        let part = match (scope.stage, &value) {
            (_, Some((column, value))) => PausedPart::Value(column, value),
            (stage, None) => stage.map_or(PausedPart::Whole, PausedPart::Stage),
        };
        by_name::unpause(connection, Q::SQL, part, Some((author.by.clone(), author.reason.clone())))
    }

    fn limit(&self, connection: &mut C, limiting: Limiting, author: &Author) -> Result<(), Error> {
        let mut limits = Limits::<Q>::new(&author.reason, &author.by);
        if let Some(workers) = limiting.workers {
            limits = limits.workers(workers);
        }
        if let Some(rows) = limiting.at_most {
            limits = limits.at_most(rows);
        }
        if let Some(delay) = limiting.retry_delay {
            limits = limits.retry_delay(delay);
        }
        Q::set_limits(connection, limits)
    }

    fn end_limits(&self, connection: &mut C, author: &Author) -> Result<bool, Error> {
        Q::end_limits_by(connection, &author.by, &author.reason)
    }

    fn check(&self, connection: &mut C) -> Result<Vec<Finding>, Error> {
        Q::check_schema(connection)
    }

    fn examine(&self, connection: &mut C) -> Result<Vec<Ill>, Error> {
        Q::examine(connection)
    }

    fn plans(&self, connection: &mut C) -> Result<BTreeMap<&'static str, String>, Error> {
        plans::<Q, C>(connection)
    }

    fn sizes(&self, connection: &mut C) -> Result<Vec<Size>, Error> {
        sizes::<Q, C>(connection)
    }

    fn migrate(&self, migrations: Migrations<C::Backend>) -> Migrations<C::Backend> {
        migrations.entity::<Q>()
    }
}

fn authored<Q: Queueable, F>(rows: QueueRows<Q, F>, author: Option<&Author>) -> QueueRows<Q, F> {
    match author {
        Some(author) => rows.by(&author.by, &author.reason),
        None => rows,
    }
}

struct Ready<'a, Q: Queueable, F> {
    facts: &'a Facts,
    rows: QueueRows<Q, F>,
    operate: &'a Operate,
    picked: Picked<Q::Key>,
}

impl<C, Q, F> Prepared<C> for Ready<'_, Q, F>
where
    C: Database + MovesRows<Q, F>,
    Q: Queueable + QueueOn<C>,
    F: queue_core::Selection,
{
    fn count(&self) -> usize {
        self.picked.count()
    }

    fn figures(&self) -> &[Option<String>] {
        &self.picked.figures
    }

    fn shape(&self) -> Shape {
        let mut hasher = DefaultHasher::new();
        self.picked.keys().for_each(|key| format!("{key:?}").hash(&mut hasher));
        Shape { count: self.count(), figures: self.picked.figures.clone(), keys: hasher.finish() }
    }

    fn some(&self, connection: &mut C, columns: &[TextColumn], longest: u32, limit: usize) -> Result<Vec<Line>, Error> {
        let columns = (&*self.facts.key_columns(), columns);
        let rows = self.rows.texts_of(connection, &self.picked, columns, longest, limit)?;
        Ok(rows.into_iter().map(Line::from).collect())
    }

    fn work(&self, connection: &mut C, goes_on: &mut dyn FnMut(Progress) -> bool) -> Result<Operated, Error> {
        self.rows.operate(connection, self.operate, &self.picked, goes_on)
    }
}

impl<K> From<TextRow<K>> for Line {
    fn from(row: TextRow<K>) -> Self {
        Line { key: joined(&row.parts), parts: row.parts, time: row.time, values: row.values }
    }
}

fn with_texts<K: std::fmt::Debug>(report: ErrorReport<K>) -> ErrorReport<String> {
    report.map_keys(|key| text_of(&key))
}

fn by_with_texts<K: std::fmt::Debug>(by: By<ErrorReport<K>>) -> By<ErrorReport<String>> {
    by.map(with_texts)
}
