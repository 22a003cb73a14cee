//! What is shown.

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use queueable_console::Page;

use super::control::insert_poller;
use super::guard::PAGES;
use super::served::{Answer, SECRET, Served, console, database, get};

#[test]
fn links_work_under_any_prefix() {
    let database = database();
    let router = console(&database).page(Page::allow_changes).router();
    let router = Router::new().nest("/tools/queues", router.clone()).nest_service("/queues", router);
    let served = Served::of(database, router);
    for (address, link) in [
        ("/tools/queues", "href=\"queues/q/payments\""),
        ("/queues", "href=\"queues/q/payments\""),
        ("/queues/", "href=\"./q/payments\""),
        ("/tools/queues/overview", "href=\"./q/payments\""),
        ("/tools/queues/runs", "href=\"./overview\""),
        ("/tools/queues/q/payments", "href=\"../audit\""),
        ("/tools/queues/q/payments/errors", "href=\"../../audit\""),
    ] {
        let answer = served.get(address);
        assert_eq!(answer.status, StatusCode::OK, "{address}");
        assert!(answer.text.contains(link), "{address} has no {link}: {}", answer.text);
        assert!(
            !answer.text.contains("href=\"/") && !answer.text.contains("action=\"/"),
            "{address} has an absolute link"
        );
    }
}

#[test]
fn the_form_becomes_a_condition_whose_address_can_be_sent() {
    let served = Served::local();
    served.insert_failed(1..=3, "declined");
    let fields = "where=company_id%20%3D%201%20or%20company_id%20%3D%203345&v.amount_cents=150&o.amount_cents=%3E\
                  &v.note=note&o.note=contains&v.id=&o.id=%3D&state=failed&order=&columns=note&columns=company_id";
    let answer = served.send(get(&format!("/q/payments/search?{fields}")).body(Body::empty()).unwrap());
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    let address = answer.header("location");
    let query = address.split_once('?').unwrap().1;
    let decoded: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let expected = r#"(company_id = 1 or company_id = 3345) and "amount_cents" > 150 and "note" like '%note%'"#;
    assert_eq!(decoded[0], ("where".to_owned(), expected.to_owned()), "{decoded:?}");
    let page = served.get(&format!("/q/payments?{query}"));
    assert!(page.text.contains("2 rows") && page.plain().contains("sum of amount_cents : 500"), "{}", page.text);
    assert!(page.text.contains("note 3") && !page.text.contains("note 1<"), "{}", page.text);
}

