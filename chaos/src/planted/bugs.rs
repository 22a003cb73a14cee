//! The bugs: how each changes the core, and which runs have to find it.
//!
//! Each edit keeps the text that it finds, so two bugs can change one place. A text is as short as it can be, because whoever
//! changes it in the core has to change it here.

use super::edit::{Edit, before, instead_of};
use crate::options::Backend::{self, Mariadb, Postgres, Sqlite};
use crate::options::Mode::{self, Group, Lease, Transaction};

/// A bug, and the runs that are to find it.
pub(crate) struct Bug {
    pub(crate) name: &'static str,
    pub(crate) bar: u8,
    /// Repetitions of the bar.
    pub(crate) count: u64,
    pub(crate) on: &'static [(Backend, Mode)],
    pub(crate) edits: &'static [Edit],
}

const EVERYWHERE: &[(Backend, Mode)] = &[(Postgres, Transaction), (Mariadb, Transaction), (Sqlite, Transaction)];

const LEASES: &[(Backend, Mode)] = &[(Postgres, Lease), (Mariadb, Lease), (Sqlite, Lease)];

/// What does several steps in one round trip, and so would pass by the bugs in them: the copy has it switched off.
pub(crate) const SHORTCUTS: &[Edit] = &[
    before("attempt/end.rs", "let Fence { status, try_count, began, due, change_count: None }", "return None;"),
    before("statement/finish.rs", "let is_one_update = ", "return None;"),
    before("statement/lease.rs", "C::Backend::LEASES_AT_ONCE", "return false;"),
    before("lease/attempt.rs", "let Fence { status, try_count, began: Some(began), ", "return Ok(None);"),
];

