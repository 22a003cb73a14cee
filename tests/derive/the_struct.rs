//! The struct: lifetimes, generics, embedded structs, several queues on one table.

use super::*;

#[test]
fn may_have_lifetimes() {
    diesel::table! { letters (id) { id -> Text, body -> Text, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Letter<'a> {
        #[expect(dead_code)]
        id: Cow<'a, str>,
        #[expect(dead_code)]
        body: Cow<'a, str>,
    }

    fn of<'a>(_: &'a str) -> String {
        sql(&letters::table.filter(Letter::<'a>::is_key("x".into())).select(letter_queue::status))
    }

    assert_eq!(of("any"), "SELECT `letters`.`status` FROM `letters` WHERE (`letters`.`id` = ?)");
}

#[test]
fn may_be_generic() {
    use diesel::expression::AsExpression;
    use diesel::sql_types::BigInt;

    diesel::table! { items (id) { id -> BigInt, label -> Text, } }

    #[derive(Queryable, Selectable, Queueable)]
    struct Item<K, L = String>
    where
        K: AsExpression<BigInt> + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        #[expect(dead_code)]
        id: K,
        #[expect(dead_code)]
        label: L,
    }

    assert_eq!(
        sql(&items::table.filter(Item::<i64>::is_key(1)).select(item_queue::status)),
        "SELECT `items`.`status` FROM `items` WHERE (`items`.`id` = ?)"
    );
    assert_eq!(Item::<i64, Vec<u8>>::ENTITY, "Item");
}

#[test]
fn may_embed_others() {
    /// Selectable for one backend only: the derive must not ask for more.
    #[derive(Debug, PartialEq, Queryable)]
    struct OnlySqlite {
        company_id: i32,
    }

    impl Selectable<Sqlite> for OnlySqlite {
        type SelectExpression = (payments::company_id,);

        fn construct_selection() -> Self::SelectExpression {
            (payments::company_id,)
        }
    }

    #[derive(Debug, PartialEq, Queryable, Selectable)]
    #[diesel(table_name = payments)]
    struct Amount {
        amount_cents: i64,
    }

    #[derive(Debug, PartialEq, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments, check_for_backend(Sqlite))]
    struct Nested {
        id: i64,
        #[diesel(embed)]
        owner: OnlySqlite,
        #[diesel(embed)]
        status: Amount,
    }

    let connection = &mut database();
    let nested =
        payments::table.filter(nested_queue::status.eq(Status::Success)).select(Nested::as_select()).first(connection);
    let (owner, status) = (OnlySqlite { company_id: 1 }, Amount { amount_cents: 200 });
    assert_eq!(nested, Ok(Nested { id: 2, owner, status }));
}

#[test]
fn may_carry_all_of_diesels_other_attributes() {
    #[derive(Identifiable, Associations, Insertable, AsChangeset, HasQuery, Queueable)]
    #[diesel(table_name = payments, belongs_to(Company), treat_none_as_null = true, check_for_backend(Sqlite))]
    #[diesel(base_query = payments::table.filter(payments::id.gt(0).and(payments::id.lt(9))))]
    #[diesel(base_query_type = diesel::dsl::Filter<payments::table, diesel::dsl::And<diesel::dsl::Gt<payments::id, i64>, diesel::dsl::Lt<payments::id, i64>>>)]
    struct Decorated {
        id: i64,
        company_id: i32,
        #[diesel(skip_update, serialize_as = i64)]
        amount_cents: i64,
    }

    #[derive(Queryable, Selectable, Identifiable)]
    #[diesel(table_name = companies)]
    struct Company {
        id: i32,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[expect(dead_code)]
    struct Computed {
        id: i64,
        #[diesel(select_expression = payments::company_id + 1)]
        #[diesel(select_expression_type = diesel::helper_types::Add<payments::company_id, i32>)]
        two: i32,
    }

    assert_eq!(Decorated::ENTITY, "Decorated");
    assert_eq!(Computed::ENTITY, "Computed");
}

#[test]
fn may_select_functions_of_the_row_and_subselects() {
    diesel::define_sql_function! { fn abs(amount: diesel::sql_types::BigInt) -> diesel::sql_types::BigInt; }

    #[derive(Debug, PartialEq, Queryable, Selectable)]
    #[diesel(table_name = payments)]
    struct Owner {
        #[diesel(select_expression =
            companies::table.filter(companies::id.eq(payments::company_id)).select(companies::name).single_value())]
        name: Option<String>,
    }

    #[derive(Debug, PartialEq, HasQuery, Queueable)]
    #[diesel(table_name = payments)]
    struct Enriched {
        id: i64,
        #[diesel(select_expression = abs(payments::amount_cents))]
        amount: i64,
        // Only the type says that the literal has 64 bits.
        #[diesel(select_expression = payments::amount_cents + 1)]
        #[diesel(select_expression_type = diesel::helper_types::Add<payments::amount_cents, i64>)]
        more: i64,
        #[diesel(select_expression = diesel::dsl::sql::<diesel::sql_types::Text>("'raw'"))]
        #[diesel(select_expression_type = diesel::expression::SqlLiteral<diesel::sql_types::Text>)]
        raw: String,
        #[diesel(embed)]
        owner: Owner,
        #[diesel(embed)]
        same: Option<Owner>,
    }

    let enriched = payments::table.find(3).select(Enriched::as_select()).first(&mut database());
    let owner = || Owner { name: Some("Grace".into()) };
    let raw = "raw".to_owned();
    assert_eq!(enriched, Ok(Enriched { id: 3, amount: 300, more: 301, raw, owner: owner(), same: Some(owner()) }));
    assert_eq!(Enriched::ENTITY, "Enriched");
}

