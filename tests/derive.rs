//! What the derive promises: every kind of entity, and queue columns that are ordinary Diesel columns.

use std::borrow::Cow;
use std::time::Duration;

use diesel::debug_query;
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::sqlite::{Sqlite, SqliteConnection};
use queueable::{QueueState, QueueTable, Queueable, Retry, RetryPolicy, Settings, Status};

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

mod the_columns {
    use super::*;

    #[test]
    fn are_filtered_and_ordered_by() {
        let connection = &mut database();
        let ids: Vec<i64> = payments::table
            .filter(payments::amount_cents.gt(50).and(payment_queue::status.eq(Status::Error)))
            .order((payment_queue::try_count.asc(), payments::id.desc()))
            .select(payments::id)
            .load(connection)
            .unwrap();
        assert_eq!(ids, [3, 1]);
    }

    #[test]
    fn are_selected_beside_the_entity() {
        let connection = &mut database();
        let row: (Payment, i32, Option<String>) = payments::table
            .find(1)
            .select((Payment::as_select(), payment_queue::try_count, payment_queue::last_attempt_error_message))
            .first(connection)
            .unwrap();
        assert_eq!(row, (Payment { id: 1, company_id: 1, amount_cents: 100 }, 3, Some("no route".into())));
    }

    #[test]
    fn are_selected_as_one_state() {
        let connection = &mut database();
        let (payment, state): (Payment, QueueState) =
            payments::table.find(2).select((Payment::as_select(), Payment::queue_state())).first(connection).unwrap();
        assert_eq!((payment.id, state.status, state.try_count), (2, Status::Success, 1));
        assert_eq!((state.next_attempt_time, state.last_attempt_error_message), (None, None));
    }

    #[test]
    fn are_updated() {
        let connection = &mut database();
        let changed = diesel::update(payments::table.filter(payment_queue::try_count.ge(2)))
            .set((
                payment_queue::status.eq(Status::Skipped),
                payment_queue::last_attempt_error_message.eq(None::<String>),
            ))
            .execute(connection)
            .unwrap();
        assert_eq!(changed, 1);
        let status: Status = payments::table.find(1).select(payment_queue::status).first(connection).unwrap();
        assert_eq!(status, Status::Skipped);
    }

    #[test]
    fn are_inserted_with_due_now_and_returned() {
        let connection = &mut database();
        let new = Payment { id: 9, company_id: 2, amount_cents: 900 };
        let (status, tries): (Status, i32) = diesel::insert_into(payments::table)
            .values((&new, Payment::due_now()))
            .returning((payment_queue::status, payment_queue::try_count))
            .get_result(connection)
            .unwrap();
        assert_eq!((status, tries), (Status::NotAttempted, 0));
        let state: QueueState = payments::table.find(9).select(Payment::queue_state()).first(connection).unwrap();
        assert!(state.next_attempt_time.is_some());
    }

    #[test]
    fn make_an_existing_row_due() {
        let connection = &mut database();
        diesel::update(payments::table.find(1))
            .set(Payment::due_in(Duration::from_secs(60)))
            .execute(connection)
            .unwrap();
        let state: QueueState = payments::table.find(1).select(Payment::queue_state()).first(connection).unwrap();
        assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0));
        assert!(state.next_attempt_time.is_some());
    }

    #[test]
    fn are_grouped_by() {
        let connection = &mut database();
        let counts: Vec<(Status, i64)> = payments::table
            .group_by(payment_queue::status)
            .select((payment_queue::status, count_star()))
            .order(payment_queue::status)
            .load(connection)
            .unwrap();
        assert_eq!(counts, [(Status::Error, 2), (Status::Success, 1)]);
    }

    #[test]
    fn stand_in_boxed_queries() {
        let connection = &mut database();
        let mut query = payments::table.into_boxed();
        query = query.filter(payment_queue::status.eq(Status::Error));
        query = query.or_filter(payment_queue::last_attempt_time.is_not_null()).order(payment_queue::try_count.desc());
        let ids: Vec<i64> = query.select(payments::id).load(connection).unwrap();
        assert_eq!(ids, [1, 3]);
    }

    #[test]
    fn are_filtered_by_in_a_join() {
        let connection = &mut database();
        let names: Vec<String> = companies::table
            .inner_join(payments::table)
            .filter(payment_queue::status.eq(Status::Error).and(payments::amount_cents.gt(200)))
            .select(companies::name)
            .load(connection)
            .unwrap();
        assert_eq!(names, ["Grace"]);
    }

    #[test]
    fn are_named_with_their_table() {
        assert_eq!(
            sql(&payments::table.filter(payment_queue::status.eq(Status::Error)).select(payment_queue::try_count)),
            "SELECT `payments`.`try_count` FROM `payments` WHERE (`payments`.`status` = ?)"
        );
    }

    #[test]
    fn have_their_names_in_debug_output() {
        assert_eq!(format!("{:?}", payment_queue::next_attempt_time), "next_attempt_time");
    }
}

