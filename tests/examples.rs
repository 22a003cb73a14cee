//! The examples run as the programs they are: each succeeds, and the main job says what is wrong with its input.

use std::fs;
use std::path::{Path, PathBuf};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::program::{Ended, Program};

#[allow(unused, reason = "the suite needs more of it")]
mod program;

#[test]
fn adopt_existing_table_leaves_the_history_alone() {
    let said = Program::run("adopt_existing_table", NONE).well();
    assert_eq!(said.matches("goes to").count(), 2, "{said}");
}

#[test]
fn domain_filters_work() {
    Program::run("domain_filters", NONE).well();
}

#[test]
fn two_queues_on_one_table_keep_apart() {
    let said = Program::run("two_queues_on_one_table", NONE).well();
    assert!(said.contains("payment 3: charge FAILED, receipt NOT_ATTEMPTED"), "{said}");
}

#[test]
fn a_closure_handles() {
    assert!(Program::run("closure_handler", NONE).well().contains("2 sent, 1 failed"));
}

#[test]
fn a_hand_on_a_running_queue_shows_what_it_does() {
    let said = Program::run("operate", NONE).well();
    assert!(said.contains("no registered poller serves payments.status"), "{said}");
    assert!(said.contains("belongs to the environment `production`, and the poller is one of `staging`"), "{said}");
    assert!(said.contains("company_id = 3345 paused since"), "{said}");
    assert!(said.contains("1 worker in each process, retries after 1m since"), "{said}");
    assert!(said.contains("(pid"), "{said}");
    assert!(said.ends_with("check: 10 payments, 3 that have left, 1 failed, 1 skipped\n"), "{said}");
}

#[test]
fn a_payroll_that_is_rolled_back_notifies_nobody() {
    let said = Program::run("payroll", NONE).well();
    assert!(said.contains("February is not paid: the company's account lacks 1500000 cents"), "{said}");
    assert!(said.contains("<number> there is no mailbox '<value>'"), "{said}");
    assert!(said.contains("notification 5: failed for good, after 1 try: 550"), "{said}");
    assert!(said.contains("check: 5 salaries, 5 notifications"), "{said}");
}

#[test]
fn groups_keep_the_books() {
    let said = Program::run("ledger_groups", NONE).well();
    assert!(said.contains("9950 messages, 50 of them failed"), "{said}");
    assert!(said.contains("4950 booked, 4950 receipts"), "{said}");
}

#[test]
fn invoices_pass_their_stages() {
    let said = Program::run("pipeline", NONE).well();
    assert!(said.contains("210 invoices are rendered\nRENDER: 0 (0 finished), SEND: 210"), "{said}");
    assert!(said.contains("210 invoices are sent, 30 at the second try; 210 are booked"), "{said}");
    assert!(said.contains("check: every invoice was sent once and booked once"), "{said}");
}

#[test]
fn nightly_jobs_run_by_the_clocks_of_their_places() {
    // The night in which Berlin's clocks are set forward: there is no 02:30.
    let said = Program::run("nightly", ["--now", "2026-03-29T00:30:00Z"]).well();
    assert!(said.contains("Sun 2026-03-29 01:00:00 * closing of the books Sun 03:00:00 CEST +02:00"), "{said}");
    assert!(said.contains("Mon 2026-03-30 00:30:00 * closing of the books Mon 02:30:00 CEST +02:00"), "{said}");
    // And the night in which they are set back: 02:30 comes twice, and the first one counts.
    let said = Program::run("nightly", ["--now", "2025-10-25T12:00:00Z", "--days", "2"]).well();
    assert!(said.contains("Sun 2025-10-26 00:30:00 * closing of the books Sun 02:30:00 CEST +02:00"), "{said}");
    assert!(said.contains("Mon 2025-10-27 01:30:00 * closing of the books Mon 02:30:00 CET +01:00"), "{said}");
    assert!(said.contains("closing of the books runs for 2025-10-26 00:30:00 UTC"), "{said}");
    assert!(said.contains("the time zone `Europe/Berlni` is unknown"), "{said}");
    assert!(said.contains("check: 3 jobs have run once each"), "{said}");
}

