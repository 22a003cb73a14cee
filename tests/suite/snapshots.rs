//! The SQL of every statement on each backend, so that a review shows what changed.

use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use queue_core::internals::backend::{OwnTable, Schema, Sql, Statement};
use queue_core::internals::statement::{
    And, Archive, AuditEntry, Change, Claim, Claimable, Condition, Next, PauseEnd, PollerEntry, Settle, StateCondition,
    UnusableRow, change_all, claim_key, claim_keys, copy_rows, count, count_by_status, due_keys, end_limits, end_pause,
    finish_block, first_pending, insert_audit, insert_poller, key_texts, keys_found, lease_due, load_rows,
    lock_expired, lock_keys, longest_text, next_rows, oldest_due, poison_among_last, present, probe_due, read_audit,
    read_control, read_details, read_keys, read_pollers, recall, recall_last_attempt, recall_reservation, remove_all,
    remove_poller, retake, sample, set_aside, set_environment, set_limits, set_pause, take, taken, unknown_stages,
    update_audit, update_poller,
};
use queue_core::internals::{ErrorText, Fence, RowKey};
use queueable::bounds::StoredIn;
use queueable::columns::Instant;
use queueable::{Queueable, Status};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Payment, payment_queue, payments};
use crate::suite::keyed::{erased, fenced_rows, queue, row, rows};
use crate::suite::on_finish::Moved;
use crate::suite::periodic::Once as Periodic;
use crate::suite::stages::Invoice;
use crate::suite::upkeep::KeptAlone;

type Backend = <Conn as diesel::Connection>::Backend;

const FENCE: Fence = Fence::new(Status::Error, 2);

/// Collects statements, each under its title.
#[derive(Default)]
struct Listing(String);

impl Listing {
    fn add(&mut self, title: &str, statement: &impl Statement<Backend>) {
        self.text(title, &diesel::debug_query::<Backend, _>(&Sql::new(statement)).to_string());
    }

    /// Adds a query of the application's own.
    fn query(&mut self, title: &str, query: &impl QueryFragment<Backend>) {
        self.text(title, &diesel::debug_query::<Backend, _>(query).to_string());
    }

    fn text(&mut self, title: &str, sql: &str) {
        self.0 += &format!("{title}:\n{sql}\n\n");
    }

    /// Compares with the file that is named after the backend.
    fn matches(&self, area: &str) {
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(format!("{NAME}_{area}"), self.0);
        });
    }
}

fn failure() -> Change {
    Change {
        status: Some(Status::Error),
        next: Some(Next::In(Duration::from_millis(1_500))),
        try_count: Some(3),
        attempted: true,
        error: ErrorText::Set("no route".to_owned()),
        ..Change::default()
    }
}

#[test]
fn the_sql_of_an_attempt() {
    let success =
        Change { status: Some(Status::Success), next: Some(Next::Never), error: ErrorText::Clear, ..failure() };
    let again =
        Change { next: Some(Next::At(Instant::from(DateTime::UNIX_EPOCH))), error: ErrorText::Keep, ..failure() };
    let mut listing = Listing::default();
    listing.add("look", &probe_due(Claimable::new(queue::<Payment>(), None)));
    listing.add("claim", &Claim::<Backend>::new::<Payment>());
    let mark = Instant::from(DateTime::UNIX_EPOCH);
    let fence = Fence { due: Some(mark), ..FENCE };
    listing.add("look from the mark", &probe_due(Claimable::new(queue::<Payment>(), None).not_below(Some(mark))));
    listing.add("claim from the mark", &Claim::<Backend>::new::<Payment>().not_below(Some(mark)));
    let some = Claim::<Backend>::new::<Payment>().some(50, Vec::new());
    listing.add("claim some from the mark", &some.not_below(Some(mark)));
    listing.add("claim another", &Claim::<Backend>::new::<Payment>().some(1, rows::<Payment>(&[7, 8])));
    listing.add("read keys ahead", &due_keys(Claimable::new(queue::<Payment>(), None), 16));
    listing.add("claim by a key", &claim_key(Claim::new::<Payment>(), row::<Payment>(&7)));
    let by_keys = |limit| claim_keys(Claim::new::<Payment>(), rows::<Payment>(&[7, 8]), limit);
    listing.add("claim by keys", &by_keys(None));
    listing.add("claim one of some keys", &by_keys(Some(1)));
    listing.add("end in a block", &finish_block(row::<Payment>(&7), fence, 3, true));
    listing.add("end in a block, settings not compared", &finish_block(row::<Payment>(&7), fence, 3, false));
    listing.add("settle a success", &Settle::new(row::<Payment>(&7), fence, &success));
    listing.add("settle a failure", &Settle::new(row::<Payment>(&7), fence, &failure()));
    listing.add("settle for a later time", &Settle::new(row::<Payment>(&7), fence, &again));
    listing.add("remove", &Settle::remove(row::<Payment>(&7), fence));
    listing.add("recall", &recall(row::<Payment>(&7), None));
    listing.add("when its last attempt ended", &recall_last_attempt(row::<Payment>(&7)));
    listing.matches("attempt");
}

