//! The DDL of MySQL and MariaDB. Both choose the least intrusive algorithm themselves: instant for the columns, in place
//! and without a lock for the index.

use diesel::deserialize::QueryableByName;
use diesel::mysql::{Mysql, MysqlConnection};
use diesel::sql_types::{BigInt, Nullable, Text};

use super::ddl::{live_columns, without_blocking};
use crate::backend::archive;
use crate::backend::mysql::trigger;
use crate::backend::schema::{
    Accepted, Index, NeededColumn, Types, column_steps, compare, find, finding, indexes, missing, needed_columns,
    no_index, until_done,
};
use crate::backend::table_name::TableName;
use crate::backend::target::{Schema, Step, Target};
use crate::error::Finding;

use diesel::prelude::*;

const TYPES: Types = Types {
    // utf8mb4, whatever the table's own character set is: a failure's text may contain any character.
    status: "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    time: "DATETIME(6)",
    try_count: "INT",
    message: "MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    word: "VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    count: "BIGINT",
    accepted: Accepted {
        status: &["varchar"],
        time: &["datetime"],
        try_count: &["int"],
        message: &["mediumtext", "longtext"],
        word: &["varchar"],
        count: &["bigint"],
    },
};

impl Schema for MysqlConnection {
    fn steps(target: &Target) -> Vec<Step> {
        let needed = needed_columns(target, &TYPES);
        let columns = |(name, columns): (_, &[NeededColumn])| Step {
            name,
            up: vec![add_columns(target, columns)],
            down: vec![drop_columns(target, columns.iter().map(|column| column.name))],
            in_transaction: false,
        };
        let index = |index: &Index| Step {
            name: index.step,
            up: index
                .pending_flag
                .iter()
                .map(|pending_flag| add_pending_flag(target, pending_flag))
                .chain([create_index(target, index)])
                .collect(),
            down: [drop_index(target, index)]
                .into_iter()
                .chain(
                    index
                        .pending_flag
                        .iter()
                        .map(|pending_flag| drop_columns(target, [pending_flag.as_str()].into_iter())),
                )
                .collect(),
            in_transaction: false,
        };
        column_steps(&needed)
            .map(columns)
            .chain(indexes::<Mysql>(target).iter().map(index))
            .chain(trigger::steps(target))
            .chain(archive::step::<Self>(target))
            .collect()
    }

    fn add_queue(&mut self, target: &Target) -> QueryResult<()> {
        until_done(
            self,
            |connection| missing(target, needed_columns(target, &TYPES), &live_columns(connection, target)?),
            |connection, missing| without_blocking(connection, &add_columns(target, missing)),
        )?;
        indexes::<Mysql>(target).iter().try_for_each(|index| {
            until_done(
                self,
                |connection| {
                    let lacking = lacking(connection, target, index)?;
                    Ok(Some(lacking).filter(|lacking| !lacking.is_empty()))
                },
                |connection, lacking| without_blocking(connection, &lacking[0]),
            )
        })?;
        trigger::add(self, target)?;
        archive::add(self, target)
    }

    fn remove_queue(&mut self, target: &Target) -> QueryResult<()> {
        // A column that a trigger refers to cannot be dropped.
        trigger::remove(self, target)?;
        // The ordered index first: its pending flag is computed from a column that the other steps drop.
        for index in indexes::<Mysql>(target).iter().rev() {
            if index_is_usable(self, target, index)?.is_some() {
                without_blocking(self, &drop_index(target, index))?;
            }
            let live = live_columns(self, target)?;
            for pending_flag in index.pending_flag.iter().filter(|pending_flag| find(&live, pending_flag).is_some()) {
                without_blocking(self, &drop_columns(target, [pending_flag.as_str()].into_iter()))?;
            }
        }
        let live = live_columns(self, target)?;
        let needed = needed_columns(target, &TYPES);
        let present: Vec<_> =
            needed.iter().map(|column| column.name).filter(|name| find(&live, name).is_some()).collect();
        if !present.is_empty() {
            without_blocking(self, &drop_columns(target, present.into_iter()))?;
        }
        Ok(())
    }

    fn copied_columns(&mut self, table: &TableName) -> QueryResult<Vec<String>> {
        archive::copied_columns(self, table)
    }

    fn check(&mut self, target: &Target) -> QueryResult<Vec<Finding>> {
        let live = live_columns(self, target)?;
        let mut findings = compare(target, needed_columns(target, &TYPES), &live, |column| retype(target, column));
        let complete = findings.is_empty();
        for index in indexes::<Mysql>(target).iter().filter(|_| complete) {
            let mend = lacking(self, target, index)?;
            if !mend.is_empty() {
                findings.push(no_index(target, index, &mend));
            }
        }
        if findings.is_empty() {
            findings = trigger::check(self, target)?;
        }
        findings.extend(binary_log(self, target)?);
        if let Some(engine) = engine(self, target)?.filter(|engine| !engine.eq_ignore_ascii_case("InnoDB")) {
            let problem = format!("the table {} uses the engine {engine}, which has no transactions", target.table);
            findings.push(finding(target, problem, format!("ALTER TABLE {} ENGINE = InnoDB", target.table)));
        }
        findings.extend(archive::check(self, target)?);
        Ok(findings)
    }
}

/// Nulls can be replaced only when the type is right, and must be replaced before the column refuses them.
fn retype(target: &Target, column: &NeededColumn) -> String {
    let NeededColumn { definition, sql_type, default, .. } = column;
    let (table, name) = (&target.table, target.table.quoted(column.name));
    let modify = |definition| format!("ALTER TABLE {table} MODIFY COLUMN {name} {definition}");
    match default {
        None => modify(*sql_type),
        Some(default) => {
            let fill = format!("UPDATE {table} SET {name} = {default} WHERE {name} IS NULL");
            [modify(*sql_type), fill, modify(definition)].join("; ")
        }
    }
}

