//! What is accepted, and the SQL of each database with its values.

use std::fmt::Write;

use diesel::{Connection, debug_query};

use crate::db::{Conn, NAME};
use crate::table::{payments, read};

/// Each kind of condition, and each kind of column.
const ACCEPTED: &[&str] = &[
    "company_id = 7",
    "COMPANY_ID != -7",
    "company_id <> +7",
    "company_id in (1,2 , 3)",
    "company_id NOT In (1)",
    "company_id between 1 and 3 and tiny < 127",
    "company_id not between -2147483648 and 2147483647",
    "id >= -9223372036854775808",
    "visits <= 18446744073709551615",
    "ratio > 1.5 or ratio < -2e-3 or ratio = 3",
    "amount = 10.50",
    "amount in (-0.000000000000000000000000000001, 12345678901234567890)",
    "name = 'it''s; DROP TABLE payments --'",
    "name > 'a' and name like 'O\\_%'",
    "name not like '%50\\%%'",
    "company_id like '33%'",
    "is_paid",
    "not is_paid or is_paid = false",
    "is_paid is null and company_id is not null",
    "booked_on = '2026-03-01' or booked_on < now() - 30d",
    "opens_at between '08:30' and '17:30:15.5'",
    "created > '2026-03-01T14:00:00+02:00'",
    "created > '2026-03-01 12:30'",
    "next_attempt_time < now()",
    "next_attempt_time < now() - 2h",
    "next_attempt_time > now() + 1d12h - 500ms",
    "next_attempt_time between '2026-02-28' and '2026-03-01T12:00:00.123456789Z'",
    "reference = '6F1C1E9A-58f2-4c2c-9d0e-3f0a4d1b2c3d'",
    "reference like '6f1c%'",
    "hash = x'0aFF' or hash = '6f1c1e9a-58f2-4c2c-9d0e-3f0a4d1b2c3d'",
    "details like '%\"a\"%' and details is not null",
    "kind = 'card' or kind in ('cash', 'gift')",
    "kind like 'ca%'",
    "address = '10.0.0.1/32' and address not in ('::1/128')",
    "seen between now() - 1h and '2026-03-01'",
    "status in ('FAILED', 'SKIPPED') and status <> 'SUCCESS'",
    "\"Größe \"\"x\"\"\" = 1 and `like` = 'x' and \"like\" = 'y' and mixed = 1 and \"Mixed\" = 2",
    "company_id = 1 or company_id = 2 and not company_id = 3 or (company_id = 4 or company_id = 5) and company_id = 6",
    "not (company_id = 1 and (name = 'a'))",
    "\n company_id\t=\r\n1 ",
];

#[test]
fn each_condition_has_its_sql_and_its_values() {
    let mut seen = String::new();
    for text in ACCEPTED {
        let condition = read(text).unwrap_or_else(|refused| panic!("{refused}"));
        let filter = condition.on(&payments::table);
        let sql = debug_query::<<Conn as Connection>::Backend, _>(&filter);
        writeln!(seen, "{}\n  is  {condition}\n  sql {sql}", text.replace(['\n', '\t', '\r'], " ")).unwrap();
    }
    insta::assert_snapshot!(NAME, seen);
}

#[test]
fn what_a_condition_says_of_itself_is_the_same_condition() {
    for text in ACCEPTED {
        let condition = read(text).unwrap_or_else(|refused| panic!("{refused}"));
        assert_eq!(read(&condition.to_string()), Ok(condition));
    }
}
