use chrono::TimeDelta;

use super::*;
use crate::row::Status;

fn state(text: Option<&str>) -> QueueState {
    QueueState {
        status: Status::NotAttempted,
        next_attempt_time: Some(DateTime::UNIX_EPOCH),
        try_count: 0,
        last_attempt_time: None,
        last_attempt_error_message: text.map(str::to_owned),
    }
}

fn decide(accounting: CrashAccounting, text: Option<&str>, concurrency: Concurrency) -> CrashAction {
    Crashes::new(accounting, Probation::default()).decide("payments.status", &state(text), concurrency)
}

fn mark(crashes: u32) -> CrashAction {
    CrashAction::MarkAndHandle(Suspicion { crashes }.to_string())
}

#[test]
fn a_suspect_runs_alone_and_is_set_aside_when_it_is_proven() {
    let text = |crashes| Suspicion { crashes }.over(Some("no route"));
    for accounting in [CrashAccounting::On, CrashAccounting::Strict, CrashAccounting::Off] {
        assert_eq!(decide(accounting, Some(&text(1)), Concurrency::Others), CrashAction::ComeBackAlone);
        let aside = CrashAction::SetAside(Suspicion::final_text(Some("no route")));
        assert_eq!(decide(accounting, Some(&text(3)), Concurrency::Others), aside);
    }
    assert_eq!(decide(CrashAccounting::On, Some(&text(2)), Concurrency::Nobody), CrashAction::MarkAndHandle(text(3)));
    let cleared = CrashAction::Handle(ErrorText::Set("no route".to_owned()));
    assert_eq!(decide(CrashAccounting::Off, Some(&text(2)), Concurrency::Nobody), cleared);
    let handled = CrashAction::Handle(ErrorText::Keep);
    assert_eq!(decide(CrashAccounting::On, Some("no route"), Concurrency::Others), handled);
}

#[test]
fn marks_count_further_only_when_the_row_is_alone() {
    assert_eq!(decide(CrashAccounting::Strict, None, Concurrency::Others), mark(1));
    assert_eq!(decide(CrashAccounting::Strict, None, Concurrency::Nobody), mark(1));
    for accounting in [CrashAccounting::On, CrashAccounting::Strict] {
        let text = Suspicion { crashes: 1 }.to_string();
        assert_eq!(decide(accounting, Some(&text), Concurrency::Nobody), mark(2));
        // It does not wait for a handler that never returns, and that one may be the one that ends the process.
        assert_eq!(decide(accounting, Some(&text), Concurrency::Stuck), mark(1));
    }
}

#[test]
fn a_row_is_marked_if_it_was_due_before_the_start_and_a_suspect_always() {
    let start = DateTime::UNIX_EPOCH + TimeDelta::hours(1);
    let left = ["payments.status", "invoices.status"].map(|queue| (queue.to_owned(), AtomicU32::new(MARKED)));
    let crashes = Crashes::new(CrashAccounting::On, Probation { before: start, left: left.into() });
    let due = |before: TimeDelta, text| QueueState { next_attempt_time: Some(start - before), ..state(text) };
    let moment = TimeDelta::milliseconds(1);
    let (early, late) = (due(moment, None), due(-moment, None));
    let decide = |queue, state: &QueueState| crashes.decide(queue, state, Concurrency::Nobody);
    assert_eq!(decide("payments.status", &early), mark(1));
    assert_eq!(decide("payments.status", &late), CrashAction::Handle(ErrorText::Keep));
    let suspect = due(-moment, Some(&*Suspicion { crashes: 1 }.to_string()));
    assert_eq!(decide("payments.status", &suspect), mark(2));
    let may_share = |state| crashes.may_share("payments.status", state);
    assert_eq!([&early, &late, &suspect].map(may_share), [false, true, false]);
    // It has an end, for each queue.
    (2..MARKED).for_each(|_| assert_eq!(decide("payments.status", &early), mark(1)));
    assert_eq!(decide("payments.status", &early), CrashAction::Handle(ErrorText::Keep));
    assert!(may_share(&early));
    assert_eq!(decide("invoices.status", &early), mark(1));
    assert_eq!(decide("payments.status", &suspect), mark(2));
}

#[test]
fn a_suspicion_is_read_as_it_was_written_whatever_the_text_before() {
    for crashes in [0, 1, 2, u32::MAX] {
        let suspicion = Suspicion { crashes };
        assert_eq!(Suspicion::of(Some(&suspicion.to_string())), Some(suspicion));
        for before in ["no route", "", "a\nb; before that: c", "(crash 1 of 3)"] {
            let text = suspicion.over(Some(before));
            assert_eq!(Suspicion::of(Some(&text)), Some(suspicion));
            assert_eq!(earlier(Some(&text)), Some(before));
            // The next suspicion replaces this one.
            let next = Suspicion { crashes: 9 };
            assert_eq!(next.over(Some(&text)), next.over(Some(before)));
        }
        assert_eq!(earlier(Some(&suspicion.to_string())), None);
    }
}

#[test]
fn other_texts_are_no_suspicion() {
    let last = Suspicion::final_text(Some("no route"));
    assert!(last.ends_with("before that: no route"), "{last}");
    assert!(last.contains(&format!(" {CRASHES} times ")), "{last}");
    for text in [
        "",
        "no route",
        &last,
        PRESUMED,
        &format!("{PRESUMED} (crash one of 3)"),
        &format!("{PRESUMED} (crash 99999999999 of 3)"),
        &format!("{PRESUMED} (crash 1 of 3), said the bank"),
        &format!("Error: {PRESUMED} (crash 1 of 3)"),
        // The mark of an earlier release.
        "the process ended while this message was handled (crash 1 of 3)",
    ] {
        assert_eq!(Suspicion::of(Some(text)), None, "{text}");
        assert_eq!(earlier(Some(text)), Some(text));
    }
    assert_eq!(Suspicion::of(None), None);
}

#[test]
fn a_long_text_before_is_cut() {
    let long = "\u{e9}".repeat(50_000);
    let text = Suspicion { crashes: 1 }.over(Some(&long));
    assert!(text.len() < 4 * TEXT_KEPT && Suspicion::of(Some(&text)).is_some());
}

#[test]
fn the_process_is_as_old_as_it_says() {
    let (begun, age) = (time::Instant::now(), process_age());
    assert!(process_age() >= age && process_age() <= age + begun.elapsed() + 2 * TICKS);
    assert!(age < Duration::from_secs(86_400), "{age:?}");
}
