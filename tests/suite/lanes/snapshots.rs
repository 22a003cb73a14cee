//! The SQL about lanes on each backend, so that a review shows what changed.

use std::time::Duration;

use diesel::IntoSql;
use diesel::sql_types::BigInt;
use queue_core::internals::backend::{Place, Schema, Sql, Statement};
use queue_core::internals::statement::{
    Claim, Claimable, FromLane, Pick, ahead_due, ahead_key, due_lanes, lane_of, lane_value, leased_in, next_lanes,
};
use queue_core::internals::{BoundValue, Lane, LaneValue};
use queueable::bounds::QueueOn;

use super::{Backend, job, jobs};
use crate::db::{Conn, NAME};
use crate::suite::keyed::{erased, queue, row, rows};

job!(Serial, serial_queue, serial_by = company_id);
job!(Strict, strict_queue, serial_by(company_id, strict));
job!(Ranked, ranked_queue, fair_by = company_id, order_by = rank);

fn add(listing: &mut String, title: &str, statement: &impl Statement<Backend>) {
    *listing += &format!("{title}:\n{}\n\n", diesel::debug_query::<Backend, _>(&Sql::new(statement)));
}

fn steps<Q: QueueOn<Conn>>(listing: &mut String) {
    for step in
        Conn::steps(&erased::<Q>().target().unwrap()).iter().filter(|step| ["lanes", "strict"].contains(&step.name))
    {
        *listing += &format!("{}, up:\n{}\n\n", Q::ENTITY, step.up.join(";\n"));
        *listing += &format!("{}, down:\n{}\n\n", Q::ENTITY, step.down.join(";\n"));
    }
}

#[test]
fn the_sql_of_lanes() {
    let mut sql = String::new();
    let value = || LaneValue { identity: "7".into(), bound: BoundValue::Integer(7) };
    let lane = || Lane::Value(value());
    let from = |lane, pick| FromLane { lane, place: None, pick };
    add(&mut sql, "lanes of the due rows", &due_lanes(Claimable::new(queue::<Serial>(), None), 128));
    let next = |after, limit| next_lanes(Claimable::new(queue::<Serial>(), None), after, limit);
    add(&mut sql, "first lane", &next(None, 1));
    add(&mut sql, "next lane", &next(Some(value()), 1));
    add(&mut sql, "next lanes", &next(Some(value()), 32));
    add(&mut sql, "lane of a row", &lane_of(row::<Serial>(&1)));
    let seven = 7_i64.into_sql::<BigInt>();
    add(&mut sql, "lane of a value", &lane_value(queue::<Serial>(), &seven));
    let claim = || Claim::<Backend>::new::<Serial>().some(1, Vec::new());
    add(&mut sql, "claim in a lane", &claim().in_lane(from(lane(), Pick::Any)));
    add(&mut sql, "claim of the first row in a lane", &claim().in_lane(from(lane(), Pick::First)));
    if NAME == "postgres" {
        let place = Place::of(&erased::<Serial>().target().unwrap(), "=7", 1);
        let from = FromLane { place: Some(place), ..from(lane(), Pick::First) };
        add(&mut sql, "claim in a lane, with a place", &claim().in_lane(from));
    }
    add(&mut sql, "claim without a value", &claim().in_lane(from(Lane::NoValue, Pick::Any)));
    add(&mut sql, "claim in a lane by key", &claim().in_lane(from(lane(), Pick::First)).only(rows::<Serial>(&[1])));
    add(
        &mut sql,
        "claim in a lane by an order",
        &Claim::<Backend>::new::<Ranked>().some(2, Vec::new()).in_lane(from(lane(), Pick::Any)),
    );
    let longest = Duration::from_secs(60);
    let leased = |lane, except, limit| leased_in(queue::<Serial>(), lane, except, limit, Some(longest));
    add(&mut sql, "leased rows of a lane", &leased(lane(), Some(row::<Serial>(&1).is_key), 1));
    add(&mut sql, "leased rows of the queue", &leased(Lane::Queue, None, 3));
    add(&mut sql, "when what holds a lane back is due", &ahead_due(queue::<Strict>(), lane()));
    add(&mut sql, "what holds a lane back", &ahead_key(queue::<Strict>(), lane()));
    let strict = |pick| Claim::<Backend>::new::<Strict>().some(1, rows::<Strict>(&[5])).in_lane(from(lane(), pick));
    add(&mut sql, "claim of what holds a lane back", &strict(Pick::Ahead));
    add(&mut sql, "claim of the very first row", &strict(Pick::FirstOfAll));
    steps::<Serial>(&mut sql);
    steps::<Strict>(&mut sql);
    steps::<Ranked>(&mut sql);
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{NAME}_lanes"), sql);
    });
}
