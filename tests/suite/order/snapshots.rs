//! The SQL of ordered claims on each backend, so that a review shows what changed.

use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use diesel::prelude::*;
use queue_core::internals::Lane;
use queue_core::internals::backend::{Schema, Sql, Statement};
use queue_core::internals::statement::{Claim, Claimable, Condition, head, leased_in, probe_due, set_priority, take};
use queueable::bounds::QueueOn;
use queueable::columns::Instant;

use super::{Backend, Step, entity};
use crate::db::{Conn, NAME};
use crate::suite::bank::payments;
use crate::suite::keyed::{erased, queue, row, rows};

entity!(Urgent, urgent_queue, priority(age = "1h"));
entity!(Largest, largest_queue, order_by(amount_cents.desc(), company_id));
entity!(Alone, alone_queue, exclusive, order_by = company_id, claim_if = "payments::amount_cents.gt(0)");
entity!(
    InSteps,
    in_steps_queue,
    exclusive,
    order_by = company_id,
    claim_if = "payments::amount_cents.gt(0)",
    stage = Step
);

fn title(listing: &mut String, title: &str, sql: &str) {
    *listing += &format!("{title}:\n{sql}\n\n");
}

fn add(listing: &mut String, name: &str, statement: &impl Statement<Backend>) {
    title(listing, name, &diesel::debug_query::<Backend, _>(&Sql::new(statement)).to_string());
}

fn steps<Q: QueueOn<Conn>>(listing: &mut String) {
    for step in Conn::steps(&erased::<Q>().target().unwrap()).iter().filter(|step| step.name != "columns") {
        title(listing, &format!("{}, {}, up", Q::ENTITY, step.name), &step.up.join(";\n"));
        title(listing, &format!("{}, {}, down", Q::ENTITY, step.name), &step.down.join(";\n"));
    }
}

#[test]
fn the_sql_of_an_order() {
    let mut sql = String::new();
    let (began, token) =
        (Instant::from(DateTime::UNIX_EPOCH), Instant::from(DateTime::UNIX_EPOCH + TimeDelta::minutes(1)));
    let claim = || Claim::<Backend>::new::<Urgent>();
    let age = Duration::from_secs(3600);
    add(&mut sql, "claim", &claim());
    add(&mut sql, "claim of aged rows", &claim().some(1, Vec::new()).aged(age));
    add(&mut sql, "claim by keys", &claim().some(2, Vec::new()).only(rows::<Urgent>(&[7, 8])));
    add(&mut sql, "take", &take(claim().some(10, Vec::new()), began, token));
    add(&mut sql, "take aged rows", &take(claim().some(10, Vec::new()).aged(age), began, token));
    let filter = Some(&payments::company_id.eq(3345)).copied();
    let condition = Condition::new(queue::<Urgent>(), filter.as_ref().map(|filter| filter as _), &[]);
    add(&mut sql, "set the priority", &set_priority(condition, 5, true));
    add(&mut sql, "whose turn it is", &head(Claimable::new(queue::<Alone>(), None)));
    add(&mut sql, "look whose turn it is", &probe_due(Claimable::new(queue::<Alone>(), None)));
    add(
        &mut sql,
        "whether another row is leased",
        &leased_in(queue::<Alone>(), Lane::Queue, Some(row::<Alone>(&7).is_key), 1, None),
    );
    let in_steps = |stages| Claimable::new(queue::<InSteps>(), stages);
    add(&mut sql, "whose turn it is in all stages", &head(in_steps(None)));
    add(&mut sql, "whose turn it is in one stage", &head(in_steps(Some(&["SEND"]))));
    add(&mut sql, "whose turn it is in two stages", &head(in_steps(Some(&["SEND", "BOOK"]))));
    add(&mut sql, "claim in a descending order", &Claim::<Backend>::new::<Largest>());
    steps::<Urgent>(&mut sql);
    steps::<Largest>(&mut sql);
    steps::<Alone>(&mut sql);
    steps::<InSteps>(&mut sql);
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{NAME}_order"), sql);
    });
}
