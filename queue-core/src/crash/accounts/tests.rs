use chrono::TimeDelta;

use super::*;
use crate::crash::test_directory::TestDirectory;
use crate::row::Status;

const FENCE: Fence = Fence::new(Status::NotAttempted, 0);

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
    let crashes = Crashes { accounting, ..Crashes::off() };
    crashes.decide("payments.status", &1, FENCE, &state(text), concurrency)
}

#[test]
fn a_suspect_runs_alone_and_is_set_aside_when_it_is_proven() {
    let text = |crashes| Suspicion { crashes, presumed: false }.over(Some("no route"));
    for accounting in [CrashAccounting::On, CrashAccounting::Strict, CrashAccounting::Off] {
        assert_eq!(decide(accounting, Some(&text(1)), Concurrency::Others), CrashAction::ComeBackAlone);
        let aside = CrashAction::SetAside(Suspicion::final_text(Some("no route")), None);
        assert_eq!(decide(accounting, Some(&text(3)), Concurrency::Others), aside);
    }
    let cleared = || CrashAction::Handle(ErrorText::Set("no route".to_owned()));
    assert_eq!(decide(CrashAccounting::On, Some(&text(2)), Concurrency::Nobody), cleared());
    // Otherwise it would wait for ever for a handler that never returns.
    assert_eq!(decide(CrashAccounting::On, Some(&text(2)), Concurrency::Stuck), cleared());
    let handled = CrashAction::Handle(ErrorText::Keep);
    assert_eq!(decide(CrashAccounting::On, Some("no route"), Concurrency::Others), handled);
}

#[test]
fn strict_marks_count_further_only_when_the_row_is_alone() {
    let mark = |crashes| CrashAction::MarkAndHandle(Suspicion { crashes, presumed: true }.to_string());
    assert_eq!(decide(CrashAccounting::Strict, None, Concurrency::Others), mark(1));
    assert_eq!(decide(CrashAccounting::Strict, None, Concurrency::Nobody), mark(1));
    let text = Suspicion { crashes: 1, presumed: true }.to_string();
    assert_eq!(decide(CrashAccounting::Strict, Some(&text), Concurrency::Nobody), mark(2));
    assert_eq!(decide(CrashAccounting::Strict, Some(&text), Concurrency::Stuck), mark(1));
}

#[test]
fn without_files_a_row_is_marked_if_it_was_due_before_the_start_and_a_suspect_always() {
    let start = DateTime::UNIX_EPOCH + TimeDelta::hours(1);
    let probation = Some(Probation::new(start));
    let crashes = Crashes { accounting: CrashAccounting::On, probation, ..Crashes::off() };
    let due = |before: TimeDelta, text| QueueState { next_attempt_time: Some(start - before), ..state(text) };
    let moment = TimeDelta::milliseconds(1);
    let (early, late) = (due(moment, None), due(-moment, None));
    let decide = |queue, state: &QueueState| crashes.decide(queue, &1, FENCE, state, Concurrency::Nobody);
    let mark = |crashes| CrashAction::MarkAndHandle(Suspicion { crashes, presumed: true }.to_string());
    assert_eq!(decide("payments.status", &early), mark(1));
    assert_eq!(decide("payments.status", &late), CrashAction::Handle(ErrorText::Keep));
    let suspect = due(-moment, Some(&*Suspicion { crashes: 1, presumed: true }.to_string()));
    assert_eq!(decide("payments.status", &suspect), mark(2));
    let may_share = |state| crashes.may_share("payments.status", &1, FENCE, state);
    assert_eq!([&early, &late, &suspect].map(may_share), [false, true, false]);
    // It has an end, for each queue.
    (2..MOST_MARKED).for_each(|_| assert_eq!(decide("payments.status", &early), mark(1)));
    assert_eq!(decide("payments.status", &early), CrashAction::Handle(ErrorText::Keep));
    assert_eq!(decide("invoices.status", &early), mark(1));
    assert_eq!(decide("payments.status", &suspect), mark(2));
}

#[test]
fn a_place_that_will_not_do_is_passed_over_and_stops_nobody() {
    let directory = TestDirectory::new();
    let squatted = directory.path().join("squatted");
    std::fs::write(&squatted, "mine").expect("the test's own files");
    let squatted = CrashDirectory::named(&squatted);
    let places = [squatted.clone(), CrashDirectory::named(&directory.path().join("free"))];
    let reports = open_usual(&places, "shop", &[]).expect("the second will do");
    assert!(reports.summary().contains("/free: "), "{}", reports.summary());
    assert!(open_usual(&[squatted], "shop", &[]).is_none());
}

#[test]
fn a_suspicion_is_read_as_it_was_written_whatever_the_text_before() {
    for crashes in [0, 1, 2, u32::MAX] {
        for presumed in [false, true] {
            let suspicion = Suspicion { crashes, presumed };
            assert_eq!(Suspicion::of(Some(&suspicion.to_string())), Some(suspicion));
            for before in ["no route", "", "a\nb; before that: c", "(crash 1 of 3)"] {
                let text = suspicion.over(Some(before));
                assert_eq!(Suspicion::of(Some(&text)), Some(suspicion));
                assert_eq!(earlier(Some(&text)), Some(before));
                // The next suspicion replaces this one.
                let next = Suspicion { crashes: 9, presumed: false };
                assert_eq!(next.over(Some(&text)), next.over(Some(before)));
            }
            assert_eq!(earlier(Some(&suspicion.to_string())), None);
        }
    }
}

#[test]
fn other_texts_are_no_suspicion() {
    let last = Suspicion::final_text(Some("no route"));
    assert!(last.ends_with("before that: no route"), "{last}");
    for text in [
        "",
        "no route",
        &last,
        CRASHED,
        &format!("{CRASHED} (crash one of 3)"),
        &format!("{CRASHED} (crash 99999999999 of 3)"),
        &format!("{CRASHED} (crash 1 of 3), said the bank"),
        &format!("Error: {CRASHED} (crash 1 of 3)"),
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
    let text = Suspicion { crashes: 1, presumed: false }.over(Some(&long));
    assert!(text.len() < 4 * TEXT_KEPT && Suspicion::of(Some(&text)).is_some());
}
