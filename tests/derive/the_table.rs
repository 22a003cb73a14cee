//! The table, named as Diesel names it.

use super::*;

mod schema {
    diesel::table! { billing.invoice (id) { id -> Integer, total -> Integer, } }
    diesel::table! { order (id) { id -> Integer, } }
    diesel::table! { mail_messages (id) { id -> Integer, } }
    diesel::table! {
        #[sql_name = "Invoice"]
        chinook_invoice (invoice_id) {
            #[sql_name = "InvoiceId"]
            invoice_id -> Integer,
            #[sql_name = "Total"]
            total -> Integer,
        }
    }
    diesel::table! { #[allow(non_snake_case)] Artist (ArtistId) { ArtistId -> Integer, Name -> Text, } }
}

#[test]
fn has_diesels_default_name() {
    use self::schema::mail_messages;

    #[derive(Queryable, Selectable, Queueable)]
    struct MailMessage {
        #[expect(dead_code)]
        id: i32,
    }

    assert_eq!(
        sql(&mail_messages::table.select(mail_message_queue::status)),
        "SELECT `mail_messages`.`status` FROM `mail_messages`"
    );
    assert_eq!(MailMessage::ENTITY, "MailMessage");
}

#[test]
fn may_be_a_path_and_stand_in_a_schema() {
    #[derive(Debug, PartialEq, Queryable, Selectable, Insertable, Queueable)]
    #[diesel(table_name = self::schema::invoice)]
    struct BilledInvoice {
        id: i32,
        total: i32,
    }

    let connection = &mut SqliteConnection::establish(":memory:").unwrap();
    diesel::connection::SimpleConnection::batch_execute(
        connection,
        "attach ':memory:' as billing;
         create table billing.invoice (id integer primary key, total integer not null, status text not null,
             next_attempt_time text, try_count integer not null)",
    )
    .unwrap();
    let new = BilledInvoice { id: 1, total: 5 };
    diesel::insert_into(schema::invoice::table).values((&new, BilledInvoice::due_now())).execute(connection).unwrap();
    let query = schema::invoice::table
        .filter(billed_invoice_queue::status.eq(Status::NotAttempted))
        .filter(BilledInvoice::is_key(1));
    assert_eq!(
        sql(&query.select(billed_invoice_queue::try_count)),
        "SELECT `billing`.`invoice`.`try_count` FROM `billing`.`invoice` \
         WHERE ((`billing`.`invoice`.`status` = ?) AND (`billing`.`invoice`.`id` = ?))"
    );
    assert_eq!(query.select(BilledInvoice::as_select()).first(connection), Ok(new));
}

#[test]
fn may_be_a_reserved_word() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = schema::order)]
    struct Order {
        #[expect(dead_code)]
        id: i32,
    }

    assert_eq!(
        sql(&schema::order::table.filter(Order::is_key(1)).select(order_queue::status)),
        "SELECT `order`.`status` FROM `order` WHERE (`order`.`id` = ?)"
    );
}

#[test]
fn may_have_names_that_need_quoting() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = schema::chinook_invoice, primary_key(invoice_id))]
    #[queue(prefix = "Mail", status = "MailState")]
    #[expect(dead_code)]
    struct Invoice {
        #[diesel(column_name = invoice_id)]
        number: i32,
        #[diesel(column_name = "total")]
        sum: i32,
    }

    assert_eq!(
        sql(&schema::chinook_invoice::table
            .filter(Invoice::is_key(1))
            .select((invoice_queue::status, invoice_queue::try_count))),
        "SELECT `Invoice`.`MailState`, `Invoice`.`Mailtry_count` FROM `Invoice` WHERE (`Invoice`.`InvoiceId` = ?)"
    );
}

#[test]
fn may_have_names_in_mixed_case() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = schema::Artist)]
    #[diesel(primary_key(ArtistId))]
    #[expect(dead_code)]
    struct Artist {
        #[diesel(column_name = "ArtistId")]
        id: i32,
        #[diesel(column_name = Name)]
        name: String,
    }

    assert_eq!(
        sql(&schema::Artist::table.filter(Artist::is_key(7)).select(artist_queue::status)),
        "SELECT `Artist`.`status` FROM `Artist` WHERE (`Artist`.`ArtistId` = ?)"
    );
}

#[test]
fn may_serve_several_queues() {
    diesel::table! { orders (id) { id -> Integer, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = orders)]
    #[queue(prefix = "charge_")]
    struct OrderCharge {
        #[expect(dead_code)]
        id: i32,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = orders)]
    #[queue(prefix = "mail_", try_count = "mails")]
    struct OrderMail {
        #[expect(dead_code)]
        id: i32,
    }

    assert_eq!(
        sql(&orders::table
            .filter(order_charge_queue::status.eq(Status::Success))
            .order(order_mail_queue::next_attempt_time)
            .select((order_charge_queue::try_count, order_mail_queue::try_count))),
        "SELECT `orders`.`charge_try_count`, `orders`.`mails` FROM `orders` \
         WHERE (`orders`.`charge_status` = ?) ORDER BY `orders`.`mail_next_attempt_time`"
    );
    assert_eq!(<OrderCharge as Entity>::Queue::COLUMNS.last_attempt_time, "charge_last_attempt_time");
    assert_eq!(<OrderMail as Entity>::Queue::COLUMNS.last_attempt_error_message, "mail_last_attempt_error_message");
}
