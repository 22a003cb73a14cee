//! What a program sends that knows columns by their names alone, and how the database finds the rows.

use std::sync::{Arc, Mutex};

use diesel::connection::{Instrumentation, InstrumentationEvent};
use diesel::prelude::*;

use crate::db::{self, Conn, NAME};

/// The texts of the statements on a connection, with what is bound.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<String>>>);

impl Instrumentation for Sent {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            self.0.lock().unwrap().push(query.to_string());
        }
    }
}

/// Returns the statements that a call sends.
pub(super) fn sent_by(connection: &mut Conn, call: impl FnOnce(&mut Conn)) -> Vec<String> {
    let sent = Sent::default();
    connection.set_instrumentation(sent.clone());
    call(connection);
    connection.set_instrumentation(None::<Box<dyn Instrumentation>>);
    let sent = sent.0.lock().unwrap().clone();
    sent.into_iter().filter(|sql| sql.starts_with("SELECT")).collect()
}

/// Returns how the database would run a statement that was sent.
pub(super) fn plan_of(connection: &mut Conn, sent: &str) -> String {
    let (sql, binds) = sent.split_once(" -- binds: ").expect("the binds stand behind the statement");
    let binds: Vec<serde_json::Value> = serde_json::from_str(binds).expect("only numbers and texts are bound");
    let literal = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), |text| format!("'{text}'"));
    // From the last one on: `$1` is also the beginning of `$12`.
    let sql = (1..=binds.len()).rev().fold(sql.to_owned(), |sql, place| {
        let value = literal(&binds[place - 1]);
        match NAME {
            "postgres" => sql.replace(&format!("${place}"), &value),
            _ => sql.rfind('?').map_or(sql.clone(), |at| format!("{}{value}{}", &sql[..at], &sql[at + 1..])),
        }
    });
    db::plan(connection, &sql)
}

/// Compares statements with those that were sent before.
pub(super) fn sql_of<const N: usize>(name: &str, titles: [&str; N], sql: &[String]) {
    assert_eq!(sql.len(), N, "{sql:#?}");
    let listing: String = titles.iter().zip(sql).map(|(title, sql)| format!("{title}:\n{sql}\n\n")).collect();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{NAME}_{name}"), listing);
    });
}