mod the_table {
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
        diesel::insert_into(schema::invoice::table)
            .values((&new, BilledInvoice::due_now()))
            .execute(connection)
            .unwrap();
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
        assert_eq!(<OrderCharge as Queueable>::Queue::COLUMNS.last_attempt_time, "charge_last_attempt_time");
        assert_eq!(
            <OrderMail as Queueable>::Queue::COLUMNS.last_attempt_error_message,
            "mail_last_attempt_error_message"
        );
    }
}

mod the_key {
    use std::any::TypeId;

    use super::*;

    fn is_key_type<Q: Queueable, K: 'static>() -> bool {
        TypeId::of::<Q::Key>() == TypeId::of::<K>()
    }

    #[test]
    fn may_have_several_columns() {
        diesel::table! { lines (order_id, line_number, part) { order_id -> BigInt, line_number -> Integer, part -> Text, } }

        #[derive(Debug, PartialEq, Queryable, Selectable, Identifiable, Insertable, Queueable)]
        #[diesel(table_name = lines, primary_key(order_id, line_number, part))]
        struct Line {
            line_number: i32,
            order_id: i64,
            part: String,
        }

        let connection = &mut SqliteConnection::establish(":memory:").unwrap();
        diesel::sql_query("create table lines (order_id bigint, line_number integer, part text)")
            .execute(connection)
            .unwrap();
        let line = Line { line_number: 2, order_id: 1, part: "a".into() };
        diesel::insert_into(lines::table).values(&line).execute(connection).unwrap();
        let query = lines::table.filter(Line::is_key((1, 2, "a".to_owned())));
        assert_eq!(
            sql(&query.clone().select(lines::part)),
            "SELECT `lines`.`part` FROM `lines` \
             WHERE (((`lines`.`order_id` = ?) AND (`lines`.`line_number` = ?)) AND (`lines`.`part` = ?))"
        );
        assert_eq!(query.select(Line::as_select()).first(connection), Ok(line));
        let key = lines::table.select(*Line::KEY_COLUMNS).first(connection);
        assert_eq!(key, Ok((1_i64, 2_i32, "a".to_owned())));
        assert!(is_key_type::<Line, (i64, i32, String)>());
    }

    #[test]
    fn may_be_text_or_bytes() {
        diesel::table! { vouchers (code) { code -> Text, } }
        diesel::table! { blobs (hash) { hash -> Binary, } }

        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(primary_key(code))]
        struct Voucher {
            #[expect(dead_code)]
            code: String,
        }

        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(primary_key(hash))]
        struct Blob {
            #[expect(dead_code)]
            hash: Vec<u8>,
        }

        let connection = &mut SqliteConnection::establish(":memory:").unwrap();
        diesel::sql_query("create table vouchers (code text)").execute(connection).unwrap();
        diesel::sql_query("create table blobs (hash blob)").execute(connection).unwrap();
        diesel::insert_into(vouchers::table).values(vouchers::code.eq("x-1")).execute(connection).unwrap();
        diesel::insert_into(blobs::table).values(blobs::hash.eq(vec![0u8, 255])).execute(connection).unwrap();
        let vouchers = vouchers::table.filter(Voucher::is_key("x-1".into())).count().get_result(connection);
        let blobs = blobs::table.filter(Blob::is_key(vec![0, 255])).count().get_result(connection);
        assert_eq!((vouchers, blobs), (Ok(1), Ok(1)));
    }

    #[test]
    fn may_be_a_newtype_of_the_users_around_a_uuid() {
        use diesel::backend::Backend;
        use diesel::deserialize::{self, FromSql, FromSqlRow};
        use diesel::expression::AsExpression;
        use diesel::serialize::{self, Output, ToSql};
        use diesel::sql_types::Binary;
        use uuid::Uuid;

        diesel::table! { tickets (id) { id -> Binary, } }

        #[derive(Debug, Clone, Copy, PartialEq, AsExpression, FromSqlRow)]
        #[diesel(sql_type = Binary)]
        struct TicketId(Uuid);

        impl<DB: Backend> FromSql<Binary, DB> for TicketId
        where
            Vec<u8>: FromSql<Binary, DB>,
        {
            fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
                Ok(TicketId(Uuid::from_slice(&Vec::from_sql(bytes)?)?))
            }
        }

        impl<DB: Backend> ToSql<Binary, DB> for TicketId
        where
            [u8]: ToSql<Binary, DB>,
        {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, DB>) -> serialize::Result {
                self.0.as_bytes().as_slice().to_sql(out)
            }
        }

        #[derive(Debug, PartialEq, Queryable, Selectable, Queueable)]
        struct Ticket {
            id: TicketId,
        }

        let connection = &mut SqliteConnection::establish(":memory:").unwrap();
        diesel::sql_query("create table tickets (id blob)").execute(connection).unwrap();
        diesel::insert_into(tickets::table).values(tickets::id.eq(vec![7_u8; 16])).execute(connection).unwrap();
        let key: TicketId = tickets::table.select(*Ticket::KEY_COLUMNS).first(connection).unwrap();
        let ticket = tickets::table.filter(Ticket::is_key(key)).select(Ticket::as_select()).first(connection);
        assert_eq!(ticket, Ok(Ticket { id: TicketId(Uuid::from_bytes([7; 16])) }));
    }

    #[test]
    fn may_be_converted_when_read_and_written() {
        use diesel::sql_types::Text;

        diesel::table! { devices (serial) { serial -> Text, } }

        #[derive(Debug, Clone, PartialEq)]
        struct Serial(u32);

        impl From<String> for Serial {
            fn from(text: String) -> Self {
                Serial(text.parse().unwrap_or_default())
            }
        }

        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(primary_key(serial))]
        struct Device {
            #[diesel(deserialize_as = String, serialize_as = String)]
            serial: Serial,
        }

        assert!(is_key_type::<Device, String>());
        let connection = &mut SqliteConnection::establish(":memory:").unwrap();
        diesel::sql_query("create table devices (serial text)").execute(connection).unwrap();
        diesel::sql_query("insert into devices values (?)").bind::<Text, _>("12").execute(connection).unwrap();
        let device: Device =
            devices::table.filter(Device::is_key("12".into())).select(Device::as_select()).first(connection).unwrap();
        assert_eq!(device.serial, Serial(12));
    }

    #[test]
    fn may_be_called_key_and_imported() {
        diesel::table! { entries (key) { key -> Text, } }
        use entries::dsl::key;

        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = entries, primary_key(key))]
        struct Entry {
            #[expect(dead_code)]
            key: String,
        }

        assert_eq!(
            sql(&entries::table.filter(Entry::is_key("a".into())).select(key)),
            "SELECT `entries`.`key` FROM `entries` WHERE (`entries`.`key` = ?)"
        );
    }

    #[test]
    fn may_bear_a_raw_name() {
        diesel::table! { kinds (r#type) { r#type -> Integer, } }

        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(primary_key(r#type))]
        struct Kind {
            #[expect(dead_code)]
            #[diesel(column_name = r#type)]
            r#type: i32,
        }

        assert_eq!(
            sql(&kinds::table.filter(Kind::is_key(1)).select(kinds::r#type)),
            "SELECT `kinds`.`type` FROM `kinds` WHERE (`kinds`.`type` = ?)"
        );
    }
}

mod the_struct {
    use super::*;

    #[test]
    fn may_have_lifetimes() {
        diesel::table! { letters (id) { id -> Text, body -> Text, } }

        #[derive(Queryable, Selectable, Queueable)]
        struct Letter<'a> {
            #[expect(dead_code)]
            id: Cow<'a, str>,
            #[expect(dead_code)]
            body: Cow<'a, str>,
        }

        fn of<'a>(_: &'a str) -> String {
            sql(&letters::table.filter(Letter::<'a>::is_key("x".into())).select(letter_queue::status))
        }

        assert_eq!(of("any"), "SELECT `letters`.`status` FROM `letters` WHERE (`letters`.`id` = ?)");
    }

    #[test]
    fn may_be_generic() {
        use diesel::expression::AsExpression;
        use diesel::sql_types::BigInt;

        diesel::table! { items (id) { id -> BigInt, label -> Text, } }

        #[derive(Queryable, Selectable, Queueable)]
        struct Item<K, L = String>
        where
            K: AsExpression<BigInt> + Clone + std::fmt::Debug + Send + 'static,
        {
            #[expect(dead_code)]
            id: K,
            #[expect(dead_code)]
            label: L,
        }

        assert_eq!(
            sql(&items::table.filter(Item::<i64>::is_key(1)).select(item_queue::status)),
            "SELECT `items`.`status` FROM `items` WHERE (`items`.`id` = ?)"
        );
        assert_eq!(Item::<i64, Vec<u8>>::ENTITY, "Item");
    }

    #[test]
    fn may_embed_others() {
        /// Selectable for one backend only: the derive must not ask for more.
        #[derive(Debug, PartialEq, Queryable)]
        struct OnlySqlite {
            company_id: i32,
        }

        impl Selectable<Sqlite> for OnlySqlite {
            type SelectExpression = (payments::company_id,);

            fn construct_selection() -> Self::SelectExpression {
                (payments::company_id,)
            }
        }

        #[derive(Debug, PartialEq, Queryable, Selectable)]
        #[diesel(table_name = payments)]
        struct Amount {
            amount_cents: i64,
        }

        #[derive(Debug, PartialEq, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments, check_for_backend(Sqlite))]
        struct Nested {
            id: i64,
            #[diesel(embed)]
            owner: OnlySqlite,
            #[diesel(embed)]
            status: Amount,
        }

        let connection = &mut database();
        let nested = payments::table
            .filter(nested_queue::status.eq(Status::Success))
            .select(Nested::as_select())
            .first(connection);
        let (owner, status) = (OnlySqlite { company_id: 1 }, Amount { amount_cents: 200 });
        assert_eq!(nested, Ok(Nested { id: 2, owner, status }));
    }

    #[test]
    fn may_carry_all_of_diesels_other_attributes() {
        #[derive(Identifiable, Associations, Insertable, AsChangeset, HasQuery, Queueable)]
        #[diesel(table_name = payments, belongs_to(Company), treat_none_as_null = true, check_for_backend(Sqlite))]
        #[diesel(base_query = payments::table.filter(payments::id.gt(0).and(payments::id.lt(9))))]
        #[diesel(base_query_type = diesel::dsl::Filter<payments::table, diesel::dsl::And<diesel::dsl::Gt<payments::id, i64>, diesel::dsl::Lt<payments::id, i64>>>)]
        struct Decorated {
            id: i64,
            company_id: i32,
            #[diesel(skip_update, serialize_as = i64)]
            amount_cents: i64,
        }

        #[derive(Queryable, Selectable, Identifiable)]
        #[diesel(table_name = companies)]
        struct Company {
            id: i32,
        }

        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[expect(dead_code)]
        struct Computed {
            id: i64,
            #[diesel(select_expression = payments::company_id + 1)]
            #[diesel(select_expression_type = diesel::helper_types::Add<payments::company_id, i32>)]
            two: i32,
        }

        assert_eq!(Decorated::ENTITY, "Decorated");
        assert_eq!(Computed::ENTITY, "Computed");
    }

    #[test]
    fn may_name_its_module() {
        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue(module = charging)]
        struct Charge {
            #[expect(dead_code)]
            id: i64,
        }

        assert_eq!(sql(&payments::table.select(charging::status)), "SELECT `payments`.`status` FROM `payments`");
        assert_eq!(Charge::ENTITY, "Charge");
    }

    #[test]
    fn gives_its_visibility_to_the_module() {
        mod outer {
            pub(super) mod inner {
                #[derive(diesel::Queryable, diesel::Selectable, queueable::Queueable)]
                #[diesel(table_name = super::super::payments)]
                pub(in super::super) struct Hidden {
                    #[expect(dead_code)]
                    id: i64,
                }
            }
        }

        assert_eq!(
            sql(&payments::table.select(outer::inner::hidden_queue::try_count)),
            "SELECT `payments`.`try_count` FROM `payments`"
        );
        assert_eq!(outer::inner::Hidden::ENTITY, "Hidden");
    }
}

mod the_settings {
    use super::*;

    macro_rules! entity {
        ($name:ident, $(#[$attribute:meta])*) => {
            #[derive(Queryable, Selectable, Queueable)]
            #[diesel(table_name = payments)]
            $(#[$attribute])*
            struct $name {
                #[expect(dead_code)]
                id: i64,
            }
        };
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn delays<Q: Queueable>() -> [Option<Duration>; 4] {
        [1, 2, 3, 1000].map(|tries| Q::retry_policy().delay(tries))
    }

    fn is<Q: Queueable>(expected: Retry) -> bool {
        // The policy's fields are not visible behind the trait; its debug form shows all of them.
        format!("{:?}", Q::retry_policy()) == format!("{expected:?}")
    }

    #[test]
    fn have_the_librarys_defaults() {
        entity!(Plain,);
        assert_eq!(Plain::SETTINGS, Settings::DEFAULT);
        assert!(is::<Plain>(Retry::DEFAULT));
    }

    #[test]
    fn are_taken_from_the_attributes() {
        entity!(Tuned, #[queue(max_tries = 2147483647, budget = "1500ms")] #[queue(prefix = "a_")]);
        assert_eq!(Tuned::SETTINGS, Settings::DEFAULT.max_tries(2_147_483_647).budget(Duration::from_millis(1500)));
        assert!(is::<Tuned>(Retry::DEFAULT));
        assert_eq!(<Tuned as Queueable>::Queue::COLUMNS.status, "a_status");
    }

    #[test]
    fn know_a_policy_that_never_retries() {
        entity!(Once, #[queue(retry = none)]);
        assert_eq!(delays::<Once>(), [None; 4]);
    }

    #[test]
    fn know_a_fixed_delay() {
        entity!(Fixed, #[queue(retry = fixed("10s"))]);
        assert_eq!(delays::<Fixed>(), [Some(10 * SECOND); 4]);
        entity!(AtOnce, #[queue(retry = fixed("0s"),)]);
        assert_eq!(delays::<AtOnce>(), [Some(Duration::ZERO); 4]);
    }

    #[test]
    fn know_a_linear_delay() {
        entity!(Linear, #[queue(retry = linear("5m"))]);
        assert_eq!(delays::<Linear>(), [300, 600, 900, 300_000].map(|seconds| Some(seconds * SECOND)));
        entity!(Capped, #[queue(retry = linear("5m", max = "10m",))]);
        assert_eq!(delays::<Capped>(), [300, 600, 600, 600].map(|seconds| Some(seconds * SECOND)));
    }

    #[test]
    fn know_an_exponential_delay() {
        entity!(Doubled, #[queue(retry = exponential("10s"))]);
        assert!(is::<Doubled>(Retry::exponential(10 * SECOND)));
        entity!(Slow, #[queue(retry = exponential("2h", max = "1d", jitter = 0))]);
        assert!(is::<Slow>(Retry::exponential(7200 * SECOND).max(86_400 * SECOND).jitter_percent(0)));
        entity!(Shaken, #[queue(retry = exponential("10ms", jitter = 20))]);
        assert!(is::<Shaken>(Retry::exponential(Duration::from_millis(10)).jitter_percent(20)));
    }

    #[test]
    fn know_a_policy_of_the_users() {
        #[derive(Debug)]
        struct Primes(&'static [u64]);

        impl RetryPolicy for Primes {
            fn delay(&self, tries: u32) -> Option<Duration> {
                self.0.get(tries as usize - 1).map(|seconds| Duration::from_secs(*seconds))
            }
        }

        entity!(Prime, #[queue(retry = custom(Primes(&[2, 3, 5])))]);
        assert_eq!(delays::<Prime>(), [Some(2 * SECOND), Some(3 * SECOND), Some(5 * SECOND), None]);
    }
}

/// Lints that careful users turn on are not disturbed by the derived code.
pub mod strict {
    #![deny(missing_docs, unreachable_pub, unused, clippy::pedantic, nonstandard_style)]
    #![deny(rust_2018_idioms, missing_debug_implementations, missing_copy_implementations)]

    pub mod public {
        //! A public module with a public entity.

        use super::super::payments;

        /// A public entity.
        #[derive(Debug, Clone, Copy, diesel::Queryable, diesel::Selectable, queueable::Queueable)]
        #[queue(retry = linear("5m", max = "2h"), max_tries = 10, budget = "30s")]
        pub struct Payment {
            /// Its key.
            pub id: i64,
        }
    }

    #[test]
    fn entities_compile_under_strict_lints() {
        let payment = public::Payment { id: 1 };
        assert_eq!((payment.id, <public::Payment as queueable::Queueable>::SETTINGS.max_tries), (1, 10));
    }
}
