//! The index of lanes: the migration adds it, the queue's removal drops it, and a poller that starts without it names
//! it and its SQL.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use queue_core::internals::backend::Schema;
use queueable::{Error, Message, Outcome, Queueable};

use super::{job, jobs, jobs_of};
use crate::db::{Conn, Database, SHAPE};
use crate::suite::keyed::erased;

job!(Serial, serial_queue, serial_by = company_id);
job!(Fair, fair_queue, fair_by = company_id);

fn indexes_of_lanes(database: &Database) -> Vec<String> {
    let rows: Vec<Option<String>> =
        diesel::dsl::sql::<Nullable<Text>>(&SHAPE.replace("$table", "jobs")).load(&mut database.connect()).unwrap();
    let mut names: Vec<_> = rows
        .into_iter()
        .flatten()
        .filter_map(|line| line.find("queueable_lane_").map(|begin| line[begin..].to_owned()))
        .map(|name| name.split([' ', '"', '`']).next().unwrap().to_owned())
        .collect();
    names.dedup();
    names
}

#[test]
fn the_migration_adds_the_index_and_its_revert_drops_it() {
    let database = jobs_of::<Serial>();
    let mut connection = database.connect();
    assert_eq!(indexes_of_lanes(&database).len(), 1);
    let target = erased::<Serial>().target().unwrap();
    connection.add_queue(&target).unwrap();
    assert_eq!(indexes_of_lanes(&database).len(), 1, "a second time changes nothing");
    connection.remove_queue(&target).unwrap();
    assert_eq!(indexes_of_lanes(&database), Vec::<String>::new());
}

/// That of serial lanes may end with the key.
#[test]
fn the_indexes_of_serial_and_of_fair_lanes_have_names_of_their_own() {
    let (serial, fair) = (erased::<Serial>().target().unwrap(), erased::<Fair>().target().unwrap());
    assert_ne!(Conn::index_names(&serial), Conn::index_names(&fair));
}

#[test]
fn a_start_without_the_index_says_how_to_add_it() {
    let database = jobs_of::<Serial>();
    let mut connection = database.connect();
    let index = indexes_of_lanes(&database).remove(0);
    let of = if crate::db::NAME == "mysql" { " ON jobs" } else { "" };
    connection.batch_execute(&format!("DROP INDEX {index}{of}")).unwrap();
    let poller = || {
        let handler = |_: &Serial, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        Serial::poller(database.pool(3), handler).workers(1).run_until_idle()
    };
    let Err(Error::Unsafe(findings)) = poller() else { panic!("the index is missing") };
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert!(finding.problem.contains(&index), "{finding:?}");
    finding.mend.split("; ").for_each(|statement| connection.batch_execute(statement).unwrap());
    assert_eq!(poller().unwrap().succeeded, 0);
}
