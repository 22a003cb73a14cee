//! Queues whose rows are scheduled by a column: one row of a company at a time, three of them, and one strictly in order.

use anyhow::Result;
use diesel::prelude::*;
use queueable::Queueable;

use crate::session::connect;
use crate::tables::{make_queues, types};

diesel::table! { serials (id) { id -> BigInt, company_id -> BigInt, } }
diesel::table! { trios (id) { id -> BigInt, company_id -> BigInt, } }
diesel::table! { stricts (id) { id -> BigInt, company_id -> BigInt, } }

macro_rules! lanes {
    ($(#[$doc:meta])* $module:ident, $mode:tt) => {
        $(#[$doc])*
        pub(crate) mod $module {
            use super::*;

            #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
            #[diesel(table_name = serials)]
            #[queue(serial_by = company_id, retry = fixed("20ms"))]
            #[queue $mode]
            pub(crate) struct Serial {
                pub(crate) id: i64,
            }

            #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
            #[diesel(table_name = trios)]
            #[queue(at_most(3, by = company_id), retry = fixed("20ms"))]
            #[queue $mode]
            pub(crate) struct Trio {
                pub(crate) id: i64,
            }

            #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
            #[diesel(table_name = stricts)]
            #[queue(serial_by(company_id, strict), retry = fixed("20ms"))]
            #[queue $mode]
            pub(crate) struct Strict {
                pub(crate) id: i64,
            }
        }
    };
}

lanes!(
    /// In transaction mode.
    locked,
    (max_tries = 20)
);
lanes!(
    /// In group mode.
    grouped,
    (group = 8, max_tries = 20)
);
lanes!(
    /// Under leases of two seconds.
    leased,
    (lease = "2s", max_tries = 1000)
);

/// Makes the tables and their queues.
pub(crate) fn found(url: &str) -> Result<()> {
    let mut session = connect(url)?;
    let (_, int, _) = types(session.dialect());
    for table in ["serials", "trios", "stricts"] {
        session.run(&format!("CREATE TABLE {table} (id {int} PRIMARY KEY NOT NULL, company_id {int} NOT NULL)"))?;
    }
    make_queues!(url, locked::Serial, locked::Trio, locked::Strict)
}