#[test]
fn the_sql_of_a_pollers_health() {
    let mut listing = Listing::default();
    listing.add("the oldest due row", &oldest_due(Claimable::new(queue::<Payment>(), None)));
    listing.add(
        "the oldest due row in some stages",
        &oldest_due(Claimable::new(queue::<Invoice>(), Some(&["RENDER", "SEND"]))),
    );
    listing.add("a glance at the first pending rows", &first_pending(queue::<Invoice>(), 1_000));
    listing.add("a glance at the longest text", &longest_text(queue::<Payment>(), "company_id", 1_000));
    listing.add("rows that ended their process", &poison_among_last(queue::<Payment>(), 1_000));
    listing.matches("health");
}

#[test]
fn the_sql_for_keys_that_cannot_be_used() {
    let began = Instant::from(DateTime::UNIX_EPOCH);
    let failed = Change {
        status: Some(Status::Failed),
        next: Some(Next::Never),
        attempted: true,
        error: ErrorText::Set("no key".to_owned()),
        ..Change::default()
    };
    let key = Err::<RowKey<i64>, _>("odd".into());
    let row = UnusableRow { identity: "3133".to_owned(), due: Some(began), fence: FENCE, key, lane: None };
    let mut listing = Listing::default();
    let texts = |leased| key_texts(Claimable::new(queue::<Payment>(), None), leased, 1_000);
    listing.add("those that a claim finds first", &texts(None));
    listing.add("those that were leased", &texts(Some(began)));
    listing.add("those that are found", &keys_found(queue::<Payment>(), rows::<Payment>(&[1, 2])));
    listing.add("set aside", &set_aside(queue::<Payment>(), &row, &failed));
    listing.matches("unusable_keys");
}

#[test]
fn the_sql_of_a_lease() {
    let leased = Change {
        status: Some(Status::InProgress),
        next: Some(Next::In(Duration::from_secs(60))),
        another_try: true,
        began: Some(Instant::from(DateTime::UNIX_EPOCH)),
        ..Change::default()
    };
    let extended = Change { next: Some(Next::In(Duration::from_secs(60))), unless_stopped: true, ..Change::default() };
    let fenced = [(7, FENCE), (8, FENCE)];
    let (began, token) =
        (Instant::from(DateTime::UNIX_EPOCH), Instant::from(DateTime::UNIX_EPOCH + TimeDelta::minutes(1)));
    let mut listing = Listing::default();
    listing.add("claim", &Claim::<Backend>::new::<Payment>().some(10, Vec::new()));
    let due = || Claim::<Backend>::new::<Payment>().some(10, rows::<Payment>(&[7])).not_below(Some(began));
    listing.add("at once, where the database can", &lease_due(due(), Duration::from_secs(60)));
    listing.add("lease", &Settle::many(queue::<Payment>(), &fenced_rows::<Payment>(fenced), &leased));
    let held = fenced.map(|(key, fence)| (key, Fence { began: Some(began), ..fence }));
    listing.add("extend", &Settle::many(queue::<Payment>(), &fenced_rows::<Payment>(held), &extended));
    let (one, more) = (fenced_rows::<Payment>(held[..1].iter().copied()), fenced_rows::<Payment>(held));
    listing.add("extend while it holds", &Settle::many(queue::<Payment>(), &one, &extended).if_leased());
    listing.add("extend several while they hold", &Settle::many(queue::<Payment>(), &more, &extended).if_leased());
    listing.add("recall in a state", &recall(row::<Payment>(&7), Some(held[0].1)));
    listing.add("the present", &present());
    listing.add("without SKIP LOCKED: take", &take(due(), began, token));
    listing.add("without SKIP LOCKED: taken", &taken(Claim::new::<Payment>(), began, token));
    listing.matches("lease");
}

