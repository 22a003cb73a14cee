//! Which columns an index takes as a whole: MySQL refuses one that is too long, and MariaDB may make it of the beginnings of the
//! values, along which no claim can walk. And which indexes of the queue a table has.

use diesel::deserialize::QueryableByName;
use diesel::mysql::Mysql;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

use super::clients::MysqlSession;
use crate::backend::schema::{IndexKey, Target, finding, indexes, literal};
use crate::backend::statement::One;
use crate::error::Finding;

use diesel::prelude::*;

/// The most bytes that the columns of an index may have together, with InnoDB's usual format and size of a page.
/// <https://dev.mysql.com/doc/refman/8.4/en/innodb-limits.html>
const LONGEST_ENTRY: i64 = 3072;

/// The most bytes of one column of an index in the formats of old tables, COMPACT and REDUNDANT.
const LONGEST_OLD_VALUE: i64 = 767;

/// Of the status: 20 characters of utf8mb4.
const STATUS_BYTES: i64 = 80;

/// Of a stage: 191 such characters.
const STAGE_BYTES: i64 = 764;

/// Finds a column that makes an index of the queue longer than the server allows.
pub(super) fn too_long(connection: &mut impl MysqlSession, target: &Target) -> QueryResult<Option<Finding>> {
    let columns = indexable(connection, target)?;
    let is_old = columns.iter().any(|column| column.is_old);
    let bytes = |column: &&Indexable| column.bytes.unwrap_or(i64::MAX);
    let too_long = indexes::<Mysql>(target).iter().find_map(|index| {
        let of = |key: &IndexKey| columns.iter().find(|column| column.name.eq_ignore_ascii_case(&key.name));
        let longest = index.keys.iter().filter_map(of).max_by_key(bytes);
        if let Some(column) = longest.filter(|column| is_old && bytes(column) > LONGEST_OLD_VALUE) {
            return Some((column, LONGEST_OLD_VALUE));
        }
        // A column that is not there yet is the queue's: a time, a flag, the status or the stage.
        let stage = target.options.stages.map_or("", |stages| stages.column);
        let texts = [(target.columns.status, STATUS_BYTES), (stage, STAGE_BYTES)];
        let new = |key: &IndexKey| texts.iter().find(|(name, _)| *name == key.name).map_or(8, |(_, bytes)| *bytes);
        let each = index.keys.iter().map(|key| of(key).as_ref().map_or_else(|| new(key), bytes));
        let sum = each.fold(0, i64::saturating_add);
        longest.filter(|_| sum > LONGEST_ENTRY).map(|column| (column, LONGEST_ENTRY))
    });
    Ok(too_long.map(|(column, most)| {
        let (table, name) = (&target.table, target.table.quoted(&column.name));
        let problem = format!(
            "the column {} of {table} is of type {}, whose values may be too long for an index: one takes {most} bytes",
            column.name, column.whole_type
        );
        let mend = match &column.shorter {
            // It fits into an index of a table of today's format.
            _ if most == LONGEST_OLD_VALUE && bytes(&column) <= LONGEST_ENTRY => {
                format!("ALTER TABLE {table} ROW_FORMAT = DYNAMIC")
            }
            Some(shorter) => format!("ALTER TABLE {table} MODIFY COLUMN {name} {shorter}"),
            None => "name a column of another type".to_owned(),
        };
        finding(target, problem, mend)
    }))
}

/// A column as far as indexes care.
#[derive(QueryableByName)]
struct Indexable {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    whole_type: String,
    /// The most bytes of a value. `None`: no index takes whole values of its type.
    #[diesel(sql_type = Nullable<BigInt>)]
    bytes: Option<i64>,
    /// The definition of such a column with values that fit into an index.
    #[diesel(sql_type = Nullable<Text>)]
    shorter: Option<String>,
    /// Whether the table has a format of old.
    #[diesel(sql_type = Bool)]
    is_old: bool,
}

