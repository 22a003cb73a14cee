//! The example of group mode, `examples/services/emails`, as a process on a real database.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;

use super::main_job::program::Program;
use super::main_job::report;
use crate::db::Database;

#[test]
fn the_mails_of_the_article_are_sent_once_and_its_owners_are_not_needed() {
    let database = Database::new();
    let arguments = ["--json", "--database-url", database.url()];
    let report = report(&Program::run("emails", arguments).well());
    let check = &report["check"];
    assert_eq!((&check["holds"], &check["faults"]), (&true.into(), &serde_json::json!([])));
    assert_eq!(check["taken"], check["sent"]);
    let count = |rows: &str| -> i64 {
        sql::<BigInt>(&format!("SELECT COUNT(*) FROM unsent_emails WHERE {rows}"))
            .get_result(&mut database.connect())
            .unwrap()
    };
    // The ids are 1 to 124, of which 20 are old.
    assert_eq!(count("id > 20 AND id % 13 = 0"), 8);
    assert_eq!(count("mail_status = 'FAILED' AND id % 13 = 0 AND status = 'unsent'"), 8);
    assert_eq!(count("mail_status = 'SUCCESS' AND status = 'sent' AND mail_next_attempt_time IS NULL"), 104 - 8);
    assert_eq!(count("mail_status = 'NOT_ATTEMPTED' AND status = 'sent' AND mail_try_count = 0"), 20);
    assert_eq!(count("owner <> 0"), 0);
}