#[test]
fn a_full_text_index_stays_in_step_with_its_folder() {
    let said = Program::run("reindex", NONE).well();
    assert_eq!(said.matches("lost.md: Lost updates").count(), 2, "indexed again, for it has changed meanwhile: {said}");
    assert_eq!(said.matches("check: the index is in step").count(), 2, "{said}");
    let place = Place::new();
    let file = place.file("one.md", "# One\n\nof a kind\n");
    place.file("two.txt", "two of \"another\"\n");
    let folder = Path::new(&file).parent().unwrap().to_str().unwrap();
    let run = |words| Program::run("reindex", [folder, "--database", &place.database, "--search", words]).well();
    let first = run("of a");
    assert!(first.contains("in step with 2 files") && first.contains("one.md: # One [of] [a] kind"), "{first}");
    fs::write(&file, "# One\n\nmore\n").unwrap();
    let second = run("\"another\"");
    assert!(
        second.contains("indexed") && second.contains("one.md: One") && second.contains("1 files with"),
        "{second}"
    );
    assert_eq!(second.matches("indexed").count(), 1, "the other file is the same: {second}");
    fs::remove_file(&file).unwrap();
    assert!(run("more").contains("0 files with"));
    let refused = Program::run("reindex", ["no/such/folder"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("cannot read the folder no/such/folder"), "{}", refused.stderr);
}

#[test]
fn every_payment_is_in_one_of_three_pools() {
    let said = Program::run("pools", NONE).well();
    assert!(said.contains("all are worked: 0 waiting, 900 finished, 100 refused"), "{said}");
    assert!(said.contains("50 refused: account 13 is closed"), "{said}");
    assert!(said.contains("50 rows are back in the queue"), "{said}");
    assert!(said.contains("at the end: 0 waiting, 950 finished, 50 refused"), "{said}");
}

#[test]
fn a_shutdown_finishes_what_runs_or_rolls_it_back() {
    let said = Program::run("graceful_shutdown", NONE).well();
    // On a busy machine the next report begins before the shutdown, and is finished too.
    let first = said.lines().find(|line| line.starts_with("finished ")).unwrap_or_default();
    assert!(first.ends_with(", rolled back 0") && said.contains("finished 0, rolled back 1"), "{said}");
}

#[test]
fn a_web_service_charges_what_it_is_sent_and_ends_in_order() {
    let place = Place::new();
    let mut service = Program::start("axum_service", ["--listen", "127.0.0.1:0", "--database", &place.database]);
    let url = service.line_after("listening on ");
    let agent: ureq::Agent = ureq::Agent::config_builder().proxy(None).http_status_as_error(false).build().into();
    let answer = |answered: Result<ureq::http::Response<ureq::Body>, ureq::Error>| {
        let mut answered = answered.expect("the service answers");
        (answered.status().as_u16(), answered.body_mut().read_to_string().expect("answers are texts"))
    };
    let get = |path: &str| answer(agent.get(format!("{url}{path}")).call());
    let post = |body: Value| {
        let request = agent.post(format!("{url}/payments")).header("content-type", "application/json");
        answer(request.send(body.to_string()))
    };

    assert_eq!(post(json!({ "company_id": 3345, "amount_cents": 1999 })), (201, r#"{"id":1}"#.into()));
    assert_eq!(post(json!({ "company_id": 3345, "amount_cents": 1_000_001 })), (201, r#"{"id":2}"#.into()));
    let (status, said) = post(json!({ "company_id": 3345, "amount_cents": 0 }));
    assert!(status == 422 && said.contains("has to be positive"), "{said}");
    let (status, said) = post(json!({ "company_id": 3345, "amount": 5 }));
    assert!(status == 422 && said.contains("unknown field `amount`"), "{said}");
    assert_eq!(get("/payments/3"), (404, r#"{"error":"there is no payment 3"}"#.into()));

    let mut ended = |id: i64| {
        service.await_answer("the payment has ended", || {
            let (status, said) = get(&format!("/payments/{id}"));
            let state: Value = serde_json::from_str(&said).expect("the answer is JSON");
            assert_eq!((status, &state["id"]), (200, &json!(id)));
            (state["status"] != "NOT_ATTEMPTED").then_some(state)
        })
    };
    let charged = json!({ "id": 1, "company_id": 3345, "amount_cents": 1999, "status": "SUCCESS", "try_count": 1, "last_error": null });
    assert_eq!(ended(1), charged);
    let refused = ended(2);
    assert_eq!((&refused["status"], &refused["try_count"]), (&json!("FAILED"), &json!(1)));
    assert!(refused["last_error"].as_str().is_some_and(|text| text.contains("charged by hand")), "{refused}");
    assert_eq!(place.count("SELECT COUNT(*) FROM ledger WHERE amount_cents = 1999"), 1);

    let (status, said) = get("/healthz");
    assert!(status == 200 && said.contains("\"alive\":true"), "{said}");
    let (status, said) = get("/metrics");
    assert!(status == 200 && said.contains("queueable_attempts_total"), "{said}");

    service.signal("TERM");
    let said = service.end().well();
    assert!(said.contains("shutting down\ncharged 1, rolled back 0"), "{said}");
}

#[test]
fn a_shutdown_follows_a_signal_from_outside() {
    let mut program = Program::start("graceful_shutdown", ["wait"]);
    program.terminate_after("waiting for SIGTERM");
    let said = program.end().well();
    assert!(said.contains("signal 15: shutting down"), "{said}");
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let mut program = Program::start("graceful_shutdown", ["wait"]);
    program.terminate_twice_after("waiting for SIGTERM");
    assert_ended_at_once(&program.end());
}

#[test]
fn a_signal_ends_the_main_job_in_good_order() {
    let place = Place::new();
    let mut program = Program::start("payments", place.arguments(["--json"]));
    program.await_answer("some payments are booked", || (place.booked() > 20).then_some(()));
    program.signal("TERM");
    let cut_short = report(program.end());
    assert_eq!(cut_short["check"]["holds"], true);
    assert!(place.booked() < 4879 && cut_short["check"]["ledger_rows"] == place.booked());
    let rest = report(place.run(["--json", "--resume"]));
    assert_eq!((&rest["check"]["holds"], &rest["check"]["ledger_rows"]), (&json!(true), &json!(4879)));
    let suspects = "SELECT COUNT(*) FROM payments WHERE last_attempt_error_message LIKE '%process ended%'";
    assert_eq!(place.count(suspects), 0);
}

#[test]
fn a_second_signal_ends_the_main_job_at_once_and_the_books_survive() {
    let place = Place::new();
    let mut program = Program::start("payments", place.arguments(["--json"]));
    program.await_answer("some payments are booked", || (place.booked() > 20).then_some(()));
    program.terminate_twice_after("");
    assert_ended_at_once(&program.end());
    let rest = report(place.run(["--json", "--resume"]));
    assert_eq!((&rest["check"]["holds"], &rest["check"]["ledger_rows"]), (&json!(true), &json!(4879)));
}

fn assert_ended_at_once(ended: &Ended) {
    // 128 and the number of whichever signal came second.
    assert!([Some(130), Some(143)].contains(&ended.status.code()), "{ended:?}");
}

#[test]
fn mails_are_sent_in_groups() {
    let said = Program::run("emails", NONE).well();
    // 104 mails: every 13th recipient does not exist, every 7th mailbox is full once.
    assert!(said.contains("96 mails are sent, 8 were refused for good"), "{said}");
    assert!(said.contains("check: table and mail server agree"), "{said}");
    refused(Program::run("emails", ["--database-url", "no/such/file.sqlite"]), &["cannot open the database no/such"]);
    let place = Place::new();
    place.execute("CREATE TABLE unsent_emails (id INTEGER PRIMARY KEY)");
    refused(Program::run("emails", ["--database-url", &place.database]), &["it needs an empty database"]);
}

#[test]
fn webhooks_are_posted_under_a_lease() {
    let said = Program::run("webhooks", NONE).well();
    assert!(said.contains("SUCCESS              171") && said.contains("FAILED                29"), "{said}");
    assert!(said.contains("check: table and endpoint agree"), "{said}");
    assert!(said.contains("171 answers are written"), "{said}");
    refused(Program::run("webhooks", ["--only", "work"]), &["give --database-url"]);
    refused(Program::run("webhooks", ["--only", "check", "--database-url", "x"]), &["give --endpoint"]);
    refused(Program::run("webhooks", ["--database-url", "no/such/file.sqlite"]), &["cannot open the database no/such"]);
    let place = Place::new();
    place.execute("CREATE TABLE webhooks (id INTEGER PRIMARY KEY)");
    refused(Program::run("webhooks", ["--database-url", &place.database]), &["it needs an empty database"]);
}

#[test]
fn the_main_job_books_the_default_file() {
    let place = Place::new();
    let report = report(place.run(["--json"]));
    assert_eq!(report["statuses"], json!({"SUCCESS": 4879, "FAILED": 121, "unknown": 0}));
    assert_eq!(report["errors"], json!([{"message": "the amount is not positive", "count": 121}]));
    assert_eq!(report["handled_here"]["retried"], 46, "amounts that end in 13 fail once");
    assert_eq!((&report["company"]["id"], &report["company"]["pending"]), (&json!(3345), &json!([])));
    let failed = report["company"]["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!((&failed[0]["company_id"], &failed[0]["status"]), (&json!(3345), &json!("FAILED")));
    let check = &report["check"];
    assert_eq!(check["holds"], true);
    assert_eq!((&check["ledger_rows"], &check["success_rows"]), (&json!(4879), &json!(4879)));
    let cents: i64 = amounts(&program::payments(5000)).into_iter().filter(|amount| *amount > 0).sum();
    for sum in ["ledger_cents", "success_cents", "balance_cents"] {
        assert_eq!(check[sum], cents, "{sum}");
    }
    assert_eq!(check["old_rows_untouched"], 1000);
    assert_eq!(place.count("SELECT COALESCE(SUM(amount_cents), 0) FROM ledger"), cents);
}

#[test]
fn the_main_job_prints_the_same_for_people() {
    let place = Place::new();
    let said = place.run(["--company", "3346"]).well();
    for line in [
        "SUCCESS             4879",
        "FAILED               121",
        "121 x  the amount is not positive",
        "company 3346: 0 pending",
        "check: the books agree",
        "1000 of 1000 old rows as they were",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
}

#[test]
fn the_default_file_is_made_by_its_rule() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/payments.csv");
    let found = fs::read_to_string(file).unwrap();
    assert!(found == program::payments(5000), "write what `program::payments(5000)` returns into the file");
}

#[test]
fn a_run_is_not_repeated_but_resumed() {
    let place = Place::new();
    let input = place.file("two.csv", "company_id,amount_cents\n3345,100\n7,250\n");
    let first = report(place.run(["--json", "--input", &input]));
    assert_eq!(first["check"]["balance_cents"], 350, "an unknown company gets an account");
    refused(place.run(["--input", &input]), &["holds a run already (2 of 2 payments", "--resume"]);
    refused(place.run(["--resume", "--input", "other.csv"]), &["two.csv", "name an empty database for another file"]);
    fs::remove_file(&input).unwrap();
    let again = report(place.run(["--json", "--resume"]));
    assert_eq!((&again["check"], &again["statuses"]), (&first["check"], &first["statuses"]));
    assert_eq!(again["handled_here"]["succeeded"], 0);
}

#[test]
fn a_killed_run_is_resumed() {
    let place = Place::new();
    let mut program = Program::start("payments", place.arguments(["--json"]));
    program.await_answer("some payments are booked", || (place.booked() > 20).then_some(()));
    program.kill();
    assert!(place.booked() < 4879);
    refused(place.run(["--json"]), &["of 5000 payments", "--resume"]);
    let report = report(place.run(["--json", "--resume"]));
    assert_eq!((&report["check"]["holds"], &report["check"]["ledger_rows"]), (&json!(true), &json!(4879)));
    assert_eq!(place.booked(), 4879);
}

#[test]
fn without_a_database_named_a_run_begins_afresh_unless_the_last_one_was_cut_short() {
    let mut place = Place::new();
    place.database = place.directory.path().join("target/payments.sqlite").to_str().unwrap().to_owned();
    let input = place.file("payments.csv", &program::payments(5000));
    let arguments = ["--json", "--input", &input];
    let start = |more| Program::start_in(place.directory.path(), "payments", arguments.into_iter().chain(more));
    let first = report(start(None).end());
    assert_eq!(first["check"]["holds"], true);
    let mut second = start(None);
    second.await_answer("the second run has begun", || {
        let first_is_gone = sql::<BigInt>("SELECT COUNT(*) FROM payments WHERE status = 'NOT_ATTEMPTED' AND id > 5000");
        first_is_gone.get_result::<i64>(&mut place.connect()).is_ok_and(|rows| rows > 0).then_some(())
    });
    second.kill();
    refused(start(None).end(), &["holds a run that was cut short", "of 5000 payments", "--resume"]);
    let resumed = report(start(Some("--resume")).end());
    assert_eq!((&resumed["check"], &resumed["statuses"]), (&first["check"], &first["statuses"]));
}

#[test]
fn a_bad_file_enqueues_nothing() {
    let head = "company_id,amount_cents\n";
    for (text, expected) in [
        ("", vec!["line 1 of", "expected the header `company_id,amount_cents`"]),
        ("company,cents\n1,2\n", vec!["line 1 of", "found `company,cents`"]),
        (head, vec!["holds no payment", "3345,1250"]),
        (&format!("{head}1,100\n2,12.5\n"), vec!["line 3 of", "amount_cents is `12.5`", "a whole number of cents"]),
        (&format!("{head}Hopper,100\n"), vec!["line 2 of", "company_id is `Hopper`", "a company's number"]),
        (&format!("{head}1,100\n\n1,100,EUR\n"), vec!["line 4 of", "expected 2 fields", "found 3"]),
        (&format!("{head}1,\n"), vec!["line 2 of", "amount_cents is ``"]),
        (&format!("{head}1,{0}\n1,{0}\n", i64::MAX), vec!["line 3 of", "64 bits"]),
        (&format!("{head}1,99999999999999999999\n"), vec!["line 2 of", "amount_cents is `9999"]),
    ] {
        let place = Place::new();
        let input = place.file("bad.csv", text);
        refused(place.run(["--input", &input]), &expected);
        assert!(!Path::new(&place.database).exists(), "nothing is touched for {text:?}");
        // One that resumes has looked into the database first.
        refused(place.run(["--resume", "--input", &input]), &expected);
        assert_eq!(place.count("SELECT COUNT(*) FROM payments WHERE id > 1000"), 0);
        assert_eq!(place.count("SELECT COUNT(*) FROM payments"), 1000);
    }
    let place = Place::new();
    fs::write(place.directory.path().join("latin1.csv"), b"company_id,amount_cents\n1,200\n1,\xe9\n").unwrap();
    let latin1 = place.directory.path().join("latin1.csv").display().to_string();
    refused(place.run(["--input", &latin1]), &["line 3 of", "latin1.csv", "expected UTF-8"]);
    refused(place.run(["--input", "no/such/file.csv"]), &["cannot open the input file no/such/file.csv"]);
}

#[test]
fn a_wrong_database_is_named() {
    let job = |url: &str| Program::run("payments", ["--database-url", url]);
    refused(job("no/such/directory/file.sqlite"), &["cannot open the database no/such/directory/file.sqlite"]);
    refused(job("oracle://localhost/x"), &["unknown kind of database `oracle://`", "postgres://"]);
    let place = Place::new();
    fs::write(&place.database, "this is a text file, and a long one at that".repeat(100)).unwrap();
    refused(place.run(NONE), &["not a database"]);
    for kind in ["postgres", "mysql"] {
        // Port 1 has no server; and a build without the feature says so first.
        let ended = job(&format!("{kind}://nobody@127.0.0.1:1/nothing"));
        let built_without = ended.stderr.contains("built without");
        let expected = if built_without { format!("--features {kind}") } else { "cannot open the database".to_owned() };
        refused(ended, &[&expected, &format!("{kind}://")]);
    }
}

#[test]
fn somebody_elses_payments_are_left_alone() {
    // Before the example's migrations, they meet a table in their way.
    let place = Place::new();
    place
        .execute("CREATE TABLE payments (id INTEGER PRIMARY KEY, euros TEXT); INSERT INTO payments VALUES (1, '5,00')");
    refused(place.run(NONE), &["needs an empty database", "payments"]);
    assert_eq!(place.count("SELECT COUNT(*) FROM payments"), 1);
    assert!(!place.has("companies") && !place.has("ledger"), "nothing half-made is left");

    // And after them, when somebody has changed the table.
    let place = Place::new();
    let input = place.file("one.csv", "company_id,amount_cents\n3345,100\n");
    place.run(["--input", &input]).well();
    place.execute("ALTER TABLE payments RENAME COLUMN amount_cents TO euros");
    refused(place.run(["--resume"]), &["the table payments is not this example's", "amount_cents"]);
}

#[test]
fn a_wrong_argument_is_named() {
    refused(Program::run("payments", ["--workers", "0"]), &["--workers", "1..=64"]);
    refused(Program::run("payments", ["--company", "Hopper"]), &["--company", "Hopper"]);
}

const NONE: [&str; 0] = [];

/// A directory with a database that is not there yet.
struct Place {
    directory: TempDir,
    database: String,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("payments.sqlite").to_str().unwrap().to_owned();
        Self { directory, database }
    }

    /// Writes a file and returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let file: PathBuf = self.directory.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn arguments<'a>(&'a self, more: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        ["--database-url", &self.database].into_iter().chain(more).collect()
    }

    /// Runs the main job on the database.
    fn run<'a>(&'a self, more: impl IntoIterator<Item = &'a str>) -> Ended {
        Program::run("payments", self.arguments(more))
    }

    fn connect(&self) -> SqliteConnection {
        let mut connection = SqliteConnection::establish(&self.database).unwrap();
        connection.batch_execute("PRAGMA busy_timeout = 5000").unwrap();
        connection
    }

    fn execute(&self, statements: &str) {
        self.connect().batch_execute(statements).unwrap();
    }

    fn count(&self, query: &str) -> i64 {
        sql::<BigInt>(query).get_result(&mut self.connect()).unwrap()
    }

    fn has(&self, table: &str) -> bool {
        self.count(&format!("SELECT COUNT(*) FROM sqlite_schema WHERE name = '{table}'")) > 0
    }

    /// How many payments are in the ledger; none before there is one.
    fn booked(&self) -> i64 {
        sql::<BigInt>("SELECT COUNT(*) FROM ledger").get_result(&mut self.connect()).unwrap_or(0)
    }
}

fn report(ended: Ended) -> Value {
    let said = ended.well();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Asserts that a program ended with a message that says all of this, and with nothing on its standard output.
fn refused(ended: Ended, expected: &[&str]) {
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
    for text in expected {
        assert!(ended.stderr.contains(text), "`{text}` is not in: {}", ended.stderr);
    }
}

fn amounts(csv: &str) -> Vec<i64> {
    csv.lines().skip(1).map(|line| line.split_once(',').unwrap().1.parse().unwrap()).collect()
}
