//! Pauses, limits, and the pages of what is not of one queue.

use axum::http::StatusCode;
use queueable_console::Visitor;

use super::served::{Answer, Served};

fn change(served: &Served, fields: &[(&str, &str)]) -> Answer {
    served.post("/pauses", fields)
}

/// The page to which a change leads.
fn done(served: &Served, fields: &[(&str, &str)]) -> Answer {
    served.get(&change(served, fields).leads_to("/pauses"))
}

fn refused(served: &Served, fields: &[(&str, &str)], says: &str) {
    let answer = change(served, fields);
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text);
    assert!(answer.text.contains(says), "{}", answer.text);
}

#[test]
fn a_queue_is_paused_and_goes_on_and_the_audit_has_both() {
    let served = Served::local();
    let fields = [("change", "pause"), ("queue", "payments"), ("reason", "bank <b>down</b>"), ("for", "2h")];
    let page = done(&served, &fields);
    assert!(page.text.contains("It is paused.") && page.text.contains("bank &lt;b&gt;down&lt;/b&gt;"), "{}", page.text);
    assert!(page.plain().contains("the whole queue") && page.plain().contains("in 1h 59m"), "{}", page.text);
    let since = page.field("since");
    let end = [("change", "unpause"), ("queue", "payments"), ("since", &since), ("reason", "bank is back")];
    let page = done(&served, &end);
    assert!(page.text.contains("The pause has ended.") && page.text.contains("Nothing is paused."), "{}", page.text);
    assert!(done(&served, &end).text.contains("There was no such pause any more."));
    let audit = served.get("/audit?queue=payments").plain();
    for says in ["unpause 1 bank is back the whole queue", "pause for 7200s"] {
        assert!(audit.contains(says), "no {says}: {audit}");
    }
    assert!(served.get("/audit?queue=mails").text.contains("Nobody has changed anything."));
}

#[test]
fn a_value_is_paused_and_its_pause_ended_as_it_is_shown() {
    let served = Served::local();
    let page = done(
        &served,
        &[("change", "pause"), ("queue", "payments"), ("value", "company_id = 3345"), ("reason", "they asked")],
    );
    let (value, since) = (page.field("value"), page.field("since"));
    assert_eq!(value, "company_id = 3345");
    let fields = [("change", "unpause"), ("queue", "payments"), ("value", &value), ("reason", "they asked")];
    let other: Vec<_> = fields.into_iter().chain([("since", "2026-01-01T00:00:00Z")]).collect();
    let stale = change(&served, &other);
    assert_eq!(stale.status, StatusCode::CONFLICT, "{}", stale.text);
    assert!(
        stale.text.contains("local has asked for this pause anew") && stale.text.contains(&value),
        "{}",
        stale.text
    );
    let same: Vec<_> = fields.into_iter().chain([("since", since.as_str())]).collect();
    assert!(done(&served, &same).text.contains("Nothing is paused."));
}

#[test]
fn limits_are_set_and_ended() {
    let served = Served::local();
    let page = done(
        &served,
        &[("change", "limit"), ("queue", "mails"), ("workers", "2"), ("retry_delay", "90s"), ("reason", "slow")],
    );
    assert!(page.plain().contains("mails 2 as in the code 1m 30s slow local"), "{}", page.plain());
    let end = [("change", "end-limits"), ("queue", "mails"), ("reason", "quick again")];
    assert!(done(&served, &end).text.contains("Nothing is limited."));
    assert!(done(&served, &end).text.contains("There were no limits any more."));
}

#[test]
fn what_is_refused_is_said_and_the_form_stays() {
    let served = Served::local();
    let pause = |more: &[(&'static str, &'static str)]| {
        [("change", "pause"), ("queue", "payments")].into_iter().chain(more.iter().copied()).collect::<Vec<_>>()
    };
    refused(&served, &pause(&[]), "Please say why.");
    refused(&served, &pause(&[("reason", "kept <i>"), ("for", "soon")]), "value=\"kept &lt;i&gt;\"");
    refused(&served, &pause(&[("reason", "r"), ("stage", "SEND")]), "payments has no stages");
    refused(&served, &pause(&[("reason", "r"), ("value", "amount_cents > 3")]), "is no single value");
    refused(&served, &pause(&[("reason", "r"), ("value", "amount_cents = 3")]), "the column of a pause");
    refused(&served, &pause(&[("reason", "r"), ("value", "api_token = 'tk-4711-1'")]), "are not shown");
    refused(&served, &[("change", "limit"), ("queue", "mails"), ("reason", "r")], "Nothing would be limited");
    refused(&served, &[("change", "limit"), ("queue", "mails"), ("reason", "r"), ("at_most", "2")], "at_most");
    refused(&served, &[("change", "explode"), ("queue", "mails"), ("reason", "r")], "What is to be changed?");
    let unknown = change(&served, &[("change", "pause"), ("queue", "nothing"), ("reason", "r")]);
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert!(served.get("/pauses").text.contains("Nothing is paused."));
}

#[test]
fn an_address_puts_no_text_onto_the_page() {
    let served = Served::local();
    assert!(served.get("/pauses?done=paused").text.contains("It is paused."));
    // A token of the page may contain any digits, but no other letters.
    assert!(!served.get("/pauses?done=call+555-xyz").text.contains("555-xyz"));
}

