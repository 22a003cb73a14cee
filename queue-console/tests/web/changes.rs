//! Operations: shown first, confirmed, and never on other rows than were shown.

use axum::http::StatusCode;

use super::served::{Answer, Served};

/// The fields with which a preview is confirmed.
fn confirmed(preview: &Answer, more: &[(&str, &str)]) -> Vec<(String, String)> {
    let fields = ["operation", "found", "figures", "keys"].map(|name| (name.to_owned(), preview.field(name)));
    fields.into_iter().chain(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))).collect()
}

fn send(served: &Served, fields: &[(String, String)]) -> Answer {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    served.post("/q/payments/change", &fields)
}

const FAILED: [(&str, &str); 2] = [("state", "failed"), ("reason", "ticket 812")];

#[test]
fn rows_are_shown_then_changed_and_the_progress_can_be_read_again() {
    let served = Served::local();
    served.insert_failed(1..=25, "declined");
    let preview = served.get("/q/payments/change?operation=retry&state=failed");
    assert!(
        preview.text.contains("retry of payments: 25 rows") && preview.text.contains("sum of amount_cents: 32500"),
        "{}",
        preview.text
    );
    assert!(preview.text.contains("and 15 more"), "{}", preview.text);
    let begun = send(&served, &confirmed(&preview, &FAILED));
    let run = begun.leads_to("/q/payments/change");
    let ended = served.until(&run, "25 rows changed.");
    assert!(ended.text.contains("ticket 812") && ended.text.contains("local"), "{}", ended.text);
    assert_eq!(served.with_status("FAILED"), 0);
    assert!(served.get("/runs").text.contains("retry of payments: 25 rows"));
    let again = served.get(&run);
    assert!(again.text.contains("25 rows changed."), "{}", again.text);
    assert_eq!(served.get("/runs/nothing").status, StatusCode::NOT_FOUND);
}

#[test]
fn rows_that_are_others_by_now_are_not_changed() {
    let served = Served::local();
    served.insert_failed(1..=5, "declined");
    let preview = served.get("/q/payments/change?operation=delete&state=failed");
    let fields = confirmed(&preview, &FAILED);
    for (change, says) in [
        ("UPDATE payments SET amount_cents = 7 WHERE id = 1", "with other sums"),
        ("UPDATE payments SET amount_cents = 100, id = 9 WHERE id = 1", "not the same ones"),
        ("UPDATE payments SET status = 'SUCCESS' WHERE id = 9", "now there are 4"),
    ] {
        served.execute(change);
        let refused = send(&served, &fields);
        assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text);
        assert!(refused.text.contains("nothing was changed") && refused.text.contains(says), "{}", refused.text);
    }
    served.insert_failed(10..=12, "declined");
    assert_eq!(send(&served, &fields).status, StatusCode::CONFLICT, "a preview is never widened");
    assert_eq!(served.with_status("FAILED"), 7);
}

#[test]
fn a_change_needs_a_reason_and_all_its_fields() {
    let served = Served::local();
    served.insert_failed(1..=2, "declined");
    let preview = served.get("/q/payments/change?operation=retry&state=failed");
    let fields = confirmed(&preview, &FAILED);
    for lacks in ["reason", "found", "figures", "keys", "operation"] {
        let fields: Vec<_> = fields.iter().filter(|(name, _)| name != lacks).cloned().collect();
        assert_eq!(send(&served, &fields).status, StatusCode::BAD_REQUEST, "{lacks}");
    }
    assert_eq!(served.get("/q/payments/change?operation=explode").status, StatusCode::BAD_REQUEST);
    assert_eq!(served.get("/q/payments/change?operation=priority&to=3").status, StatusCode::BAD_REQUEST, "it has none");
    assert_eq!(served.get("/q/payments/change?operation=retry&group=00000000").status, StatusCode::NOT_FOUND);
    assert_eq!(served.with_status("FAILED"), 2);
}

#[test]
fn a_time_is_asked_for_and_stays_the_one_that_was_shown() {
    let served = Served::local();
    served.execute(
        "INSERT INTO payments (id, company_id, amount_cents, note, api_token, next_attempt_time)
         VALUES (1, 7, 100, '', '', '2026-01-01 00:00:00.000')",
    );
    let asks = served.get("/q/payments/change?operation=postpone&key=1");
    assert!(asks.text.contains("name=\"for\""), "{}", asks.text);
    let wrong = served.get("/q/payments/change?operation=postpone&key=1&asked=yes&for=soon");
    assert!(wrong.text.contains("is no length of time") && wrong.text.contains("name=\"for\""), "{}", wrong.text);
    for (argument, says) in [
        ("", "For how long, or until when?"),
        ("&for=&until=", "For how long, or until when?"),
        ("&for=2h&until=2100-01-01T00:00", "not both"),
        ("&until=2026-01-01T00:00", "is not in the future"),
        ("&until=0001-01-01T00:00:00Z", "is not in the future"),
        ("&for=0s", "is not in the future"),
        ("&until=%2B20000-01-01T00:00:00Z", "is after the year 9999"),
        ("&for=9000y", "is after the year 9999"),
    ] {
        let refused = served.get(&format!("/q/payments/change?operation=postpone&key=1&asked=yes{argument}"));
        assert!(refused.text.contains(says) && refused.text.contains("name=\"for\""), "{argument}: {}", refused.text);
    }
    let preview = served.get("/q/payments/change?operation=postpone&key=1&asked=yes&for=2h");
    let until = preview.field("until");
    let begun =
        send(&served, &confirmed(&preview, &[("key", "1"), ("until", &until), ("reason", "the bank is closed")]));
    served.until(&begun.leads_to("/q/payments/change"), "1 row changed.");
    let row = served.get("/q/payments/row?key=1");
    assert!(row.text.contains(until.trim_end_matches('Z')), "{until}: {}", row.text);
}

#[test]
fn an_operation_is_stopped_between_two_transactions() {
    let served = Served::local();
    served.execute("DELETE FROM payments");
    let rows: Vec<_> = (1..=20_000).map(|id| format!("({id}, 1, 1, '', '', 'FAILED', 3)")).collect();
    for rows in rows.chunks(1_000) {
        let columns = "id, company_id, amount_cents, note, api_token, status, try_count";
        served.execute(&format!("INSERT INTO payments ({columns}) VALUES {}", rows.join(", ")));
    }
    let preview = served.get("/q/payments/change?operation=stop&state=failed");
    if preview.text.contains("There is nothing to do") {
        // Failed rows have ended: they are retried.
        let preview = served.get("/q/payments/change?operation=retry&state=failed");
        let begun = send(&served, &confirmed(&preview, &FAILED));
        let run = begun.leads_to("/q/payments/change");
        let stopped = served.post(&format!("{run}/stop"), &[]);
        assert_eq!(stopped.status, StatusCode::SEE_OTHER, "{}", stopped.text);
        let ended = served.until(&run, " changed.");
        let left = served.with_status("FAILED");
        assert_eq!(left % 500, 0, "a transaction is done whole");
        let says = if left > 0 { "because it was stopped" } else { "20,000 rows changed." };
        assert!(ended.text.contains(says), "{left} {}", ended.text);
    } else {
        panic!("{}", preview.text);
    }
}
