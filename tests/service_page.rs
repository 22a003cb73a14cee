//! The service of `docs/service.md`: the page's commands and programs make a project, which does what the page's table says.
//! `.ci/nightly` runs it.

#[allow(unused, reason = "the suite needs more of it")]
mod program;
mod project;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use ureq::http::Request;

use self::program::Program;
use self::project::{Project, built, manifest};

fn read(page: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap()
}

/// What stands between two texts, each of which is there.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no `{from}`"));
    rest.split_once(to).unwrap_or_else(|| panic!("no `{to}` after `{from}`")).0
}

/// The block of a page that follows a text.
fn block<'a>(page: &'a str, after: &str) -> &'a str {
    let (_, rest) = page.split_once(after).unwrap_or_else(|| panic!("no `{after}`"));
    between(rest, "\n```", "\n```\n").split_once('\n').expect("a block has lines").1
}

/// `src/lib.rs`: the page's block, and what it takes from the README.
fn shared(page: &str) -> String {
    let readme = read("README.md");
    let taken = between(&readme, "type Db = SqliteConnection;\n", "\nfn main()");
    let published = taken.replace("\nstruct Payment", "\npub struct Payment").replace("\nfn charge", "\npub fn charge");
    format!("{}\n{published}", block(page, "is in `src/lib.rs`"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The status of an answer, and its text.
fn ask(request: Request<()>) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().proxy(None).http_status_as_error(false).build().into();
    let mut answer = agent.run(request).unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

#[test]
fn the_page_leads_to_a_service_that_does_what_its_table_says() {
    let page = read("docs/service.md");
    let commands = format!("cargo new payments\n{}", block(&page, "add the packages:"));
    let manifest = manifest(&commands).replacen("edition", "default-run = \"payments\"\nedition", 1);
    let service = block(&page, "is `src/main.rs`").replace("\"127.0.0.1:3000\"", "std::env::args().nth(1).unwrap()");
    let files = [
        ("src/lib.rs", &*shared(&page)),
        ("src/main.rs", &service),
        ("src/bin/console.rs", block(&page, "is `src/bin/console.rs`")),
    ];
    let project = Project::new(&manifest, &files);
    project.cargo("build --quiet", "");
    let console = |words: &[&str]| Program::start_at_path(project.path(), &built("console"), words).end();
    let count = |status: &str| {
        let database = project.path().join("app.sqlite").display().to_string();
        let mut connection = SqliteConnection::establish(&database).ok()?;
        let rows = format!("SELECT COUNT(*) FROM payments WHERE status = '{status}'");
        sql::<BigInt>(&rows).get_result::<i64>(&mut connection).ok()
    };

    let port = free_port();
    let mut service = Program::start_at_path(project.path(), &built("payments"), [format!("127.0.0.1:{port}")]);
    service.await_answer("it listens", || TcpStream::connect(("127.0.0.1", port)).ok());
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let get = |path: &str| ask(Request::get(url(path)).body(()).unwrap());
    let post = |path: &str| ask(Request::post(url(path)).body(()).unwrap()).0;
    assert_eq!((post("/payments/1999"), post("/payments/0")), (202, 202));
    service.await_answer("one is charged, and one refused", || {
        (count("SUCCESS") == Some(1) && count("FAILED") == Some(1)).then_some(())
    });
    let (status, health) = get("/healthz");
    assert!(status == 200 && health.starts_with('{'), "{status}: {health}");
    let (status, overview) = get("/queues");
    assert!(status == 200 && overview.contains("payments"), "{status}: {overview}");
    let told = console(&["status"]);
    assert!(told.stdout.contains("payments"), "{told:?}");
    // A terminal has a user.
    console(&["pause", "payments", "--reason", "bank down", "--by", "ops"]).well();
    console(&["unpause", "payments", "--by", "ops"]).well();
    service.signal("TERM");
    assert_eq!(service.end().well(), "charged 1, rolled back 0\n");
}
