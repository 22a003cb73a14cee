//! What is SQLite's own.

use queue_core::internals::backend::Holds;

pub(crate) const REFERENCE: Holds = Holds::Bytes;

pub(crate) const COLUMNS: &[(&str, Holds)] = &[("seen", Holds::InstantsWithOffset)];

/// The values as Diesel stores them.
pub(crate) const THINGS: &str = r#"
    CREATE TABLE things (id INTEGER PRIMARY KEY NOT NULL, company_id INTEGER NOT NULL, tiny SMALLINT, ratio DOUBLE,
        amount NUMERIC, name TEXT, is_paid BOOLEAN, booked_on DATE, opens_at TIME, created TIMESTAMP, due TEXT,
        hash BLOB, reference BLOB, details TEXT, kind TEXT,
        seen TIMESTAMP);
    INSERT INTO things VALUES
        (1, 7, 1, 1.5, 10.5, 'O''Brien', 1, '2026-03-01', '08:30:00', '2026-03-01 12:00:00',
            '2026-03-01 12:00:00.000', x'0a0b', x'6f1c1e9a58f24c2c9d0e3f0a4d1b2c3d', '{"a": 1}', 'card',
            '2026-03-01 12:00:00+00:00'),
        (2, 8, -1, -2, 0.1, 'naïve 漢字 "quoted" \ 100% a_b 🙂', 0, '2026-02-28', '17:30:15.500',
            '2026-03-01 12:00:00.500', '2026-03-01 13:00:00.000', x'00ff', x'00000000000000000000000000000001',
            '{"b": 2}', 'cash', '2026-03-01 14:30:00.250+02:00'),
        (3, 7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (4, -2147483648, 127, 1e300, 9999999999999999.9999, '', 0, '1970-01-01', '00:00:00', '1970-01-01 00:00:00',
            '1970-01-01 00:00:00.000', x'', x'ffffffffffffffffffffffffffffffff', '{}', 'gift', '1970-01-01T00:00:00Z');
"#;

pub(crate) const PICKED: &[(&str, &[i64])] = &[
    // As the rest of SQLite, which compares ASCII without case here only.
    ("name like 'o''b%'", &[1]),
    ("name = 'o''brien'", &[]),
    ("seen = now()", &[1]),
    ("seen > now()", &[2]),
    ("seen = '2026-03-01T12:30:00.25Z'", &[2]),
    ("seen between '1970-01-01' and now()", &[1, 4]),
];

pub(crate) const SORTED: &[(&str, [&str; 3])] = &[("kind", ["'card'", "'cash'", "'gift'"])];