fn indexable(connection: &mut impl MysqlSession, target: &Target) -> QueryResult<Vec<Indexable>> {
    diesel::sql_query(
        "SELECT CAST(COLUMN_NAME AS CHAR) AS name, CAST(COLUMN_TYPE AS CHAR) AS whole_type, \
         CAST(CASE WHEN DATA_TYPE LIKE '%text' OR DATA_TYPE LIKE '%blob' OR DATA_TYPE = 'json' THEN NULL \
         ELSE COALESCE(CHARACTER_OCTET_LENGTH, 8) END AS SIGNED) AS bytes, \
         CAST(CONCAT(CASE WHEN DATA_TYPE LIKE '%char' OR DATA_TYPE LIKE '%text' THEN CONCAT('VARCHAR(191) COLLATE ', COLLATION_NAME) \
         WHEN DATA_TYPE LIKE '%binary' OR DATA_TYPE LIKE '%blob' THEN 'VARBINARY(191)' END, \
         IF(IS_NULLABLE = 'YES', '', ' NOT NULL'), \
         CASE WHEN COLUMN_DEFAULT IS NULL OR VERSION() LIKE '%MariaDB%' AND COLUMN_DEFAULT = 'NULL' THEN '' \
         WHEN VERSION() LIKE '%MariaDB%' OR DATA_TYPE LIKE '%binary' THEN CONCAT(' DEFAULT ', COLUMN_DEFAULT) \
         WHEN EXTRA LIKE '%DEFAULT_GENERATED%' THEN CONCAT(' DEFAULT (', REPLACE(COLUMN_DEFAULT, CHAR(92, 39 USING utf8mb4), ''''), ')') \
         ELSE CONCAT(' DEFAULT ', QUOTE(COLUMN_DEFAULT)) END, \
         IF(COLUMN_COMMENT = '', '', CONCAT(' COMMENT ', QUOTE(COLUMN_COMMENT)))) AS CHAR) AS shorter, \
         COALESCE(t.ROW_FORMAT, '') IN ('Compact', 'Redundant') AS is_old \
         FROM information_schema.COLUMNS JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME) \
         WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?",
    )
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .load(connection)
}

/// Finds the queue's indexes: those with a name of today, and those on columns of the queue that serve only it.
pub(super) fn live_indexes(
    connection: &mut impl MysqlSession,
    target: &Target,
    computed: &[String],
) -> QueryResult<Vec<One<Text, String>>> {
    let of_today: Vec<_> = indexes::<Mysql>(target).iter().map(|index| literal(&index.name)).collect();
    let next = target.columns.next_attempt_time;
    let columns: Vec<_> = computed.iter().map(String::as_str).chain([next]).map(literal).collect();
    diesel::sql_query(format!(
        "SELECT DISTINCT CAST(INDEX_NAME AS CHAR) AS name FROM information_schema.STATISTICS \
         WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND (INDEX_NAME IN ({}) \
         OR LEFT(INDEX_NAME, 10) = 'queueable_' AND COLUMN_NAME IN ({}))",
        of_today.join(", "),
        columns.join(", ")
    ))
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .load(connection)
}

/// Writes the statement after which the planner may use an index again; nothing if it may already.
pub(super) fn shown(connection: &mut impl MysqlSession, target: &Target, index: &str) -> QueryResult<Vec<String>> {
    let hidden: One<BigInt, i64> = diesel::sql_query(
        "SELECT COUNT(*) AS hidden FROM information_schema.STATISTICS \
         WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND INDEX_NAME = ? \
         AND (FALSE /*!80000 OR IS_VISIBLE = 'NO' */ /*M!100600 OR IGNORED = 'YES' */)",
    )
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .bind::<Text, _>(index)
    .get_result(connection)?;
    let alter = format!("ALTER TABLE {} ALTER INDEX {}", target.table, target.table.quoted(index));
    let show = (hidden.0 > 0).then(|| format!("{alter} /*!80000 VISIBLE */ /*M!100600 NOT IGNORED */"));
    Ok(show.into_iter().collect())
}
