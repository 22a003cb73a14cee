//! Bytes that are no text, which only SQLite stores in a column of texts.

use axum::http::StatusCode;

use crate::web::served::Served;

#[test]
fn a_value_that_is_no_text_keeps_no_page_from_being_shown() {
    let served = Served::local();
    served.insert_failed(1..=4, "declined");
    served.execute(
        "UPDATE payments SET last_attempt_error_message = x'ff00fe', note = x'ff00fe' WHERE id = 1;
         UPDATE payments SET last_attempt_error_message = CAST(x'fffe41' AS TEXT) WHERE id = 2;
         UPDATE payments SET status = x'ff' WHERE id = 3",
    );
    for (page, says) in [
        ("/q/payments?columns=note,status,last_attempt_error_message", "FF00FE"),
        ("/q/payments/row?key=1", "FF00FE"),
        ("/q/payments/row?key=2", "\u{fffd}\u{fffd}A"),
        ("/q/payments/row?key=3", "unknown"),
        ("/q/payments/errors", "FF&lt;number&gt;FE"),
        ("/q/payments/backlog?by=note", "payments"),
        ("/q/payments/charts?by=note", "payments"),
        ("/q/payments/rows.csv?columns=note", "FF00FE"),
        ("/q/payments/rows.json?columns=note", "FF00FE"),
        ("/q/payments/change?operation=retry&state=failed", "retry of payments: 3 rows"),
    ] {
        let shown = served.get(page);
        assert!(shown.status == StatusCode::OK && shown.text.contains(says), "{page}: {}", shown.text);
        assert!(!shown.text.contains("has refused"), "{page}: {}", shown.text);
    }
    let groups = served.get("/q/payments/errors").text;
    for group in groups.split("/errors/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        let group = group.replace("&amp;", "&");
        let page = served.get(&format!("/q/payments/errors/{group}"));
        assert_eq!(page.status, StatusCode::OK, "{group} {}", page.text);
    }
    let group = groups.split("\"><bdi>FF&lt;number&gt;FE").next().unwrap().rsplit("/errors/").next().unwrap();
    let preview = served.get(&format!("/q/payments/change?operation=retry&group={}", group.trim_end_matches('?')));
    assert!(preview.text.contains("retry of payments: 1 row,"), "{}", preview.text);
}
