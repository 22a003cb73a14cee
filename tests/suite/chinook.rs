//! An existing table that was not made for us: the invoices of the Chinook sample, if its data is available.

/// Makes the test for the names that one backend's script gives the table and its columns.
macro_rules! adopts {
    (#[$table:meta] #[$id:meta] #[$customer:meta] #[$country:meta]) => {
        use diesel::connection::SimpleConnection;
        use diesel::prelude::*;
        use diesel_migrations::MigrationHarness;
        use queueable::{Failure, Message, Migrations, Outcome, Queueable, Status};

        use crate::db::{self, Conn, Database};

        diesel::table! {
            #[$table]
            invoices (id) {
                #[$id]
                id -> Integer,
                #[$customer]
                customer -> Integer,
                #[$country]
                country -> Nullable<Text>,
            }
        }

        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = invoices)]
        #[queue(timeout = "30s")]
        struct Invoice {
            id: i32,
            customer: i32,
            country: Option<String>,
        }

        #[test]
        fn an_invoice_table_of_somebody_else_becomes_a_queue() {
            let Some(script) = db::chinook() else {
                return eprintln!("no Chinook data beside the repository: nothing to show");
            };
            let database = Database::new();
            let mut connection = database.connect();
            connection.batch_execute(&script).unwrap();
            connection.run_pending_migrations(Migrations::new().entity::<Invoice>()).unwrap();
            assert_eq!(Invoice::queue().pending().count(&mut connection).unwrap(), 0);
            assert_eq!(Invoice::queue().count(&mut connection).unwrap(), 412);

            let french = invoices::table.filter(invoices::country.eq("France"));
            let enqueued = diesel::update(french).set(Invoice::due_now()).execute(&mut connection).unwrap();
            let handler = |invoice: &Invoice, message: &mut Message<'_, Conn>| {
                assert_eq!(invoice.country.as_deref(), Some("France"));
                let invoices: i64 = invoices::table
                    .filter(invoices::customer.eq(invoice.customer))
                    .count()
                    .get_result(message.connection())?;
                assert!(invoices > 0);
                if invoice.id % 5 == 0 { Err(Failure::fatal("unpaid")) } else { Ok(Outcome::Done) }
            };
            let tally = Invoice::poller(database.pool(4), handler).workers(2).run_until_idle().unwrap();
            assert_eq!((tally.retried, tally.interrupted), (0, 0));
            assert_eq!(usize::try_from(tally.succeeded + tally.failed), Ok(enqueued));
            assert!(tally.succeeded > 0 && tally.failed > 0);
            let elsewhere = Invoice::queue().filter(invoices::country.ne("France"));
            let counts = elsewhere.counts_by_status(&mut connection).unwrap();
            assert_eq!(counts.of(Status::NotAttempted), counts.total());
            connection.revert_last_migration(Migrations::new().entity::<Invoice>()).unwrap();
        }
    };
}
pub(crate) use adopts;
