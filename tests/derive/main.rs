//! What the derive promises: every kind of entity, and queue columns that are ordinary Diesel columns.

mod the_columns;
mod the_key;
mod the_kinds;
mod the_mode;
mod the_settings;
mod the_struct;
mod the_table;

use std::borrow::Cow;
use std::time::Duration;

use diesel::debug_query;
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::sqlite::{Sqlite, SqliteConnection};
use queueable::__derive::{QueueTable, Settings};
use queueable::{Entity, QueueState, Queueable, Retry, RetryPolicy, Status};

fn sql(query: &impl QueryFragment<Sqlite>) -> String {
    let text = debug_query::<Sqlite, _>(query).to_string();
    text.split(" -- binds").next().unwrap_or_default().to_owned()
}

/// A database with the tables `companies` and `payments`, the queue columns included.
fn database() -> SqliteConnection {
    let mut connection = SqliteConnection::establish(":memory:").unwrap();
    diesel::connection::SimpleConnection::batch_execute(
        &mut connection,
        "create table companies (id integer primary key, name text not null);
         create table payments (
             id integer primary key, company_id integer not null, amount_cents bigint not null,
             status text not null default 'NOT_ATTEMPTED', next_attempt_time text, try_count integer not null default 0,
             last_attempt_time text, last_attempt_error_message text);
         insert into companies values (1, 'Ada'), (2, 'Grace');
         insert into payments (id, company_id, amount_cents, status, try_count, last_attempt_error_message) values
             (1, 1, 100, 'ERROR', 3, 'no route'), (2, 1, 200, 'SUCCESS', 1, null), (3, 2, 300, 'ERROR', 1, 'timeout');",
    )
    .unwrap();
    connection
}

mod schema {
    diesel::table! { companies (id) { id -> Integer, name -> Text, } }
    diesel::table! { payments (id) { id -> BigInt, company_id -> Integer, amount_cents -> BigInt, } }
    diesel::joinable!(payments -> companies (company_id));
    diesel::allow_tables_to_appear_in_same_query!(companies, payments);
}
use self::schema::{companies, payments};

#[derive(Debug, PartialEq, Queryable, Selectable, Identifiable, Insertable, Queueable)]
struct Payment {
    id: i64,
    company_id: i32,
    amount_cents: i64,
}

/// The derived code passes lints that careful users turn on.
pub mod strict {
    #![deny(missing_docs, unreachable_pub, unused, clippy::pedantic, nonstandard_style)]
    #![deny(rust_2018_idioms, missing_debug_implementations, missing_copy_implementations)]

    pub mod public {
        //! A public module with a public entity.

        use super::super::payments;

        /// A public entity.
        #[derive(Debug, Clone, Copy, diesel::Queryable, diesel::Selectable, queueable::Queueable)]
        #[queue(retry = linear("5m", max = "2h"), max_tries = 10, timeout = "30s")]
        pub struct Payment {
            /// Its key.
            pub id: i64,
        }
    }

    #[test]
    fn entities_compile_under_strict_lints() {
        let payment = public::Payment { id: 1 };
        assert_eq!((payment.id, <public::Payment as queueable::Entity>::SETTINGS.max_tries), (1, 10));
    }
}
