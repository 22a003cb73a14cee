//! What is MySQL's and MariaDB's own.

use diesel::connection::SimpleConnection;
use queue_core::internals::backend::Holds;

use crate::db::Database;
use crate::rows::picked;

pub(crate) const REFERENCE: Holds = Holds::Bytes;

pub(crate) const COLUMNS: &[(&str, Holds)] = &[("visits", Holds::Unsigned(8)), ("code", Holds::Texts)];

pub(crate) const THINGS: &str = r#"
    CREATE TABLE things (id bigint PRIMARY KEY, company_id int NOT NULL, tiny smallint, ratio double,
        amount decimal(20, 4), name varchar(100) COLLATE utf8mb4_general_ci, is_paid boolean, booked_on date,
        opens_at time(6), created datetime(6), due datetime(6), hash varbinary(8), reference binary(16), details json,
        kind enum('gift', 'card', 'cash'), visits bigint unsigned, code varchar(10) COLLATE utf8mb4_bin);
    INSERT INTO things VALUES
        (1, 7, 1, 1.5, 10.5, 'O''Brien', true, '2026-03-01', '08:30', '2026-03-01 12:00', '2026-03-01 12:00',
            x'0a0b', x'6f1c1e9a58f24c2c9d0e3f0a4d1b2c3d', '{"a": 1}', 'card', 18446744073709551615, 'ABC'),
        (2, 8, -1, -2, 0.1, 'naïve 漢字 "quoted" \\ 100% a_b 🙂', false, '2026-02-28', '17:30:15.5',
            '2026-03-01 12:00:00.5', '2026-03-01 13:00', x'00ff', x'00000000000000000000000000000001',
            '{"b": 2}', 'cash', 0, 'abc');
    INSERT INTO things (id, company_id) VALUES (3, 7);
    INSERT INTO things VALUES
        (4, -2147483648, 127, 1e300, 9999999999999999.9999, '', false, '1970-01-01', '00:00', '1970-01-01',
            '1970-01-01', '', x'ffffffffffffffffffffffffffffffff', '{}', 'gift', 9223372036854775808, '');
"#;

pub(crate) const PICKED: &[(&str, &[i64])] = &[
    ("amount > 9999999999999999.9998", &[4]),
    ("visits = 18446744073709551615", &[1]),
    ("visits >= 9223372036854775807", &[1, 4]),
    ("visits in (0, 9223372036854775808)", &[2, 4]),
    // By the collation of the column.
    ("name = 'o''brien'", &[1]),
    ("code = 'abc'", &[2]),
    ("code like 'A%'", &[1]),
];

pub(crate) const SORTED: &[(&str, [&str; 3])] =
    &[("code", ["'ABC'", "'abc'", "''"]), ("visits", ["18446744073709551615", "0", "9223372036854775808"])];

#[test]
fn a_pattern_means_the_same_under_settings_that_change_backslashes_and_quotes() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(THINGS).unwrap();
    connection.batch_execute("SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'").unwrap();
    assert_eq!(picked(&mut connection, "name like '%100\\% a\\_b%'"), [2]);
    assert_eq!(picked(&mut connection, "name = 'O''Brien'"), [1]);
}