pub(crate) const BUGS: &[Bug] = &[
    Bug {
        name: "claim without a lock",
        bar: 0,
        count: 400,
        on: &[(Postgres, Transaction), (Mariadb, Transaction)],
        edits: &[instead_of("statement/writer.rs", "self.out.push_sql(DB::CLAIM_LOCK)", "()")],
    },
    Bug {
        name: "deferred BEGIN",
        bar: 0,
        count: 400,
        on: &[(Sqlite, Transaction)],
        edits: &[instead_of(
            "backend/sqlite/session.rs",
            r#"AnsiTransactionManager::begin_transaction_sql(self, "BEGIN IMMEDIATE")"#,
            r#"AnsiTransactionManager::begin_transaction_sql(self, "BEGIN")"#,
        )],
    },
    Bug {
        name: "now() in backoff",
        bar: 0,
        count: 400,
        on: &[(Postgres, Transaction)],
        edits: &[instead_of(
            "backend/now.rs",
            "time_plus::<DB>(DB::NOW_PLUS_MICROSECONDS, microseconds(delay))",
            r#"time_plus::<DB>(DB::NOW_PLUS_MICROSECONDS, microseconds(delay)).replace("clock_timestamp", "now")"#,
        )],
    },
    Bug {
        name: "leases are not extended",
        bar: 0,
        count: 400,
        on: LEASES,
        edits: &[before(
            "lease/heartbeat.rs",
            "let change = Change { next: Some(Next::In(self.length()))",
            "held.iter().for_each(|held| held.clock.confirm(Instant::now())); return Ok(());",
        )],
    },
    Bug {
        name: "effects are committed first",
        bar: 1,
        count: 60,
        on: &[(Postgres, Transaction), (Mariadb, Transaction)],
        edits: &[before(
            "attempt/end.rs",
            "if new.change.error == ErrorText::Keep {",
            r#"let _ = self.session.batch_execute("COMMIT").and_then(|()| self.session.batch_execute("BEGIN"));"#,
        )],
    },
    Bug {
        name: "migration that enqueues history",
        bar: 1,
        count: 2,
        on: EVERYWHERE,
        edits: &[instead_of(
            "backend/schema/columns.rs",
            "sql_type.to_owned()",
            r#"match name == names.next_attempt_time {
                true => format!("{sql_type} DEFAULT '2020-01-01 00:00:00.000'"),
                false => sql_type.to_owned(),
            }"#,
        )],
    },
    Bug {
        name: "failures keep their effects",
        bar: 1,
        count: 4,
        on: &[(Postgres, Transaction), (Postgres, Group), (Sqlite, Transaction)],
        edits: &[before(
            "backend/session.rs",
            "match self.handler_settings.is_lent && !self.handler_settings.is_shared {",
            r#"if statement.starts_with("ROLLBACK TO") { return Ok(()); }"#,
        )],
    },
    Bug {
        name: "a lease for years",
        bar: 1,
        count: 4,
        on: LEASES,
        edits: &[instead_of(
            "lease/runner.rs",
            "self.served.rules.settings.lease",
            "Duration::from_secs(10 * 365 * 24 * 3600)",
        )],
    },
    Bug {
        name: "ignored COMMIT result",
        bar: 3,
        count: 24,
        on: &[(Postgres, Transaction), (Mariadb, Transaction)],
        edits: &[instead_of("attempt/end.rs", "Err(self.not_committed(error, new))", "Ok(new.settled)")],
    },
    Bug {
        name: "an interruption uses a try",
        bar: 4,
        count: 2,
        on: &[(Postgres, Transaction), (Mariadb, Transaction), (Postgres, Group)],
        edits: &[instead_of("attempt/ended.rs", "C::classify(error) != ErrorClass::Other", "false")],
    },
    Bug {
        name: "crashes are not counted",
        bar: 7,
        count: 1,
        on: EVERYWHERE,
        edits: &[instead_of(
            "crash/accounts.rs",
            "Suspicion { crashes }.over(text)",
            "Suspicion { crashes: crashes.min(1) }.over(text)",
        )],
    },
    Bug {
        name: "neighbours of a crash count too",
        bar: 7,
        count: 1,
        on: &[(Postgres, Transaction), (Mariadb, Transaction), (Sqlite, Group)],
        edits: &[instead_of("crash/accounts.rs", "u32::from(concurrency == Concurrency::Nobody)", "3")],
    },
    Bug {
        name: "a panic is a success",
        bar: 8,
        count: 300,
        on: EVERYWHERE,
        edits: &[instead_of(
            "attempt/attempt.rs",
            "Err(Panicked::failure(panic))",
            "Ok(crate::handler::Outcome::Done)",
        )],
    },
    Bug {
        name: "no sentinel",
        bar: 9,
        count: 1,
        on: &[(Postgres, Transaction), (Mariadb, Transaction), (Sqlite, Transaction), (Postgres, Group)],
        edits: &[
            before(
                "backend/session.rs",
                "match self.handler_settings.is_lent && !self.handler_settings.is_shared {",
                r#"if !statement.starts_with("ROLLBACK") { return Ok(()); }"#,
            ),
            // As a group releases it and sets it anew.
            before(
                "backend/session.rs",
                "if self.handler_settings.is_shared {",
                "if then.is_some() { return Ok(()); }",
            ),
        ],
    },
    Bug {
        name: "ignored row count",
        bar: 9,
        count: 1,
        on: EVERYWHERE,
        edits: &[before("attempt/end.rs", "match written {", "if written.is_ok() { return Ok(()); }")],
    },
    Bug { name: "no fence", bar: 9, count: 1, on: EVERYWHERE, edits: &[NO_FENCE] },
    Bug {
        name: "autocommit",
        bar: 9,
        count: 1,
        on: &[(Mariadb, Transaction)],
        edits: &[before(
            "backend/mysql/session.rs",
            "let variables: Vec<Variable> = ",
            r#"return self.batch_execute("ROLLBACK; SET SESSION autocommit = 1");"#,
        )],
    },
    Bug {
        name: "no SKIP LOCKED",
        bar: 12,
        count: 1,
        on: &[(Postgres, Transaction), (Mariadb, Transaction)],
        edits: &[instead_of(
            "statement/writer.rs",
            "self.out.push_sql(DB::CLAIM_LOCK)",
            r#"self.out.push_sql(DB::CLAIM_LOCK.trim_end_matches(" SKIP LOCKED"))"#,
        )],
    },
    Bug {
        name: "the worker's clock",
        bar: 13,
        count: 1,
        on: &[(Postgres, Lease), (Mariadb, Lease), (Postgres, Transaction)],
        edits: &[
            instead_of(
                "statement/change.rs",
                "push_now_plus(out, *lease)",
                r#"out.push_sql(&(chrono::Utc::now() + *lease).format("'%Y-%m-%d %H:%M:%S%.3f'").to_string())"#,
            ),
            instead_of(
                "statement/change.rs",
                "push_now_plus(out, *delay)",
                r#"out.push_sql(&(chrono::Utc::now() + *delay).format("'%Y-%m-%d %H:%M:%S%.3f'").to_string())"#,
            ),
        ],
    },
    Bug {
        name: "a backoff without a cap",
        bar: 14,
        count: 1,
        on: EVERYWHERE,
        edits: &[
            before(
                "entity/retry.rs",
                "1u32.checked_shl(doublings)",
                "return Some(first.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)));",
            ),
            before("entity/retry.rs", "let share = ", "return delay;"),
            before(
                "row/time.rs",
                "i64::try_from(delay.min(MAX_DELAY).as_micros())",
                "return i64::try_from(delay.as_micros()).unwrap_or(i64::MAX);",
            ),
        ],
    },
    Bug {
        name: "a text as it is",
        bar: 15,
        count: 100,
        on: &[(Postgres, Transaction)],
        edits: &[
            instead_of("row/text.rs", "char::REPLACEMENT_CHARACTER", "c"),
            before("attempt/served_queue.rs", "for error in texts {", "texts.truncate(1);"),
        ],
    },
    Bug {
        name: "an undecodable row stops the claim",
        bar: 16,
        count: 100,
        on: EVERYWHERE,
        edits: &[instead_of(
            "statement/claimed.rs",
            "self.with_details(connection, rows)",
            "Ok(self.with_details(connection, rows)?.into_iter().filter(|row| row.message.is_ok()).collect())",
        )],
    },
    Bug {
        name: "a stale owner writes",
        bar: 22,
        count: 150,
        on: LEASES,
        edits: &[NO_FENCE, instead_of("statement/recall.rs", "row.is_some()", "true")],
    },
    Bug {
        name: "a fence of the status alone",
        bar: 22,
        count: 150,
        on: LEASES,
        edits: &[before("statement/condition.rs", r#"sql.push(" AND {.try_count} = ")?;"#, "return Ok(());")],
    },
    Bug {
        name: "two at once",
        bar: 36,
        count: 4,
        on: &[(Postgres, Transaction), (Mariadb, Transaction), (Postgres, Lease)],
        edits: &[instead_of(
            "claim/places.rs",
            "self.lanes.and_then(|lanes| lanes.at_most)",
            "self.lanes.and_then(|lanes| lanes.at_most).map(|most| most + 1)",
        )],
    },
    Bug {
        name: "a place is never given back",
        bar: 36,
        count: 4,
        on: &[(Mariadb, Transaction), (Mariadb, Lease)],
        edits: &[before(
            "claim/places.rs",
            "let places = std::mem::take(&mut *self.held.lock());",
            "self.held.lock().clear(); return Ok(());",
        )],
    },
    Bug {
        name: "a value starves",
        bar: 36,
        count: 4,
        on: EVERYWHERE,
        edits: &[before(
            "claim/lanes.rs",
            "let may_enter = key.is_none()",
            r#"if lane.value().is_some_and(|value| value.text() == "2") { continue; }"#,
        )],
    },
    Bug {
        name: "no thread is left behind",
        bar: 37,
        count: 5,
        on: &[(Postgres, Transaction), (Mariadb, Transaction)],
        edits: &[before("poller/post.rs", "let waited = self.wait.elapsed()", "return None;")],
    },
];

const NO_FENCE: Edit = before("statement/condition.rs", r#"sql.push(" AND {.status} = ")?;"#, "return Ok(());");