#[test]
fn the_overview_is_not_well_while_rows_have_failed() {
    let served = Served::local();
    let of = |table: &str| format!(r#"{{"queue": "{table}.status", "entity": "E", "settings": {{}}}}"#);
    insert_poller(&served, &format!("[{}, {}]", of("payments"), of("mails")), "[]");
    let well = served.get("/overview");
    assert!(
        well.text.contains("Nothing is wrong.") && well.text.contains("data-announce=\"Nothing is wrong\""),
        "{}",
        well.text
    );
    let served = Served::local();
    served.insert_failed(1..=3, "declined");
    let failed = served.get("/overview").plain();
    assert!(failed.contains("payments: 3 rows have failed.") && !failed.contains("Nothing is wrong."), "{failed}");
}

#[test]
fn a_paused_queue_says_so_on_each_of_its_pages() {
    let served = Served::local();
    served.insert_failed(1..=3, "declined");
    let fields = [("change", "pause"), ("queue", "payments"), ("reason", "the bank is closed")];
    assert_eq!(served.post("/pauses", &fields).status, StatusCode::SEE_OTHER);
    for page in [
        "/q/payments",
        "/q/payments/errors",
        "/q/payments/row?key=1",
        "/q/payments/change?operation=retry&state=failed",
    ] {
        let plain = served.get(page).plain();
        assert!(
            plain.contains("Attempts wait: paused since") && plain.contains("local: the bank is closed"),
            "{page}: {plain}"
        );
    }
    assert!(!served.get("/q/mails").text.contains("Attempts wait"));
}

#[test]
fn a_time_is_compared_as_people_can_write_it() {
    let served = Served::local();
    let page = served.get("/q/payments");
    let field = page.text.split("name=\"o.last_attempt_time\"").nth(1).unwrap().split("</div>").next().unwrap();
    assert!(field.contains("type=\"datetime-local\"") && field.contains("step=\"1\""), "{field}");
    let operators: Vec<_> =
        field.split("<option value=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(operators, ["&lt;", "&lt;=", "&gt;", "&gt;=", "is null", "is not null"]);
    let search = |more: &str| served.get(&format!("/q/payments/search?v.last_attempt_time=2026-03-01T12:00:30{more}"));
    let found = search("&o.last_attempt_time=%3E");
    assert!(found.header("location").contains("%3E+%272026-03-01+12%3A00%3A30%27"), "{found:?}");
    assert_eq!(search("").status, StatusCode::BAD_REQUEST);
}

#[test]
fn a_row_offers_what_can_change_it_and_says_what_that_does() {
    let served = Served::local();
    served.insert_failed(1..=5, "declined");
    served.execute(
        "UPDATE payments SET status = 'NOT_ATTEMPTED', next_attempt_time = '2026-01-01 00:00:00.000' WHERE id = 2;
         UPDATE payments SET status = 'ERROR' WHERE id = 3;
         UPDATE payments SET status = 'SKIPPED' WHERE id = 4;
         UPDATE payments SET status = 'WEIRD' WHERE id = 5",
    );
    for (key, offered) in [
        (1, vec!["retry", "rerun", "skip", "delete"]),
        (2, vec!["retry", "postpone", "stop", "skip", "delete"]),
        (3, vec!["resume", "skip", "delete"]),
        (4, vec!["delete"]),
        (5, vec!["retry", "postpone", "stop", "resume", "rerun", "enqueue", "skip", "delete"]),
    ] {
        let page = served.get(&format!("/q/payments/row?key={key}"));
        let links = page.text.split("change?operation=").skip(1).map(|rest| rest.split('&').next().unwrap());
        assert_eq!(links.collect::<Vec<_>>(), offered, "{key}");
    }
    let row = served.get("/q/payments/row?key=3");
    assert!(row.text.contains("Makes stopped rows due.") && !row.text.contains("Enqueues succeeded"), "{}", row.text);
    assert!(served.get("/q/payments").text.contains("Enqueues succeeded and failed rows again"));
    let nothing = served.get("/q/payments/change?operation=retry&where=id%20%3E%20100");
    assert!(nothing.text.contains("no row was found that can be changed"), "{}", nothing.text);
}

#[test]
fn pages_follow_each_other_by_key() {
    let served = Served::local();
    served.insert_failed(1..=120, "declined");
    let mut address = "/q/payments?state=failed&order=key".to_owned();
    let mut seen = Vec::new();
    for page in 0..3 {
        let answer = served.get(&address);
        let keys =
            answer.text.split("row?key=").skip(1).map(|rest| rest.split('&').next().unwrap().parse::<i64>().unwrap());
        seen.extend(keys);
        let next = answer.text.split("rel=\"next\" href=\"").nth(1).map(|rest| rest.split('"').next().unwrap());
        assert_eq!(next.is_some(), page < 2, "{}", answer.text);
        if let Some(next) = next {
            address = format!("/q/payments?{}", next.split_once('?').unwrap().1.replace("&amp;", "&"));
        }
    }
    assert_eq!(seen, (1..=120).collect::<Vec<_>>());
}

#[test]
fn a_row_has_its_neighbours_of_the_search() {
    let served = Served::local();
    served.insert_failed(1..=5, "declined");
    for (key, previous, next) in [("3", Some("2"), Some("4")), ("1", None, Some("2")), ("5", Some("4"), None)] {
        let answer = served.get(&format!("/q/payments/row?key={key}&s.state=failed&s.order=key"));
        let beside = |rel: &str| {
            let link = answer.text.split(&format!("rel=\"{rel}\" href=\"")).nth(1)?;
            link.split("key=").nth(1)?.split(['&', '"']).next()
        };
        assert_eq!((beside("prev"), beside("next")), (previous, next), "{key}: {}", answer.text);
    }
}

#[test]
fn an_error_group_says_what_its_rows_have_in_common() {
    let served = Served::local();
    served.insert_failed(1..=10, "card 4711 declined");
    for id in 11..=40 {
        served.execute(&format!(
            "INSERT INTO payments (id, company_id, amount_cents, note, api_token, status, last_attempt_time)
             VALUES ({id}, {id}, {id}, '', '', 'SUCCESS', '2026-01-01 00:00:00.000')"
        ));
    }
    let groups = served.get("/q/payments/errors");
    let link = groups.text.split("/errors/").nth(1).unwrap().split(['?', '"']).next().unwrap();
    let group = served.get(&format!("/q/payments/errors/{link}"));
    assert!(group.text.contains("card &lt;number&gt; declined"), "{}", group.text);
    assert!(group.plain().contains("company_id = 3345 : 100 % of these rows, 0 % of the others"), "{}", group.text);
    let preview = served.get(&format!("/q/payments/change?operation=retry&group={link}"));
    assert!(preview.text.contains("retry of payments: 10 rows"), "{}", preview.text);
}

#[test]
fn secrets_and_markup_stay_what_they_are() {
    let served = Served::local();
    let hostile = "<script>alert(1)</script>\"''&<img src=x onerror=alert(2)>";
    served.insert_failed(1..=2, &hostile.replace('\'', "''"));
    served.execute("UPDATE payments SET note = '<b>bold</b>'");
    let errors = served.get("/q/payments/errors").text;
    let group = errors.split("/errors/").nth(1).unwrap().split(['?', '"']).next().unwrap().to_owned();
    let more = [format!("/q/payments/errors/{group}"), "/q/payments?columns=note,api_token".to_owned()];
    for page in PAGES.iter().map(|page| (*page).to_owned()).chain(more) {
        let answer = served.get(&page);
        assert!(!answer.text.contains(SECRET), "{page} shows a secret: {}", answer.text);
        let is_page = answer.header("content-type").starts_with("text/html");
        assert!(!is_page || !["<script>alert", "<img", "<b>"].iter().any(|tag| answer.text.contains(tag)), "{page}");
    }
    let listed = served.get("/q/payments?columns=api_token").text;
    assert!(listed.contains("[hidden]"), "{listed}");
}

/// Follows the first link with this text in its address.
fn link(page: &Answer, with: &str) -> String {
    let links = page.text.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
    let mut found = links.filter(|link| link.contains(with));
    let link = found.next().unwrap_or_else(|| panic!("no link with {with}: {}", page.text));
    link.trim_start_matches("../").trim_start_matches("./").to_owned()
}

#[test]
fn what_is_retried_is_the_part_of_a_group_that_was_seen() {
    let served = Served::local();
    served.insert_failed(1..=5, "card 4711 declined");
    let now = chrono::Utc::now().format("%Y-%m-%d %H:%M:%S.000");
    served.execute(&format!("UPDATE payments SET last_attempt_time = '{now}' WHERE id > 3"));
    let groups = served.get("/q/payments/errors?since=3h");
    let group = served.get(&format!("/{}", link(&groups, "/errors/")));
    assert!(group.plain().contains("Rows 2 Failed 2"), "{}", group.plain());
    let row = served.get(&format!("/{}", link(&group, "/row?key=5")));
    let back = served.get(&format!("/{}", link(&row, "q/payments/errors/")));
    assert!(back.plain().contains("Rows 2 Failed 2") && row.text.contains("Back to the group"), "{}", row.text);
    let preview = served.get(&format!("/{}", link(&group, "operation=retry")));
    assert!(preview.text.contains("retry of payments: 2 rows"), "{}", preview.text);
    let back = served.get(&format!("/{}", link(&preview, "q/payments?")));
    assert!(back.header("location").contains("/errors/") && back.header("location").contains("since=3h"), "{back:?}");
    let fields =
        ["operation", "found", "figures", "keys", "once", "group", "since"].map(|name| (name, preview.field(name)));
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let fields = [&*fields, &[("reason", "ticket 812")]].concat();
    let run = served.post("/q/payments/change", &fields).leads_to("/q/payments/change");
    served.until(&run, "2 rows changed.");
    assert_eq!(served.with_status("FAILED"), 3);
    // The rows of a window are a search like any other, and the form says so.
    let rows = served.get("/q/payments?since=2h");
    assert!(rows.text.contains("<option value=\"2h\" selected>") && rows.text.contains("2 rows"), "{}", rows.text);
}

#[test]
fn a_short_name_that_two_groups_share_names_neither() {
    let served = Served::local();
    served.insert_failed(1..=2, "no mumede");
    served.insert_failed(3..=3, "no sakilo");
    for page in [
        "/q/payments/errors/f3fc27aa",
        "/q/payments/change?operation=retry&group=f3fc27aa",
        "/q/payments/rows.csv?group=f3fc27aa",
    ] {
        let refused = served.get(page);
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{page}: {}", refused.text);
        assert!(refused.text.contains("two groups of errors share the short name"), "{}", refused.text);
    }
    let one = served.get("/q/payments/errors/f3fc27aa?where=id%20%3E%202");
    assert!(one.text.contains("no sakilo"), "{}", one.text);
}
