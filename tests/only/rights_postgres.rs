//! Obstacles between a role and its rows that only PostgreSQL has: row security, and other roles' functions and operators.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Error, Finding, Message, Outcome, Queueable, Status};

use crate::db::{Account, Conn, SMALLEST_RIGHTS};
use crate::suite::bank::{Bank, Payment, book};

fn found(account: &Account<'_>) -> Vec<Finding> {
    let pool = Pool::builder().max_size(3).build(ConnectionManager::<Conn>::new(&account.url)).unwrap();
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    match Payment::poller(pool, handler).workers(1).run_until_idle() {
        Ok(_) => Vec::new(),
        Err(Error::Unsafe(findings)) => findings,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn row_security_without_a_policy_is_refused_with_one_that_mends_it() {
    let bank = Bank::new();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let id = bank.enqueue([1])[0];
    let mut owner = bank.connect();
    owner.batch_execute("ALTER TABLE payments ENABLE ROW LEVEL SECURITY").unwrap();
    let findings = found(&account);
    assert!(findings[0].problem.starts_with("row security of "), "{findings:?}");
    assert_eq!(
        findings[0].mend,
        format!("CREATE POLICY queueable ON \"payments\" TO {} USING (true) WITH CHECK (true)", account.name)
    );
    // The right to read is not enough.
    owner.batch_execute("CREATE POLICY reading ON payments FOR SELECT USING (true)").unwrap();
    assert_eq!(found(&account), findings);
    owner.batch_execute(&findings[0].mend).unwrap();
    assert_eq!(found(&account), []);
    assert_eq!(bank.state(id).status, Status::Success);
}

#[test]
fn a_published_table_without_an_identity_is_refused_with_one_that_mends_it() {
    let bank = Bank::new();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let id = bank.enqueue([1])[0];
    let mut owner = bank.connect();
    owner
        .batch_execute("ALTER TABLE payments REPLICA IDENTITY NOTHING; CREATE PUBLICATION news FOR TABLE payments")
        .unwrap();
    let findings = found(&account);
    assert!(findings[0].problem.starts_with("it cannot write the columns "), "{findings:?}");
    assert_eq!(findings[0].mend, "ALTER TABLE \"payments\" REPLICA IDENTITY FULL");
    owner.batch_execute(&findings[0].mend).unwrap();
    assert_eq!(found(&account), []);
    assert_eq!(bank.state(id).status, Status::Success);
}

#[test]
fn rows_outside_of_the_policies_are_not_worked() {
    let bank = Bank::new();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let ids = bank.enqueue([1, 2]);
    let policy = "ALTER TABLE payments ENABLE ROW LEVEL SECURITY; \
        CREATE POLICY small ON payments USING (amount_cents = 1)";
    bank.connect().batch_execute(policy).unwrap();
    assert_eq!(found(&account), []);
    assert_eq!(bank.state(ids[0]).status, Status::Success);
    assert_eq!(bank.state(ids[1]).status, Status::NotAttempted);
}

#[test]
fn no_function_and_no_operator_of_somebody_else_runs_as_the_worker() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection.batch_execute("CREATE SEQUENCE trapped; GRANT USAGE ON SEQUENCE trapped TO PUBLIC").unwrap();
    let trap = |signature: &str, returns: &str, value: &str| {
        format!(
            "CREATE FUNCTION public.{signature} RETURNS {returns} LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM nextval('public.trapped'); RETURN {value}; END $$"
        )
    };
    for (signature, returns, value) in [
        ("concat_ws(text, name, name)", "text", "'trap'"),
        ("clock_timestamp()", "timestamptz", "pg_catalog.now()"),
        ("statement_timestamp()", "timestamptz", "pg_catalog.now()"),
        ("set_config(unknown_name text, value varchar, local boolean)", "text", "value"),
        ("pg_terminate_backend(integer)", "boolean", "true"),
        ("times(integer, interval)", "interval", "interval '1 hour'"),
        ("times(bigint, interval)", "interval", "interval '1 hour'"),
        ("times(numeric, integer)", "numeric", "7"),
        ("joined(text, bigint)", "text", "'trap'"),
        ("current_setting(varchar)", "text", "'trap'"),
    ] {
        connection.batch_execute(&trap(signature, returns, value)).unwrap();
    }
    connection
        .batch_execute(
            "CREATE OPERATOR public.* (LEFTARG = integer, RIGHTARG = interval, FUNCTION = public.times); \
             CREATE OPERATOR public.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = public.times); \
             CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.times); \
             CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = bigint, FUNCTION = public.joined)",
        )
        .unwrap();
    bank.enqueue([1, 2, 13]);
    let tally = bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| match payment.amount_cents {
        13 => Err(queueable::Failure::retry("to be tried again")),
        _ => book(payment, message),
    });
    assert_eq!((tally.succeeded, tally.retried), (2, 1));
    let is_called: bool =
        sql::<diesel::sql_types::Bool>("SELECT is_called FROM trapped").get_result(&mut connection).unwrap();
    assert!(!is_called, "a trap was sprung");
}