#[test]
fn the_sql_of_a_group() {
    let success = Change {
        status: Some(Status::Success),
        next: Some(Next::Never),
        try_count: None,
        another_try: true,
        error: ErrorText::Clear,
        ..failure()
    };
    let reserved = Change {
        next: Some(Next::At(Instant::from(DateTime::UNIX_EPOCH))),
        error: ErrorText::Set("in the group 0".to_owned()),
        ..Change::default()
    };
    let due = Some(Instant::from(DateTime::UNIX_EPOCH));
    let fenced = fenced_rows::<Payment>([(7, Fence { due, ..FENCE }), (8, Fence { due, try_count: 0, ..FENCE })]);
    let mut listing = Listing::default();
    listing.add("claim", &Claim::<Backend>::new::<Payment>().some(50, Vec::new()));
    listing.add("claim others", &Claim::<Backend>::new::<Payment>().some(50, rows::<Payment>(&[7, 8])));
    listing.add("reserve", &Settle::many(queue::<Payment>(), &fenced, &reserved));
    listing.add("settle the successes", &Settle::many(queue::<Payment>(), &fenced, &success));
    listing.add("recall the mark", &recall_reservation(row::<Payment>(&7)));
    listing.matches("group");
}

#[test]
fn the_sql_of_strict_crash_accounts() {
    let mark = Change {
        next: Some(Next::In(Duration::from_secs(30))),
        error: ErrorText::Set("this message is being handled".to_owned()),
        ..Change::default()
    };
    let mut listing = Listing::default();
    listing.add("mark", &Settle::new(row::<Payment>(&7), FENCE, &mark));
    listing.add("retake", &retake(Claim::new::<Payment>(), row::<Payment>(&7), FENCE, false));
    listing.matches("strict");
}

#[test]
fn the_sql_of_stages() {
    let served = Some(&["RENDER", "SEND"][..]);
    let (began, token) =
        (Instant::from(DateTime::UNIX_EPOCH), Instant::from(DateTime::UNIX_EPOCH + TimeDelta::minutes(1)));
    let advanced = Change { next: Some(Next::InStage("SEND")), try_count: Some(0), ..Change::default() };
    let mut listing = Listing::default();
    listing.add("look", &probe_due(Claimable::new(queue::<Invoice>(), None)));
    listing.add("claim", &Claim::<Backend>::new::<Invoice>());
    listing.add("claim in some stages", &Claim::<Backend>::new::<Invoice>().in_stages(served));
    listing.add(
        "take in some stages",
        &take(Claim::new::<Invoice>().in_stages(served).some(10, Vec::new()), began, token),
    );
    listing.add("read the details", &read_details(row::<Invoice>(&7)));
    listing.add("settle for the next stage", &Settle::new(row::<Invoice>(&7), FENCE, &advanced));
    listing.add("find unknown stages", &unknown_stages(queue::<Invoice>()));
    listing.matches("stages");
}

#[test]
fn the_sql_of_schedules() {
    let (began, token) =
        (Instant::from(DateTime::UNIX_EPOCH), Instant::from(DateTime::UNIX_EPOCH + TimeDelta::minutes(1)));
    let scheduled = Change { next: Some(Next::Scheduled(token)), ..failure() };
    let mut listing = Listing::default();
    listing.add("read the details", &read_details(row::<Periodic>(&7)));
    listing.add("settle for the next run", &Settle::new(row::<Periodic>(&7), FENCE, &scheduled));
    listing.add("settle for another try", &Settle::new(row::<Periodic>(&7), FENCE, &failure()));
    listing.add("take", &take(Claim::new::<Periodic>().some(10, Vec::new()), began, token));
    listing.matches("schedules");
}

