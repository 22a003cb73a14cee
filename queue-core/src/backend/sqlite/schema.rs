//! SQLite's DDL.

use diesel::connection::SimpleConnection;
use diesel::deserialize::QueryableByName;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::sqlite::SqliteConnection;

use super::trigger;
use crate::backend::schema::{
    Accepted, LiveColumn, NeededColumn, Types, compare, find, missing, needed_columns, no_index, until_done,
};
use crate::backend::{Schema, Step, Target};
use crate::error::Finding;

const TYPES: Types = Types {
    status: "TEXT",
    time: "TEXT",
    try_count: "INTEGER",
    message: "TEXT",
    word: "TEXT",
    count: "BIGINT",
    accepted: Accepted {
        status: &["text"],
        // Text affinity: any other would turn a time into a number.
        time: &["text"],
        try_count: &["integer"],
        message: &["text"],
        word: &["text"],
        count: &["bigint", "integer"],
    },
};

impl Schema for SqliteConnection {
    fn steps(target: &Target) -> Vec<Step> {
        let needed = needed_columns(target, &TYPES);
        vec![
            Step {
                name: "columns",
                up: needed.iter().map(|column| add_column(target, column)).collect(),
                down: needed.iter().map(|column| drop_column(target, column.name)).collect(),
                in_transaction: true,
            },
            Step {
                name: "index",
                up: vec![create_index(target)],
                down: vec![drop_index(target)],
                in_transaction: true,
            },
        ]
        .into_iter()
        .chain(trigger::steps(target))
        .collect()
    }

    fn add_queue(&mut self, target: &Target) -> QueryResult<()> {
        until_done(
            self,
            |connection| missing(target, needed_columns(target, &TYPES), &live_columns(connection, target)?),
            |connection, missing| connection.batch_execute(&add_column(target, &missing[0])),
        )?;
        until_done(
            self,
            |connection| Ok(Some(index_is_usable(connection, target)?).filter(|usable| *usable != Some(true))),
            |connection, usable| {
                connection.batch_execute(&if usable.is_none() { create_index(target) } else { drop_index(target) })
            },
        )?;
        trigger::add(self, target)
    }

    fn remove_queue(&mut self, target: &Target) -> QueryResult<()> {
        // A column to which a trigger refers cannot be dropped.
        trigger::remove(self, target)?;
        self.batch_execute(&drop_index(target))?;
        let live = live_columns(self, target)?;
        needed_columns(target, &TYPES)
            .iter()
            .filter(|column| find(&live, column.name).is_some())
            .try_for_each(|column| self.batch_execute(&drop_column(target, column.name)))
    }

    fn check(&mut self, target: &Target) -> QueryResult<Vec<Finding>> {
        let live = live_columns(self, target)?;
        let mut findings = compare(target, needed_columns(target, &TYPES), &live, |column| retype(target, column));
        let index = index_is_usable(self, target)?;
        if findings.is_empty() && index != Some(true) {
            findings.push(no_index(target, &Self::steps(target), index.is_some()));
        }
        if findings.is_empty() {
            findings = trigger::check(self, target)?;
        }
        Ok(findings)
    }
}

/// SQLite cannot alter a column: another takes its name and its values. An indexed one could not be dropped.
fn retype(target: &Target, column: &NeededColumn) -> String {
    let table = &target.table;
    let (name, old) = (table.quoted(column.name), table.quoted(&format!("{}_replaced", column.name)));
    let mut statements = vec![
        format!("ALTER TABLE {table} RENAME COLUMN {name} TO {old}"),
        add_column(target, column),
        format!("UPDATE {} SET {name} = {old} WHERE {old} IS NOT NULL", table),
        format!("ALTER TABLE {table} DROP COLUMN {old}"),
    ];
    if column.name == target.columns.next_attempt_time {
        statements.insert(0, drop_index(target));
    }
    // A trigger would follow the column to its other name, and keep it from being dropped.
    statements.splice(0..0, trigger::drops(target));
    statements.join("; ")
}

fn add_column(target: &Target, column: &NeededColumn) -> String {
    format!("ALTER TABLE {} ADD COLUMN {} {}", target.table, target.table.quoted(column.name), column.definition)
}

fn drop_column(target: &Target, name: &str) -> String {
    format!("ALTER TABLE {} DROP COLUMN {}", target.table, target.table.quoted(name))
}

fn create_index(target: &Target) -> String {
    let table = &target.table;
    let column = table.quoted(target.columns.next_attempt_time);
    // Here the index takes the schema's name and the table none.
    format!(
        "CREATE INDEX {} ON {} ({column}) WHERE {column} IS NOT NULL",
        table.sibling(&target.index()),
        table.quoted(&table.name)
    )
}

fn drop_index(target: &Target) -> String {
    format!("DROP INDEX IF EXISTS {}", target.table.sibling(&target.index()))
}

fn live_columns(connection: &mut SqliteConnection, target: &Target) -> QueryResult<Vec<LiveColumn>> {
    diesel::sql_query(
        "SELECT name, type AS data_type, \"notnull\" = 0 AS nullable, dflt_value AS default_value \
         FROM pragma_table_info(?, ?)",
    )
    .bind::<Text, _>(&target.table.name)
    .bind::<Text, _>(target.table.schema.as_deref().unwrap_or("main"))
    .load(connection)
}

/// `None`: there is no index of that name; `Some(false)`: it does not begin with the right column.
fn index_is_usable(connection: &mut SqliteConnection, target: &Target) -> QueryResult<Option<bool>> {
    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = Nullable<BigInt>)]
        usable: Option<i64>,
    }
    let found: Found =
        diesel::sql_query("SELECT MAX(seqno = 0 AND name = ? COLLATE NOCASE) AS usable FROM pragma_index_info(?, ?)")
            .bind::<Text, _>(target.columns.next_attempt_time)
            .bind::<Text, _>(target.index())
            .bind::<Text, _>(target.table.schema.as_deref().unwrap_or("main"))
            .get_result(connection)?;
    Ok(found.usable.map(|usable| usable != 0))
}
