//! Pages of a selection's rows.

use serde::{Deserialize, Serialize};

use super::dry_run::PreviewedRow;
use super::queue::{QueueRows, Selection};
use super::read::LoadsRows;
use crate::entity::Entity;
use crate::error::Error;
use crate::statement::{PageFrom, PageOrder, beyond};

/// The largest number of rows on a page.
const LONGEST_PAGE: u32 = 1_000;

/// A part of the rows of a selection, in an order: see [`QueueRows::page`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Page<Q, K> {
    /// The rows.
    pub rows: Vec<PreviewedRow<Q>>,
    /// Where the next page begins; `None`: there are no more rows.
    pub next: Option<Cursor<K>>,
}

/// The place in an order at which a page of rows begins: at the beginning, or after a row. It is a value of its own, which can
/// be kept, sent and read back.
///
/// `K` is the type of the entity's primary key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cursor<K> {
    order: PageOrder,
    /// The row's time as the database writes it, if the order is by a time and it has one, and its key.
    last: Option<(Option<String>, K)>,
}

impl<K> Cursor<K> {
    /// Begins with the row whose last attempt is the latest. Rows without an attempt, or with an odd time (see `OddTimes`),
    /// come last, those with the highest keys first.
    pub fn latest_attempt() -> Self {
        Cursor { order: PageOrder::LatestAttempt, last: None }
    }

    /// Begins with the row whose next attempt is the soonest. Rows that are not pending, or have an odd time, come last.
    pub fn next_attempt() -> Self {
        Cursor { order: PageOrder::NextAttempt, last: None }
    }

    /// Begins with the lowest primary key.
    pub fn key() -> Self {
        Cursor { order: PageOrder::Key, last: None }
    }

    /// Begins with the highest primary key.
    pub fn key_descending() -> Self {
        Cursor { order: PageOrder::KeyDescending, last: None }
    }
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Reads the next rows after a cursor: at most `limit`, 1 to 1,000.
    ///
    /// It costs the same for every page, and a page goes on where the last one ended although rows were inserted or deleted
    /// meanwhile, or the cursor's own row. Rows that cannot be decoded are shown as far as they can be. The rows of a page
    /// without a readable key are the last that are read.
    ///
    /// An index serves these: by the time of the next attempt all rows that are [`pending`](Self::pending), [`due`](Self::due),
    /// [`scheduled`](Self::scheduled) or [`running`](Self::running); by the latest attempt those that are
    /// [`failed`](Self::failed) or [`skipped`](Self::skipped), if the entity has `#[queue(report_index)]`; by key all rows. A
    /// domain filter needs an index of the application's own if it picks few rows. Everything else reads the whole table for
    /// each page.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # use queueable::report::Cursor;
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)]
    /// # #[queue(report_index)]
    /// # struct Payment { id: i64, company_id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// # connection.batch_execute("INSERT INTO payments (company_id, status) VALUES (3345, 'FAILED'), (3345, 'FAILED'), (1, 'FAILED')")?;
    /// let failed = Payment::queue().filter(payments::company_id.eq(3345)).failed();
    /// let first = failed.page(&mut connection, &Cursor::latest_attempt(), 1)?;
    /// let second = failed.page(&mut connection, &first.next.expect("there is another row"), 1)?;
    /// assert_eq!((second.rows[0].key.as_str(), second.next), ("1", None));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn page<C: LoadsRows<Q, F>>(
        &self,
        connection: &mut C,
        cursor: &Cursor<Q::Key>,
        limit: u32,
    ) -> Result<Page<Q, Q::Key>, Error> {
        let limit = limit.clamp(1, LONGEST_PAGE) as usize;
        let order = cursor.order;
        let begins_untimed = !order.is_by_key() && cursor.last.as_ref().is_some_and(|(time, _)| time.is_none());
        let mut rows = Vec::new();
        for timed in [true, false] {
            let is_read = if timed { begins_untimed } else { order.is_by_key() };
            if !is_read && rows.len() <= limit {
                // One more, which shows whether there is another page.
                let left = limit + 1 - rows.len();
                let after = cursor.last.as_ref().filter(|(time, _)| order.is_by_key() || time.is_some() == timed);
                let after = after.map(|(time, key)| {
                    let is_key = C::are_keys(std::slice::from_ref(key)).remove(0);
                    (time.clone(), beyond(order.descends(false), C::after(key), is_key))
                });
                let from = PageFrom { order, backwards: false, timed, after };
                let page = connection.load_page(C::condition(self, &self.terms.states), from, left)?;
                rows.extend(page.into_iter().map(|row| (timed, row)));
            }
        }
        let is_last = rows.len() <= limit;
        rows.truncate(limit);
        let last = rows.iter().rev().find_map(|(timed, (key, time, ..))| {
            let (key,) = key.0.as_ref().ok()?;
            Some((timed.then(|| time.clone()), key.clone()))
        });
        let next = last.filter(|_| !is_last).map(|last| Cursor { order, last: Some(last) });
        Ok(Page { rows: rows.into_iter().map(|(_, row)| row.into()).collect(), next })
    }

    /// Reads the keys, those first that are due first, for the tests of applications. A key that cannot be read is left out.
    #[doc(hidden)]
    pub fn keys<C: LoadsRows<Q, F>>(&self, connection: &mut C) -> Result<Vec<Q::Key>, Error> {
        self.first_keys(connection, i64::MAX as usize)
    }

    /// Reads at most so many of them.
    #[doc(hidden)]
    pub fn first_keys<C: LoadsRows<Q, F>>(&self, connection: &mut C, limit: usize) -> Result<Vec<Q::Key>, Error> {
        let from = PageFrom { order: PageOrder::NextAttempt, backwards: false, timed: true, after: None };
        let rows = connection.load_page(C::condition(self, &self.terms.states), from, limit)?;
        Ok(rows.into_iter().filter_map(|(key, ..)| key.0.ok()).map(|(key,)| key).collect())
    }
}