#[test]
fn the_sql_of_pauses() {
    let mut listing = Listing::default();
    let of = |end| set_pause(("payments.status", "stage SEND"), ("ops", "bank down"), None, end);
    listing.add("read the table", &read_control(None));
    listing.add("read what is about a queue", &read_control(Some("payments.status")));
    listing.add("pause", &of(PauseEnd::Never));
    listing.add("pause until a time", &of(PauseEnd::At(Instant::from(DateTime::UNIX_EPOCH))));
    listing.add("pause for a time", &of(PauseEnd::After(Duration::from_secs(60))));
    listing.add("unpause", &end_pause("payments.status", ""));
    let scope = ("payments.status", "value company_id 3345");
    listing.add("pause a value", &set_pause(scope, ("ops", "bank down"), Some("3345"), PauseEnd::Never));
    let limits = [Some(2), None, Some(60_000)];
    listing.add("limit", &set_limits("payments.status", ("ops", "bank is slow"), limits));
    listing.add("end the limits", &end_limits("payments.status"));
    listing.add("name the environment", &set_environment("production", false));
    listing.add("adopt the environment", &set_environment("staging", true));
    let entry = PollerEntry::default();
    listing.add("update a poller", &update_poller(&entry));
    listing.add("insert a poller", &insert_poller(&entry));
    listing.add("read the pollers", &read_pollers());
    listing.add("remove a poller", &remove_poller(7));
    let step = Conn::own_step(OwnTable::Control);
    listing.text("add the control table", &step.up.join(";\n"));
    listing.text("remove the control table", &step.down.join(";\n"));
    let step = Conn::own_step(OwnTable::Minutes);
    listing.text("add the table of minutes", &step.up.join(";\n"));
    listing.text("remove the table of minutes", &step.down.join(";\n"));
    let step = Conn::own_step(OwnTable::Pollers);
    listing.text("add the table of pollers", &step.up.join(";\n"));
    listing.text("remove the table of pollers", &step.down.join(";\n"));
    listing.matches("control");
}

#[test]
fn the_sql_of_the_audit() {
    let text = |text: &str| text.to_owned();
    let entry = AuditEntry {
        at: Instant::from(DateTime::UNIX_EPOCH),
        id: 7,
        by: text("ops@example.org"),
        reason: text("ticket 812"),
        queue: text("payments.status"),
        action: text("retry_now"),
        filter: text("all rows"),
    };
    let mut listing = Listing::default();
    listing.add("add a row", &insert_audit(&entry, 3));
    listing.add("set its number", &update_audit(&entry, 5));
    listing.add("read the newest", &read_audit(None, None, 101));
    let after = (text("1970-01-01T00:00:00+00:00"), 7);
    listing.add("read those of a queue after a row", &read_audit(Some("payments.status"), Some(&after), 101));
    let step = Conn::own_step(OwnTable::Audit);
    listing.text("add the table", &step.up.join(";\n"));
    listing.text("remove the table", &step.down.join(";\n"));
    listing.matches("audit");
}

#[test]
fn the_sql_of_operations() {
    let filter = And(payments::company_id.eq(3345), payment_queue::try_count.gt(1).or(payments::amount_cents.lt(0)));
    let filter: Option<&dyn QueryFragment<Backend>> = Some(&filter);
    let states = [
        StateCondition::In(&[Status::Failed]),
        StateCondition::NotIn(&[Status::Success, Status::Skipped]),
        StateCondition::Pending,
        StateCondition::NotPending,
        StateCondition::Due,
        StateCondition::Scheduled,
        StateCondition::WithErrorText,
        StateCondition::WithoutErrorText,
    ];
    let now = Change { next: Some(Next::In(Duration::ZERO)), ..Change::default() };
    let mut listing = Listing::default();
    listing.add("count", &count(Condition::new(queue::<Payment>(), filter, &states)));
    listing.add("count by status", &count_by_status(Condition::new(queue::<Payment>(), filter, &[])));
    listing.add("load", &load_rows::<Payment, _>(Condition::new(queue::<Payment>(), filter, &[]), None));
    listing.add("load some", &load_rows::<Payment, _>(Condition::new(queue::<Payment>(), filter, &[]), Some(10)));
    let change = |keep_off_index| {
        let condition = Condition::new(queue::<Payment>(), filter, &states[..1]);
        change_all(condition, &now, keep_off_index)
    };
    listing.add("change", &change(true));
    listing.add("change in the caller's transaction", &change(false));
    listing.add("remove", &remove_all(Condition::new(queue::<Payment>(), filter, &states[..1])));
    listing.matches("operations");
}

