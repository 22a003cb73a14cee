//! How messages are worked: the mode, its settings, and the order within a group.

use std::any::TypeId;
use std::cmp::Ordering;

use queueable::bounds::{GroupMode, HandlerFor, LeaseMode, TransactionMode};
use queueable::{Failure, HandlerResult, Lease, LeaseHandler, Message, Outcome};

use super::*;

fn mode<Q: Queueable>() -> TypeId {
    TypeId::of::<Q::Mode>()
}

macro_rules! entity {
    ($name:ident, $(#[$attribute:meta])*) => {
        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        $(#[$attribute])*
        #[allow(dead_code, reason = "few of them are compared")]
        struct $name {
            id: i64,
            company_id: i32,
        }
    };
}

#[test]
fn is_a_transaction_for_each_message_unless_the_attributes_say_more() {
    entity!(Plain, #[queue(max_tries = 3, timeout = "5s")]);
    assert_eq!(mode::<Plain>(), TypeId::of::<TransactionMode>());
    assert_eq!(mode::<Payment>(), TypeId::of::<TransactionMode>());
}

#[test]
fn is_a_lease_where_one_is_given() {
    entity!(Shortest, #[queue(lease = "100ms")]);
    entity!(Longest, #[queue(lease = "1d", timeout = "2d")]);
    assert_eq!([mode::<Shortest>(), mode::<Longest>()], [TypeId::of::<LeaseMode>(); 2]);
    assert_eq!(Shortest::SETTINGS, Settings { lease: Duration::from_millis(100), ..Settings::DEFAULT });
    let day = Duration::from_secs(86_400);
    assert_eq!(Longest::SETTINGS, Settings { lease: day, timeout: Some(2 * day), ..Settings::DEFAULT });
}

#[test]
fn is_a_group_where_one_is_given() {
    entity!(Number, #[queue(group = 2)]);
    entity!(List, #[queue(group(1000))]);
    entity!(Comma, #[queue(group(50,))]);
    entity!(Auto, #[queue(group = auto)]);
    assert_eq!([mode::<Number>(), mode::<List>(), mode::<Comma>(), mode::<Auto>()], [TypeId::of::<GroupMode>(); 4]);
    assert_eq!(
        [Number::SETTINGS, List::SETTINGS, Comma::SETTINGS, Auto::SETTINGS],
        [Some(2), Some(1000), Some(50), None].map(|group| Settings { group, ..Settings::DEFAULT })
    );
}

#[test]
fn may_be_an_optimistic_group() {
    entity!(Optimistic, #[queue(group(50, optimistic))]);
    entity!(Comma, #[queue(group(50, optimistic,))]);
    entity!(Auto, #[queue(group(auto, optimistic))]);
    assert_eq!([mode::<Optimistic>(), mode::<Comma>(), mode::<Auto>()], [TypeId::of::<GroupMode>(); 3]);
    assert_eq!(
        [Optimistic::SETTINGS, Comma::SETTINGS, Auto::SETTINGS],
        [Some(50), Some(50), None].map(|group| Settings { group, optimistic: true, ..Settings::DEFAULT })
    );
}

#[test]
fn orders_a_group_by_the_named_column_only() {
    entity!(Unordered, #[queue(group = 50)]);
    assert_eq!(
        Unordered { id: 1, company_id: 9 }.compare_in_group(&Unordered { id: 2, company_id: 3 }),
        Ordering::Equal
    );
    entity!(ByCompany, #[queue(group = 50, order_in_group = company_id)]);
    assert_eq!(
        ByCompany { id: 1, company_id: 9 }.compare_in_group(&ByCompany { id: 2, company_id: 3 }),
        Ordering::Greater
    );
    assert_eq!(
        ByCompany { id: 1, company_id: 3 }.compare_in_group(&ByCompany { id: 2, company_id: 3 }),
        Ordering::Equal
    );
}

#[test]
fn orders_a_group_by_the_column_and_not_by_the_fields_name() {
    diesel::table! { parcels (id) { id -> BigInt, r#type -> Text, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = parcels)]
    #[queue(group = 50)]
    #[queue(order_in_group = r#type)]
    struct Parcel<'a> {
        #[expect(dead_code)]
        id: i64,
        #[diesel(column_name = "type")]
        kind: Cow<'a, str>,
    }

    let [letter, tube] = ["letter", "tube"].map(|kind| Parcel { id: 1, kind: kind.into() });
    assert_eq!(letter.compare_in_group(&tube), Ordering::Less);
}

#[test]
fn orders_a_group_in_an_entity_that_a_macro_writes() {
    macro_rules! by_company {
        ($name:ident) => {
            #[derive(Queryable, Selectable, Queueable)]
            #[diesel(table_name = payments)]
            #[queue(group = 50, order_in_group = company_id)]
            struct $name {
                #[expect(dead_code)]
                id: i64,
                company_id: i32,
            }
        };
    }

    by_company!(Written);
    assert_eq!(Written { id: 1, company_id: 2 }.compare_in_group(&Written { id: 2, company_id: 1 }), Ordering::Greater);
}

#[test]
fn decides_what_a_handler_is() {
    fn serves<Q: Queueable>(_: impl HandlerFor<Q, SqliteConnection>) {}

    struct Both;

    impl<Q> queueable::Handler<Q, SqliteConnection> for Both {
        fn handle(&self, _: &Q, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
            Ok(Outcome::Done)
        }
    }

    impl<Q> LeaseHandler<Q, SqliteConnection> for Both {
        type Answer = u16;

        fn call(&self, _: &Q, _: &Lease) -> Result<u16, Failure> {
            Ok(200)
        }

        fn apply(&self, _: &Q, _: &u16, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
            Ok(Outcome::Done)
        }
    }

    entity!(Leased, #[queue(prefix = "l_", lease = "60s")]);
    entity!(Grouped, #[queue(prefix = "g_", group = 50)]);
    serves::<Payment>(Both);
    serves::<Grouped>(Both);
    serves::<Leased>(Both);
    serves::<Payment>(|_: &Payment, _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done));
    serves::<Grouped>(|_: &Grouped, _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done));
    serves::<Leased>((
        |_: &Leased, lease: &Lease| Ok(lease.try_number()),
        |_: &Leased, _: &u32, _: &mut Message<'_, SqliteConnection>| Ok(Outcome::Done),
    ));
}
