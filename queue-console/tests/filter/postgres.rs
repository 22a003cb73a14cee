//! What is PostgreSQL's own: its types, and that conditions use indexes.

use diesel::connection::SimpleConnection;
use diesel::debug_query;
use diesel::pg::Pg;
use diesel::prelude::*;
use queue_core::internals::backend::Holds;

use crate::db::{Conn, Database};
use crate::rows::{condition, picked, things};

pub(crate) const REFERENCE: Holds = Holds::Uuids;

pub(crate) const COLUMNS: &[(&str, Holds)] = &[
    ("email", Holds::Texts),
    ("code", Holds::Texts),
    ("short", Holds::Texts),
    ("color", Holds::Others),
    ("address", Holds::Printed),
    ("tags", Holds::Printed),
    ("lasts", Holds::Printed),
    ("score", Holds::Integers(4)),
    ("binary", Holds::Json),
];

pub(crate) const THINGS: &str = r#"
    CREATE EXTENSION IF NOT EXISTS citext;
    CREATE TYPE kinds AS ENUM ('gift', 'card', 'cash');
    CREATE DOMAIN codes AS varchar(8) CHECK (VALUE ~ '^[A-Z]+$');
    CREATE DOMAIN colors AS kinds;
    CREATE DOMAIN scores AS integer CHECK (VALUE >= 0);
    CREATE TABLE things (id bigint PRIMARY KEY, company_id integer NOT NULL, tiny smallint, ratio double precision,
        amount numeric(20, 4), name text, is_paid boolean, booked_on date, opens_at time, created timestamp,
        due timestamptz, hash bytea, reference uuid, details json, kind kinds, email citext, code codes, short char(5),
        color colors, score scores, "binary" jsonb, address inet, tags text[], lasts interval);
    INSERT INTO things VALUES
        (1, 7, 1, 1.5, 10.5, 'O''Brien', true, '2026-03-01', '08:30', '2026-03-01 12:00', '2026-03-01 12:00Z',
            '\x0a0b', '6f1c1e9a-58f2-4c2c-9d0e-3f0a4d1b2c3d', '{"a": 1}', 'card', 'Ann@Example.org', 'ABC', 'ab',
            'card', 5, '{"a": 1}', '10.0.0.1', '{a,b}', '1 hour'),
        (2, 8, -1, -2, 0.1, 'naïve 漢字 "quoted" \ 100% a_b 🙂', false, '2026-02-28', '17:30:15.5',
            '2026-03-01 12:00:00.5', '2026-03-01 13:00Z', '\x00ff', '00000000-0000-0000-0000-000000000001',
            '{"b": 2}', 'cash', 'bob@example.org', 'XYZ', 'xy', 'cash', 0, '[]', '::1', '{}', '1 day');
    INSERT INTO things (id, company_id) VALUES (3, 7);
    INSERT INTO things VALUES
        (4, -2147483648, 127, 1e300, 9999999999999999.9999, '', false, '1970-01-01', '00:00', '1970-01-01',
            '1970-01-01Z', '', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '{}', 'gift', '', 'Z', '', 'gift', 9, '{}', '10.0.0.0/8', '{b}', '0');
"#;

pub(crate) const PICKED: &[(&str, &[i64])] = &[
    ("amount > 9999999999999999.9998", &[4]),
    ("reference < '10000000-0000-0000-0000-000000000000'", &[2]),
    ("reference like '6f1c%'", &[1]),
    ("email = 'ANN@example.ORG'", &[1]),
    ("email in ('ann@example.org', 'BOB@example.org')", &[1, 2]),
    ("email like 'ANN@%'", &[1]),
    ("code = 'ABC' or code > 'Y'", &[1, 4]),
    ("code = 'no such code'", &[]),
    ("code like '_B%'", &[1]),
    ("short = 'ab' or short = 'xy   '", &[1, 2]),
    // No operator takes a domain over an enumeration and a text, but a pattern without % is as good.
    ("color like 'card'", &[1]),
    ("address = '10.0.0.1/32'", &[1]),
    ("address in ('10.0.0.1/32', '::1/128') or address is null", &[1, 2, 3]),
    ("tags = '{a,b}'", &[1]),
    ("tags not like '%a%'", &[2, 4]),
    ("lasts <> '01:00:00'", &[2, 4]),
    ("score >= 5", &[1, 4]),
    ("\"binary\" like '{\"a\"%'", &[1]),
    ("name like 'o%'", &[]),
];

