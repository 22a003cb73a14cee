//! The SQL of the derived code on MySQL and MariaDB.

#![cfg(feature = "mysql")]

use diesel::debug_query;
use diesel::mysql::Mysql;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use queueable::{Entity, Queueable, Status};

fn sql(query: &impl QueryFragment<Mysql>) -> String {
    let text = debug_query::<Mysql, _>(query).to_string();
    text.split(" -- binds").next().unwrap_or_default().to_owned()
}

mod schema {
    diesel::table! { billing.invoice (id) { id -> BigInt, } }
    diesel::table! { order (id, line) { id -> Integer, line -> SmallInt, } }
    diesel::table! {
        #[sql_name = "Invoice"]
        chinook_invoice (invoice_id) {
            #[sql_name = "InvoiceId"]
            invoice_id -> Integer,
        }
    }
}

#[test]
fn a_table_in_another_database() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = schema::invoice)]
    struct Invoice {
        #[expect(dead_code)]
        id: i64,
    }

    assert_eq!(
        sql(&schema::invoice::table.filter(Invoice::is_key(1)).select(invoice_queue::status)),
        "SELECT `billing`.`invoice`.`status` FROM `billing`.`invoice` WHERE (`billing`.`invoice`.`id` = ?)"
    );
}

#[test]
fn a_reserved_word_and_a_key_of_two_columns() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = schema::order, primary_key(id, line))]
    #[expect(dead_code)]
    struct Order {
        id: i32,
        line: i16,
    }

    assert_eq!(
        sql(&schema::order::table
            .filter(Order::is_key((1, 2)))
            .filter(order_queue::status.eq(Status::Error))
            .for_update()
            .skip_locked()
            .select(Order::queue_state())),
        "SELECT `order`.`status`, `order`.`next_attempt_time`, `order`.`try_count`, `order`.`last_attempt_time`, "
            .to_owned()
            + "`order`.`last_attempt_error_message` FROM `order` "
            + "WHERE (((`order`.`id` = ?) AND (`order`.`line` = ?)) AND (`order`.`status` = ?)) FOR UPDATE SKIP LOCKED"
    );
}

#[test]
fn names_in_mixed_case() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = schema::chinook_invoice, primary_key(invoice_id))]
    #[queue(status = "MailStatus")]
    struct Invoice {
        #[expect(dead_code)]
        invoice_id: i32,
    }

    assert_eq!(
        sql(&schema::chinook_invoice::table.filter(Invoice::is_key(1)).select(invoice_queue::status)),
        "SELECT `Invoice`.`MailStatus` FROM `Invoice` WHERE (`Invoice`.`InvoiceId` = ?)"
    );
}
