//! A closure as a handler: the values that it captures are its configuration.
//!
//! `cargo run --example closure_handler`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{Failure, Message, Migrations, Outcome, Queueable};

use self::schema::letters;

mod schema {
    diesel::table! {
        letters (id) {
            id -> BigInt,
            recipient -> Text,
        }
    }
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = letters)]
struct Letter {
    id: i64,
    recipient: String,
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let url = directory.path().join("letters.sqlite").display().to_string();
    let mut connection = SqliteConnection::establish(&url)?;
    connection.batch_execute("CREATE TABLE letters (id INTEGER PRIMARY KEY NOT NULL, recipient TEXT NOT NULL)")?;
    connection.run_pending_migrations(Migrations::new().entity::<Letter>()).map_err(anyhow::Error::from_boxed)?;

    for recipient in ["Ada", "Grace", "nobody"] {
        diesel::insert_into(letters::table)
            .values((letters::recipient.eq(recipient), Letter::due_now()))
            .execute(&mut connection)?;
    }

    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let greeting = "Dear";
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<SqliteConnection>::new(&url))?;
    let tally = Letter::poller(pool, move |letter: &Letter, message: &mut Message<'_, SqliteConnection>| {
        if letter.recipient == "nobody" {
            return Err(Failure::fatal("there is no such recipient"));
        }
        println!("letter {}, try {}: {greeting} {}, ..", letter.id, message.try_number(), letter.recipient);
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::Done)
    })
    .workers(2)
    .run_until_idle()?;

    println!("{} sent, {} failed", tally.succeeded, tally.failed);
    ensure!((tally.succeeded, tally.failed) == (2, 1));
    ensure!(sent.load(Ordering::Relaxed) == 2);
    Ok(())
}
