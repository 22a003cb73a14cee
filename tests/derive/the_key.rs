//! The primary key, of any type and of several columns.

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