#[test]
fn may_name_itself_in_the_types_of_its_fields() {
    trait Columns {
        type Key;
        type Cents;
    }

    #[derive(Debug, PartialEq, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    struct Referring {
        id: <Self as Columns>::Key,
        amount_cents: <Self as Columns>::Cents,
    }

    impl Columns for Referring {
        type Key = i64;
        type Cents = i64;
    }

    #[derive(Debug, PartialEq, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    struct Nested {
        id: i64,
        #[diesel(embed)]
        amount: <Self as Columns>::Cents,
    }

    impl Columns for Nested {
        type Key = i64;
        type Cents = Referring;
    }

    let nested = payments::table.filter(Nested::is_key(3)).select(Nested::as_select()).first(&mut database());
    assert_eq!(nested, Ok(Nested { id: 3, amount: Referring { id: 3, amount_cents: 300 } }));
    assert_eq!(
        sql(&payments::table.filter(Referring::is_key(3)).select(referring_queue::status)),
        "SELECT `payments`.`status` FROM `payments` WHERE (`payments`.`id` = ?)"
    );
}

#[test]
fn may_name_its_module() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = charging)]
    struct Charge {
        #[expect(dead_code)]
        id: i64,
    }

    assert_eq!(sql(&payments::table.select(charging::status)), "SELECT `payments`.`status` FROM `payments`");
    assert_eq!(Charge::ENTITY, "Charge");
}

#[test]
fn gives_its_visibility_to_the_module() {
    mod outer {
        pub(super) mod inner {
            #[derive(diesel::Queryable, diesel::Selectable, queueable::Queueable)]
            #[diesel(table_name = super::super::payments)]
            pub(in super::super) struct Hidden {
                #[expect(dead_code)]
                id: i64,
            }
        }
    }

    assert_eq!(
        sql(&payments::table.select(outer::inner::hidden_queue::try_count)),
        "SELECT `payments`.`try_count` FROM `payments`"
    );
    assert_eq!(outer::inner::Hidden::ENTITY, "Hidden");
}

#[test]
fn may_be_visible_in_any_way_and_its_stages_less() {
    mod outer {
        pub(super) mod inner {
            use queueable::{Queueable, Stage};

            #[derive(Debug, Clone, Copy, Stage)]
            enum Private {
                Charge,
            }

            #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
            #[diesel(table_name = super::super::payments)]
            #[queue(stage = Private)]
            pub(crate) struct InTheCrate {
                #[expect(dead_code)]
                id: i64,
            }

            #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
            #[diesel(table_name = super::super::payments)]
            #[queue(stage = Private)]
            pub(in self::super) struct InTheParent {
                #[expect(dead_code)]
                id: i64,
            }

            pub(in super::super) fn first() -> &'static str {
                Private::Charge.name()
            }
        }

        pub(super) fn parents() -> &'static str {
            let _ = inner::in_the_parent_queue::stage;
            <inner::InTheParent as queueable::Entity>::ENTITY
        }
    }

    assert_eq!(
        sql(&payments::table.select(outer::inner::in_the_crate_queue::stage)),
        "SELECT `payments`.`stage` FROM `payments`"
    );
    assert_eq!((outer::inner::InTheCrate::ENTITY, outer::parents()), ("InTheCrate", "InTheParent"));
    assert_eq!(outer::inner::first(), "CHARGE");
}