#[test]
fn people_who_may_change_nothing_see_no_form() {
    let served =
        Served::new(|page| page.allow_changes().authorize(|_| Ok::<_, StatusCode>(Visitor::new("reader").read_only())));
    served.execute(
        "INSERT INTO queueable_control (queue, scope, paused_at, paused_by, pause_reason)
         VALUES ('payments.status', '', '2026-01-01 00:00:00.000', 'ops', 'bank down')",
    );
    let page = served.get("/pauses");
    assert!(page.text.contains("bank down") && !page.text.contains("<form"), "{}", page.text);
    let fields = [("change", "pause"), ("queue", "payments"), ("reason", "r")];
    assert_eq!(change(&served, &fields).status, StatusCode::FORBIDDEN);
}

#[test]
fn people_of_one_queue_see_nothing_of_all() {
    let served = Served::new(|page| {
        page.allow_changes().authorize(|_| Ok::<_, StatusCode>(Visitor::new("support").only(["payments"])))
    });
    for address in ["/pauses", "/pollers", "/audit", "/audit?queue=mails", "/doctor", "/doctor?now=yes"] {
        let answer = served.get(address);
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{address}");
        assert!(!answer.text.contains("mails"), "{address}: {}", answer.text);
    }
    let fields = [("change", "pause"), ("queue", "payments"), ("reason", "r")];
    assert_eq!(change(&served, &fields).status, StatusCode::FORBIDDEN);
}

#[test]
fn the_pages_of_the_audit_follow_each_other() {
    let served = Served::local();
    for number in 0..60 {
        let reason = format!("reason {number:02}");
        let fields = [("change", "limit"), ("queue", "mails"), ("workers", "2"), ("reason", &reason)];
        assert_eq!(change(&served, &fields).status, StatusCode::SEE_OTHER);
    }
    let first = served.get("/audit?queue=mails");
    let next =
        first.text.split("rel=\"next\" href=\".").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    let second = served.get(&next);
    let of =
        |page: &Answer| (0..60).filter(|number| page.text.contains(&format!("reason {number:02}"))).collect::<Vec<_>>();
    assert_eq!((of(&first), of(&second)), ((10..60).collect(), (0..10).collect()));
    assert!(!second.text.contains("rel=\"next\""));
    assert_eq!(served.get("/audit?after=nonsense").status, StatusCode::BAD_REQUEST);
}

#[test]
fn the_doctor_examines_when_somebody_asks() {
    let served = Served::local();
    served.execute(
        "INSERT INTO payments (id, company_id, amount_cents, note, api_token, next_attempt_time)
         VALUES (1, 7, 100, '', '', '2026-01-01 00:00:00.000')",
    );
    assert!(!served.get("/doctor").text.contains("To mend it"));
    let page = served.get("/doctor?now=yes");
    assert!(page.text.contains("no-poller") && page.plain().contains("To mend it: start a poller"), "{}", page.text);
}

#[test]
fn the_pollers_are_shown_with_what_they_run() {
    let served = Served::local();
    let page = served.get("/pollers").plain();
    assert!(page.contains("No registered process serves payments ."), "{page}");
    let queues = r#"[{"queue": "mails.status", "entity": "Mail", "settings": {"max_tries": "3"}, "differs": []}]"#;
    let running = r#"[{"queue": "mails.status", "key": "north%2C%20<east>,7", "stage": null, "for_ms": 5000}]"#;
    insert_poller(&served, queues, running);
    // What was read before is shown for two seconds.
    let page = served.until("/pollers", "web-2");
    let link = "href=\"./q/mails/row?key=%5B%22north%2C+%3Ceast%3E%22%2C%227%22%5D\"";
    assert!(page.text.contains(link) && page.plain().contains("shop &lt;1&gt;"), "{}", page.text);
    // The overview leads to the row too, and its page says who runs it.
    assert!(served.until("/overview", "web-2").text.contains(link));
    served.execute("INSERT INTO mails (site, number) VALUES ('north, <east>', 7)");
    let row = served.get("/q/mails/row?key=%5B%22north%2C+%3Ceast%3E%22%2C%227%22%5D").plain();
    assert!(row.contains("Process 4711 on web-2 runs it"), "{row}");
}

#[test]
fn a_missing_table_is_said_with_what_adds_it() {
    let served = Served::local();
    served.execute("DROP TABLE queueable_audit");
    served.execute("DROP TABLE queueable_pollers");
    served.execute("DROP TABLE queueable_control");
    for (address, says) in [("/audit", "audit()"), ("/pollers", "pollers()"), ("/pauses", "control()")] {
        let page = served.get(address);
        assert!(page.status.is_success() && page.text.contains(&format!("Migrations::new().{says}")), "{}", page.text);
    }
}

#[test]
fn nothing_is_changed_without_leave() {
    let served = Served::new(std::convert::identity);
    let fields = [("change", "pause"), ("queue", "payments"), ("reason", "r")];
    assert_eq!(change(&served, &fields).status, StatusCode::FORBIDDEN);
    assert!(!served.get("/pauses").text.contains("<form"));
}

/// Writes what a poller of another process says of itself.
pub(crate) fn insert_poller(served: &Served, queues: &str, running: &str) {
    served.execute(&format!(
        "INSERT INTO queueable_pollers (id, host, pid, version, application, state, workers, queues, running, started_at, seen_at)
         VALUES (1, 'web-2', 4711, '0.1.0', 'shop <1>', 'running', 4, '{queues}', '{running}', CURRENT_TIMESTAMP, \
         CURRENT_TIMESTAMP)"
    ));
}
