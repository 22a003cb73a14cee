//! Tests of the handler, by the test kit, with a mail server on this machine. Run them with `cargo test -p queueable-services
//! --test emails`.

#[allow(unused, reason = "the job needs more of it")]
mod mails;
mod send;
mod sink;

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use lettre::SmtpTransport;
use queueable::testing::{SqliteDatabase, SqliteTemplate, TestQueue, assert_schema};
use queueable::{Migrations, Queueable};

use self::mails::{EmailText, UnsentEmail, email_texts, unsent_emails};
use self::send::Send;
use self::sink::Sink;

type Conn = SqliteConnection;

static SHOP: SqliteTemplate = SqliteTemplate::new(|connection| {
    connection.batch_execute(include_str!("tables/sqlite.sql"))?;
    connection.run_pending_migrations(Migrations::new().entity::<UnsentEmail>())?;
    Ok(())
});

/// A database with these mails, which are due.
fn with_mails(ids: impl IntoIterator<Item = i32>) -> SqliteDatabase {
    let mut shop = SHOP.begin();
    for id in ids {
        diesel::insert_into(unsent_emails::table)
            .values((unsent_emails::id.eq(id), unsent_emails::status.eq("unsent"), UnsentEmail::due_now()))
            .execute(&mut shop.connection)
            .unwrap();
        diesel::insert_into(email_texts::table).values(EmailText::of(id)).execute(&mut shop.connection).unwrap();
    }
    shop
}

/// The handler, for a mail server on this port.
fn to(port: u16) -> Send {
    Send {
        smtp: SmtpTransport::builder_dangerous("127.0.0.1").port(port).timeout(Some(Duration::from_secs(5))).build(),
    }
}

fn status(connection: &mut Conn, id: i32) -> Option<String> {
    unsent_emails::table.find(id).select(unsent_emails::status).get_result(connection).unwrap()
}

#[test]
fn mails_are_sent_and_marked() {
    let connection = &mut with_mails(1..=6).connection;
    let sink = Sink::start().unwrap();
    assert_eq!(UnsentEmail::drain(connection, &to(sink.port)).unwrap().succeeded(), 6);
    assert_eq!((sink.seen().taken.len(), status(connection, 6).as_deref()), (6, Some("sent")));
}

#[test]
fn a_mailbox_that_does_not_exist_fails_for_good_and_its_neighbours_are_sent() {
    // The address of every thirteenth reader does not exist.
    let connection = &mut with_mails(12..=15).connection;
    let sink = Sink::start().unwrap();
    let drained = UnsentEmail::drain(connection, &to(sink.port)).unwrap();
    assert!(drained.of(13).next().unwrap().error.as_ref().unwrap().contains("no such mailbox"), "{drained}");
    assert_eq!((drained.failed(), status(connection, 13).as_deref()), (1, Some("unsent")));
    assert_eq!(status(connection, 12).as_deref(), Some("sent"));
}

#[test]
fn a_full_mailbox_gets_its_mail_at_the_second_try_under_one_message_id() {
    // The mailbox of every seventh reader is full once.
    let connection = &mut with_mails([7]).connection;
    let sink = Sink::start().unwrap();
    let drained = UnsentEmail::drain_until_idle(connection, &to(sink.port)).unwrap();
    assert_eq!((drained.retried(), drained.succeeded()), (1, 1), "{drained}");
    let seen = sink.seen();
    assert_eq!((seen.refused, seen.taken.into_values().collect::<Vec<_>>()), (1, vec![1]));
}

#[test]
fn without_a_mail_server_a_mail_stays_unsent_and_gives_up_after_five_tries() {
    let connection = &mut with_mails([1]).connection;
    // Port 1 has no server.
    let drained = UnsentEmail::drain_until_idle(connection, &to(1)).unwrap();
    assert_eq!((drained.retried(), drained.failed()), (4, 1), "{drained}");
    assert_eq!(status(connection, 1).as_deref(), Some("unsent"));
}

#[test]
fn the_articles_table_has_what_the_queue_needs() {
    assert_schema!(&mut SHOP.open().connection, UnsentEmail);
}