#[test]
fn the_sql_of_batches_and_archives() {
    let company = payments::company_id.eq(3345);
    let filter: Option<&dyn QueryFragment<Backend>> = Some(&company);
    let states = [StateCondition::AttemptedBefore(Duration::from_secs(86_400)), StateCondition::NeverAttempted];
    let kinds = [vec![StateCondition::Pending, StateCondition::NotLeased], vec![StateCondition::In(&[Status::Failed])]];
    let live = erased::<Payment>().target().unwrap().table;
    let archive = Archive::of(&live, "payments_failed").unwrap();
    let columns = ["id", "amount_cents"].map(str::to_owned);
    let due = Change { next: Some(Next::In(Duration::ZERO)), ..Change::default() };
    let of_kinds = Condition::new(queue::<Payment>(), filter, &[]).of_kinds(&kinds);
    let picked = Condition::new(queue::<Payment>(), filter, &states);
    let archived = Condition::new(queue::<Payment>(), filter, &[]).within(Some(&archive));
    let mut listing = Listing::default();
    listing.add("count for a preview", &count(of_kinds));
    listing.add("rows for a preview", &sample(Claim::new::<Payment>(), of_kinds, 5));
    listing.add("read keys", &read_keys(picked, 10_000, 3));
    let keys = rows::<Payment>(&[7, 8]);
    let (among, of_keys) = (picked.among(&keys), Condition::of_keys(queue::<Payment>(), &keys));
    listing.add("lock rows, passing over others", &lock_keys(among, true, false));
    listing.add("lock rows to remove them, passing over others", &lock_keys(among, true, true));
    listing.add("lock rows", &lock_keys(among, false, false));
    listing.add("count the rows that were left", &count(among));
    listing.add("change rows", &change_all(of_keys, &due, false));
    listing.add("remove rows", &remove_all(of_keys));
    listing.add("remove if due", &Settle::remove(row::<Payment>(&7), FENCE).if_due(true));
    listing.add("copy to the archive", &copy_rows(of_keys, Some(archive.table()), &columns));
    listing.add("read archived keys", &read_keys(archived, 10_000, 0));
    listing.add("copy from the archive", &copy_rows(of_keys.within(Some(&archive)), None, &columns));
    listing.add("remove from the archive", &remove_all(of_keys.within(Some(&archive))));
    let target = erased::<Moved>().target().unwrap();
    for step in Conn::steps(&target).iter().filter(|step| step.name == "archive") {
        listing.text("create archives, up", &step.up.join(";\n"));
        listing.text("create archives, down", &step.down.join(";\n"));
    }
    listing.matches("archives");
}

#[test]
fn the_sql_of_the_upkeep() {
    let mut listing = Listing::default();
    let after = <KeptAlone as StoredIn<Backend>>::after(&7);
    listing.add("look at the first rows", &next_rows(queue::<KeptAlone>(), None, 5_000));
    listing.add("look at the next rows", &next_rows(queue::<KeptAlone>(), Some(after), 5_000));
    let (states, keys) = ([StateCondition::In(&[Status::Failed]), StateCondition::Expired], rows::<KeptAlone>(&[7, 8]));
    let expired = Condition::new(queue::<KeptAlone>(), None, &states).among(&keys);
    listing.add("lock rows that have expired", &lock_expired(expired, true));
    listing.add("wait for them", &lock_expired(expired, false));
    listing.add("count them", &count_by_status(Condition::new(queue::<KeptAlone>(), None, &states[1..])));
    listing.matches("upkeep");
}

#[test]
fn the_sql_of_a_migration() {
    let target = erased::<Payment>().target().unwrap();
    let mut listing = Listing::default();
    for step in Conn::steps(&target) {
        let transaction = if step.in_transaction { "in a transaction" } else { "outside a transaction" };
        listing.text(&format!("{}, up, {transaction}", step.name), &step.up.join(";\n"));
        listing.text(&format!("{}, down, {transaction}", step.name), &step.down.join(";\n"));
    }
    listing.matches("migration");
}

#[test]
fn the_sql_of_columns_in_the_applications_own_queries() {
    let mut listing = Listing::default();
    let rows = payments::table.filter(payment_queue::status.eq(Status::Error)).select(Payment::queue_state());
    listing.query("select", &rows);
    let values = (payments::company_id.eq(1), payments::amount_cents.eq(100), Payment::due_now());
    listing.query("insert, due now", &diesel::insert_into(payments::table).values(values));
    let row = payments::table.find(7);
    listing.query("update, due in", &diesel::update(row).set(Payment::due_in(Duration::from_secs(60))));
    listing.query("update, due at", &diesel::update(row).set(Payment::due_at(DateTime::UNIX_EPOCH)));
    listing.matches("columns");
}
