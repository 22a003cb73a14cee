//! The rows of a search as files.

use axum::http::StatusCode;
use queueable_console::Visitor;

use super::served::{SECRET, Served};

/// Inserts rows with a note, which is written as SQL.
fn insert(served: &Served, id: i64, note: &str) {
    served.execute(&format!(
        "INSERT INTO payments (id, company_id, amount_cents, note, api_token) VALUES ({id}, 7, {}, {note}, '{SECRET}')",
        -id
    ));
}

#[test]
fn a_search_is_sent_as_csv_in_which_no_text_is_a_formula() {
    let served = Served::local();
    insert(&served, 1, "'=1+1'");
    insert(&served, 2, "'a, \"b\"'");
    insert(&served, 3, "'-5'");
    insert(&served, 4, "'not found'");
    let file = served.get("/q/payments/rows.csv?where=id%20%3C%204&columns=note,amount_cents,api_token,note&order=key");
    let expected = "id,note,amount_cents,api_token\r\n1,'=1+1,-1,[hidden]\r\n2,\"a, \"\"b\"\"\",-2,[hidden]\r\n3,'-5,-3,[hidden]\r\n";
    assert_eq!(file.text, expected);
    assert_eq!(file.header("content-disposition"), "attachment; filename=\"payments.csv\"");
    assert_eq!((file.header("x-queueable-more"), file.header("cache-control")), ("no", "no-store"));
    assert!(file.header("content-type").starts_with("text/csv"));
}

#[test]
fn a_search_is_sent_as_json() {
    let served = Served::local();
    insert(&served, 1, "'=1+1'");
    insert(&served, 2, "'<b>'");
    let file = served.get("/q/payments/rows.json?order=key");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&file.text).unwrap();
    assert_eq!((rows.len(), &rows[0]["note"], &rows[1]["note"]), (2, &"=1+1".into(), &"<b>".into()));
    assert_eq!((&rows[0]["amount_cents"], &rows[0]["api_token"]), (&(-1).into(), &"[hidden]".into()));
    assert_eq!(file.header("content-type"), "application/json");
    let none = served.get("/q/payments/rows.json?where=id%20%3C%200");
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&none.text).unwrap().len(), 0);
}

#[test]
fn a_file_says_that_it_lacks_rows() {
    let served = Served::local();
    let rows: Vec<_> = (1..=10_001).map(|id| format!("({id}, 1, 1, '', '')")).collect();
    for rows in rows.chunks(1_000) {
        served.execute(&format!(
            "INSERT INTO payments (id, company_id, amount_cents, note, api_token) VALUES {}",
            rows.join(", ")
        ));
    }
    let file = served.get("/q/payments/rows.csv?order=key&columns=id");
    assert_eq!(file.text.lines().count(), 10_001);
    assert!(file.text.ends_with("\r\n10000\r\n"));
    assert_eq!(file.header("x-queueable-more"), "yes");
    assert_eq!(file.header("content-disposition"), "attachment; filename=\"payments-incomplete.csv\"");
    let file = served.get("/q/payments/rows.csv?order=key&columns=id&where=id%20%3E%201");
    assert_eq!((file.text.lines().count(), file.header("x-queueable-more")), (10_001, "no"));
}

#[test]
fn a_long_value_is_cut_and_the_file_says_so() {
    let served = Served::local();
    insert(&served, 1, &format!("'{}'", "é".repeat(12_000)));
    let file = served.get("/q/payments/rows.csv?columns=note");
    assert_eq!(file.text.matches('é').count(), 10_000);
    assert_eq!(file.header("x-queueable-more"), "yes");
}

#[test]
fn a_wrong_search_is_said_on_a_page() {
    let served = Served::local();
    for address in ["/q/payments/rows.csv?where=nothing%20=%201", "/q/payments/rows.json?columns=nothing"] {
        let page = served.get(address);
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{address}");
        assert!(page.text.contains("is no column of payments"), "{}", page.text);
    }
}

#[test]
fn people_get_files_of_their_queues_only() {
    let served =
        Served::new(|page| page.authorize(|_| Ok::<_, StatusCode>(Visitor::new("support").only(["payments"]))));
    assert_eq!(served.get("/q/payments/rows.csv").status, StatusCode::OK);
    for address in ["/q/mails/rows.csv", "/q/mails/rows.json", "/q/nothing/rows.csv"] {
        assert_eq!(served.get(address).status, StatusCode::NOT_FOUND, "{address}");
    }
}

#[test]
fn a_group_of_failures_is_sent_without_the_others() {
    let served = Served::local();
    served.insert_failed(1..=1_200, "card 4711 declined");
    served.insert_failed(1_201..=1_210, "bank away");
    let groups = served.get("/q/payments/errors").text;
    let names: Vec<_> = groups.split("/errors/").skip(1).map(|rest| rest.split(['?', '"']).next().unwrap()).collect();
    let lines = |group: &str| {
        let file = served.get(&format!("/q/payments/rows.csv?columns=id&group={group}"));
        assert_eq!((file.status, file.header("x-queueable-more")), (StatusCode::OK, "no"), "{}", file.text);
        file.text.lines().count() - 1
    };
    assert_eq!((lines(names[0]), lines(names[1])), (1_200, 10));
    assert_eq!(served.get("/q/payments/rows.json?group=00000000").status, StatusCode::NOT_FOUND);
}