/// Enumerations, addresses, lists and intervals are not sorted as their texts.
pub(crate) const SORTED: &[(&str, [&str; 3])] = &[("kind", ["'card'", "'cash'", "'gift'"])];

#[test]
fn a_value_that_the_enumeration_does_not_have_is_an_error_of_the_server() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(THINGS).unwrap();
    let query = things::table.filter(condition("kind = 'elephant'").on(&things::table)).count();
    let error = query.get_result::<i64>(&mut connection).unwrap_err().to_string();
    assert_eq!(error, "invalid input value for enum kinds: \"elephant\"");
}

#[test]
fn a_condition_is_searched_along_an_index() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(THINGS).unwrap();
    connection
        .batch_execute(
            "INSERT INTO things (id, company_id, tiny, amount, name, booked_on, created, due, hash, reference, kind, email, code)
             SELECT i, i, i, i, 'name ' || i, date '2026-01-01' + i, timestamp '2026-01-01' + i * interval '1 hour',
                 timestamptz '2026-01-01Z' + i * interval '1 hour', int4send(i), gen_random_uuid(),
                 CASE WHEN i < 110 THEN 'cash' ELSE 'gift' END::kinds, i || '@example.org', 'A'
             FROM generate_series(100, 10000) AS i;",
        )
        .unwrap();
    for (column, text) in [
        ("company_id", "company_id = 7777"),
        ("company_id", "company_id in (7777, 8888)"),
        ("company_id", "company_id between 1 and 110"),
        ("tiny", "tiny = 7777"),
        ("amount", "amount = 7777.0"),
        ("name", "name = 'name 7777'"),
        ("booked_on", "booked_on = '2026-06-01'"),
        ("created", "created < '2026-01-06'"),
        ("due", "due < '2026-01-06'"),
        ("hash", "hash = x'00000077'"),
        ("reference", "reference = '6f1c1e9a-58f2-4c2c-9d0e-3f0a4d1b2c3d'"),
        ("kind", "kind = 'cash'"),
        ("kind", "kind in ('cash', 'card')"),
        ("email", "email = '7777@EXAMPLE.org'"),
        ("code", "code = 'XYZ'"),
    ] {
        connection.batch_execute(&format!("CREATE INDEX found ON things ({column}); ANALYZE things")).unwrap();
        let plan = plan(&mut connection, text);
        assert!(plan.contains("Index Cond: "), "{text}:\n{plan}");
        assert!(!picked(&mut connection, text).is_empty(), "{text}");
        connection.batch_execute("DROP INDEX found").unwrap();
    }
}

/// Shows how the server runs a condition with its values bound.
fn plan(connection: &mut Conn, text: &str) -> String {
    use diesel::query_builder::{AstPass, QueryFragment, QueryId};
    use diesel::sql_types::Text;

    struct Explain<Q>(Q);

    impl<Q: QueryFragment<Pg>> QueryFragment<Pg> for Explain<Q> {
        fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
            out.push_sql("EXPLAIN SELECT id FROM things WHERE ");
            self.0.walk_ast(out)
        }
    }

    impl<Q> QueryId for Explain<Q> {
        type QueryId = ();
        const HAS_STATIC_QUERY_ID: bool = false;
    }

    impl<Q> diesel::query_builder::Query for Explain<Q> {
        type SqlType = Text;
    }

    impl<Q> RunQueryDsl<Conn> for Explain<Q> {}

    let filter = condition(text).on(&things::table);
    let shown = debug_query::<Pg, _>(&filter).to_string();
    let lines = Explain(filter).load::<String>(connection).unwrap_or_else(|error| panic!("{shown}: {error}"));
    lines.join("\n")
}