fn add_columns(target: &Target, columns: &[NeededColumn]) -> String {
    let adds: Vec<_> = columns
        .iter()
        .map(|column| format!("ADD COLUMN {} {}", target.table.quoted(column.name), column.definition))
        .collect();
    format!("ALTER TABLE {} {}", target.table, adds.join(", "))
}

fn drop_columns<'a>(target: &Target, names: impl Iterator<Item = &'a str>) -> String {
    let drops: Vec<_> = names.map(|name| format!("DROP COLUMN {}", target.table.quoted(name))).collect();
    format!("ALTER TABLE {} {}", target.table, drops.join(", "))
}

/// Adds the column that is 1 in pending rows and null in others. The server stores nothing but the index's entries.
/// Queries that do not name the column do not see it, if the server can hide a column (MariaDB 10.3, MySQL 8.0.23).
fn add_pending_flag(target: &Target, pending_flag: &str) -> String {
    let table = &target.table;
    format!(
        "ALTER TABLE {table} ADD COLUMN {} TINYINT AS (IF({} IS NULL, NULL, 1)) VIRTUAL /*!80023 INVISIBLE */ \
         /*M!100303 INVISIBLE */",
        table.quoted(pending_flag),
        table.quoted(target.columns.next_attempt_time)
    )
}

fn create_index(target: &Target, index: &Index) -> String {
    format!("CREATE INDEX {} ON {} ({})", target.table.quoted(&index.name), target.table, index.columns)
}

fn drop_index(target: &Target, index: &Index) -> String {
    format!("DROP INDEX {} ON {}", target.table.quoted(&index.name), target.table)
}

/// Returns the statements that are still to be run for an index.
fn lacking(connection: &mut MysqlConnection, target: &Target, index: &Index) -> QueryResult<Vec<String>> {
    let usable = index_is_usable(connection, target, index)?;
    if usable == Some(true) {
        return Ok(Vec::new());
    }
    let live = live_columns(connection, target)?;
    let pending_flag = index
        .pending_flag
        .iter()
        .filter(|pending_flag| find(&live, pending_flag).is_none())
        .map(|pending_flag| add_pending_flag(target, pending_flag));
    if usable.is_none()
        && let Some(other) = same_index(connection, target, index)?
    {
        // The index gets its own name, because a claim names it.
        let (table, name) = (&target.table, target.table.quoted(&index.name));
        return Ok(vec![format!("ALTER TABLE {table} RENAME INDEX {} TO {name}", table.quoted(&other))]);
    }
    let drop = usable.map(|_| drop_index(target, index));
    Ok(drop.into_iter().chain(pending_flag).chain([create_index(target, index)]).collect())
}

/// `None`: there is no index of that name; `Some(false)`: it does not begin with the right column.
fn index_is_usable(connection: &mut MysqlConnection, target: &Target, index: &Index) -> QueryResult<Option<bool>> {
    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = Nullable<BigInt>)]
        usable: Option<i64>,
    }
    let found: Found = diesel::sql_query(
        "SELECT CAST(MAX(SEQ_IN_INDEX = 1 AND COLUMN_NAME = ?) AS SIGNED) AS usable FROM information_schema.STATISTICS \
         WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND INDEX_NAME = ?",
    )
    .bind::<Text, _>(index.first())
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .bind::<Text, _>(&index.name)
    .get_result(connection)?;
    Ok(found.usable.map(|usable| usable != 0))
}

/// Finds a binary log of statements: InnoDB refuses every write in READ COMMITTED if the server keeps one (1665).
fn binary_log(connection: &mut MysqlConnection, target: &Target) -> QueryResult<Option<Finding>> {
    let is_of_statements = "CAST(@@GLOBAL.log_bin = 1 AND @@SESSION.binlog_format = 'STATEMENT' AS SIGNED)";
    let is_of_statements: i64 = diesel::select(diesel::dsl::sql::<BigInt>(is_of_statements)).get_result(connection)?;
    let problem =
        "the server's binlog_format is STATEMENT, with which it refuses every write of a transaction in READ COMMITTED";
    let mend = "SET GLOBAL binlog_format = 'ROW'";
    Ok((is_of_statements != 0).then(|| finding(target, problem.to_owned(), mend.to_owned())))
}

/// Finds an index under another name on the same columns, as a copy of a table has it.
fn same_index(connection: &mut MysqlConnection, target: &Target, index: &Index) -> QueryResult<Option<String>> {
    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = Text)]
        name: String,
    }
    let found: Option<Found> = diesel::sql_query(
        "SELECT CAST(INDEX_NAME AS CHAR) AS name FROM information_schema.STATISTICS \
         WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND INDEX_TYPE = 'BTREE' \
         GROUP BY INDEX_NAME HAVING GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX SEPARATOR '\\n') = ? \
         AND SUM(SUB_PART IS NOT NULL OR COLLATION <> 'A') = 0 LIMIT 1",
    )
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .bind::<Text, _>(index.names().join("\n"))
    .get_result(connection)
    .optional()?;
    Ok(found.map(|found| found.name))
}

fn engine(connection: &mut MysqlConnection, target: &Target) -> QueryResult<Option<String>> {
    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = Nullable<Text>)]
        engine: Option<String>,
    }
    let found: Option<Found> = diesel::sql_query(
        "SELECT CAST(ENGINE AS CHAR) AS engine FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?",
    )
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .get_result(connection)
    .optional()?;
    Ok(found.and_then(|found| found.engine))
}
