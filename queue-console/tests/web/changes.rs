//! Operations: shown first, confirmed, and never on other rows than were shown.

use axum::http::StatusCode;

use super::served::{Answer, Served};

/// The fields with which a preview is confirmed.
fn confirmed(preview: &Answer, more: &[(&str, &str)]) -> Vec<(String, String)> {
    let fields = ["operation", "found", "figures", "keys", "once"].map(|name| (name.to_owned(), preview.field(name)));
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
fn a_form_that_is_sent_twice_runs_once() {
    let served = Served::local();
    served.insert_failed(1..=5, "declined");
    let preview = served.get("/q/payments/change?operation=rerun&state=failed");
    let fields = confirmed(&preview, &FAILED);
    let places: Vec<String> = std::thread::scope(|scope| {
        let sent: Vec<_> = (0..8).map(|_| scope.spawn(|| send(&served, &fields))).collect();
        let answers = sent.into_iter().map(|sent| sent.join().unwrap());
        answers
            .filter(|answer| answer.status == StatusCode::SEE_OTHER)
            .map(|it| it.leads_to("/q/payments/change"))
            .collect()
    });
    assert!(!places.is_empty() && places.iter().all(|place| *place == places[0]), "{places:?}");
    served.until(&places[0], "5 rows changed.");
    assert_eq!(send(&served, &fields).leads_to("/q/payments/change"), places[0], "later too");
    assert_eq!(served.get("/runs").text.matches("rerun of payments").count(), 1);
}

#[test]
fn the_rows_are_named_and_none_is_not_all() {
    let served = Served::local();
    served.insert_failed(1..=30, "declined");
    let plain = |query: &str| served.get(&format!("/q/payments/change?operation=retry&{query}")).plain();
    let both = plain("state=failed&where=company_id+%3D+3345");
    assert!(both.contains("Rows: state failed, where company_id = 3345"), "{both}");
    let all = plain("of=all");
    assert!(all.contains("all rows of payments") && all.contains("These are all rows of the table"), "{all}");
    let ticked = plain("of=ticked&state=failed&key=1&key=2");
    assert!(ticked.contains("2 ticked rows, state failed") && ticked.contains("retry of payments: 2 rows"), "{ticked}");
    let more = plain("of=all&state=failed&key=1&key=2");
    assert!(more.contains("retry of payments: 30 rows"), "{more}");
    let none = served.get("/q/payments/change?operation=retry&of=ticked&state=failed");
    assert!(none.status == StatusCode::BAD_REQUEST && none.text.contains("No row is ticked."), "{}", none.text);
}

#[test]
fn a_refused_form_shows_the_rows_as_they_are_and_what_was_typed() {
    let served = Served::local();
    served.insert_failed(1..=5, "declined");
    let preview = served.get("/q/payments/change?operation=retry&state=failed");
    served.execute("UPDATE payments SET status = 'SUCCESS' WHERE id = 1");
    let refused = send(&served, &confirmed(&preview, &FAILED));
    assert!(
        refused.text.contains("nothing was changed") && refused.field("reason") == "ticket 812",
        "{}",
        refused.text
    );
    let begun = send(&served, &confirmed(&refused, &FAILED));
    served.until(&begun.leads_to("/q/payments/change"), "4 rows changed.");
}

#[test]
fn a_change_needs_a_reason_and_all_its_fields() {
    let served = Served::local();
    served.insert_failed(1..=2, "declined");
    let preview = served.get("/q/payments/change?operation=retry&state=failed");
    let fields = confirmed(&preview, &FAILED);
    for lacks in ["reason", "found", "figures", "keys", "operation", "once"] {
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
