//! The trigger on MySQL and MariaDB: values that look or compare alike, and rights.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Migrations, Queueable};

use crate::db::{Conn, Database};

diesel::table! {
    readings (id) {
        id -> BigInt,
        value -> Nullable<Float>,
        name -> Nullable<Text>,
        payload -> Nullable<Text>,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = readings)]
#[queue(rerun_on_change(value, name, payload))]
struct Reading {
    #[expect(dead_code, reason = "nobody asks which one it is")]
    id: i64,
}

const TABLE: &str = "CREATE TABLE readings (id BIGINT PRIMARY KEY NOT NULL, value FLOAT,
     name VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_general_ci, payload JSON);
     INSERT INTO readings VALUES (1, 1.0000001, 'one', '{\"a\": 1}')";

fn change_count(connection: &mut Conn) -> i64 {
    readings::table.select(reading_queue::change_count).get_result(connection).unwrap()
}

#[test]
fn values_that_read_alike_or_compare_alike_are_told_apart() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(TABLE).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Reading>()).unwrap();
    let mut count = 0;
    for change in ["value = 1.0000002", "name = 'One'", "name = 'One '", "name = 'Öne'", "payload = '{\"a\": 2}'"] {
        for _ in 0..2 {
            connection.batch_execute(&format!("UPDATE readings SET {change}")).unwrap();
        }
        count += 1;
        assert_eq!(change_count(&mut connection), count, "{change}");
    }
}

#[test]
fn whoever_may_not_create_triggers_is_told_what_is_missing() {
    let database = Database::new();
    let mut connection = database.connect();
    let name: String =
        diesel::select(diesel::dsl::sql::<diesel::sql_types::Text>("DATABASE()")).get_result(&mut connection).unwrap();
    let user = format!("u{}", &name[name.len() - 12..]);
    connection
        .batch_execute(&format!(
            "{TABLE}; CREATE USER '{user}'@'%' IDENTIFIED BY 'secret';
             GRANT ALL ON `{name}`.* TO '{user}'@'%'; REVOKE TRIGGER ON `{name}`.* FROM '{user}'@'%'"
        ))
        .unwrap();
    let (scheme, rest) = database.url().split_once("://").unwrap();
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let mut limited = Conn::establish(&format!("{scheme}://{user}:secret@{host}")).unwrap();
    let refused = limited.run_pending_migrations(Migrations::new().entity::<Reading>()).unwrap_err().to_string();
    connection.batch_execute(&format!("DROP USER '{user}'@'%'")).unwrap();
    // A server with a binary log asks for more, and says so first.
    let mends = ["GRANT TRIGGER ON `readings`", "SET GLOBAL log_bin_trust_function_creators = 1"];
    assert!(mends.iter().any(|mend| refused.contains(mend)), "{refused}");
    // The refused migration has kept its first steps, and an account with the right adds the rest.
    connection.run_pending_migrations(Migrations::new().entity::<Reading>()).unwrap();
    connection.batch_execute("UPDATE readings SET name = 'two'").unwrap();
    assert_eq!(change_count(&mut connection), 1);
}