#[test]
fn may_be_deprecated_and_its_stages_too() {
    use queueable::Stage;

    // Diesel's own derives warn of a deprecated struct, so its traits are implemented by hand here.
    mod old {
        #![deny(deprecated)]

        use queueable::{Queueable, Stage};

        #[derive(Debug, Clone, Copy, Stage)]
        #[deprecated]
        pub(super) enum Old {
            Charge,
        }

        #[derive(Queueable)]
        #[diesel(table_name = super::payments)]
        #[queue(stage = Old)]
        #[deprecated]
        pub(super) struct Payment {
            pub(super) id: i64,
        }

        #[allow(deprecated)]
        impl<DB: diesel::backend::Backend> diesel::Selectable<DB> for Payment {
            type SelectExpression = (super::payments::id,);

            fn construct_selection() -> Self::SelectExpression {
                (super::payments::id,)
            }
        }

        #[allow(deprecated)]
        impl<DB: diesel::backend::Backend> diesel::Queryable<(diesel::sql_types::BigInt,), DB> for Payment
        where
            (i64,): diesel::deserialize::FromStaticSqlRow<(diesel::sql_types::BigInt,), DB>,
        {
            type Row = (i64,);

            fn build((id,): Self::Row) -> diesel::deserialize::Result<Self> {
                Ok(Payment { id })
            }
        }
    }

    #[allow(deprecated)]
    let key = |payment: old::Payment| (payment.id, old::Old::Charge.name());
    #[allow(deprecated)]
    let payment = old::Payment { id: 7 };
    assert_eq!(key(payment), (7, "CHARGE"));
}

#[test]
fn may_stand_beside_types_with_common_names() {
    use queueable::Stage;

    mod common {
        #![allow(dead_code, non_camel_case_types)]

        use queueable::{Queueable, Stage};

        struct bool;
        struct str;
        struct usize;
        struct String;
        struct Option;
        struct Vec;
        enum Result {}
        enum Ordering {}

        diesel::table! { parcels (id) { id -> BigInt, weight -> BigInt, } }

        #[derive(Debug, Clone, Copy, Stage)]
        pub(super) enum Step {
            Pack,
        }

        #[derive(diesel::Queryable, diesel::Selectable, Queueable)]
        #[queue(stage = Step, group(10, optimistic), order_in_group = weight, order_by(weight), timestamps, occasion)]
        #[queue(claim_if = "parcels::weight.gt(3)", retry = fixed("3s"), timeout = "3s")]
        pub(super) struct Parcel {
            id: i64,
            weight: i64,
        }

        use diesel::ExpressionMethods;
    }

    assert_eq!((common::Parcel::ENTITY, common::Step::NAMES), ("Parcel", &["PACK"][..]));
}

/// The library as an application re-exports it.
mod jobs {
    pub(crate) mod reexported {
        pub(crate) use queueable::*;
    }
}

#[test]
fn may_find_the_library_under_another_path() {
    use queueable::Stage;

    diesel::table! { parcels (id) { id -> BigInt, weight -> Integer, } }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
    #[stage(crate = crate::the_struct::jobs::reexported)]
    enum ParcelStage {
        Pack,
        #[stage(name = "on its way")]
        Send,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[queue(crate = crate::the_struct::jobs::reexported, stage = ParcelStage, priority, occasion, timestamps)]
    #[queue(claim_if = "parcels::weight.lt(100)", archive(success = parcels_done))]
    struct Parcel {
        #[expect(dead_code)]
        id: i64,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = parcels)]
    #[queue(crate = crate::the_struct::jobs::reexported, prefix = "weigh_", periodic, rerun_on_change(weight), group = 5)]
    #[expect(dead_code)]
    struct Weighing {
        id: i64,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = parcels)]
    #[queue(crate = self::jobs::reexported, prefix = "send_")]
    #[expect(dead_code)]
    struct Sending {
        id: i64,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = parcels)]
    #[queue(crate = super::the_struct::jobs::reexported, prefix = "track_", occasion)]
    #[expect(dead_code)]
    struct Tracking {
        id: i64,
    }

    assert_eq!(ParcelStage::NAMES, ["PACK", "on its way"]);
    assert_eq!(
        sql(&parcels::table.filter(Parcel::is_key(7)).select(parcel_queue::status)),
        "SELECT `parcels`.`status` FROM `parcels` WHERE (`parcels`.`id` = ?)"
    );
    assert_eq!(sql(&parcels::table.select(weighing_queue::period)), "SELECT `parcels`.`weigh_period` FROM `parcels`");
    let _ = (ParcelStage::Pack, ParcelStage::Send, Weighing::is_key(7), Sending::is_key(7), Tracking::is_key(7));
}
