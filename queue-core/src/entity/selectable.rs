//! The derive's checks of what an entity selects. They are for their error messages, and never run.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::expression::SqlLiteral;
use diesel::sql_types::Bool;
use diesel::{Selectable, SelectableExpression};

/// An entity that can be selected: every [`Selectable`] is one.
#[diagnostic::on_unimplemented(
    message = "the queue cannot select `{Self}`, because it is not `Selectable`",
    label = "this entity is not `Selectable`",
    note = "add `#[derive(Selectable)]` beside `#[derive(Queryable, Queueable)]`"
)]
#[doc(hidden)]
pub trait SelectableEntity<DB> {}

#[diagnostic::do_not_recommend]
impl<T: Selectable<DB>, DB: Backend> SelectableEntity<DB> for T {}

/// Compiles for entities that are `Selectable`.
#[doc(hidden)]
pub const fn assert_selectable<T: SelectableEntity<DB>, DB>() {}

/// Returns what an entity selects.
#[doc(hidden)]
pub fn selection_of<T: Selectable<DB>, DB: Backend>() -> T::SelectExpression {
    T::construct_selection()
}

/// An expression that can be selected from the table alone, without a join.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be selected from `{T}` alone, and a claim reads no other table",
    label = "this needs a row of another table",
    note = "a claim locks and reads the row of the entity's table; load the other table's row in the handler, through \
            `message.connection()`",
    note = "an entity may select columns of its own table, SQL functions of them, and subselects"
)]
#[doc(hidden)]
pub trait SelectedFrom<T> {}

#[diagnostic::do_not_recommend]
impl<E: SelectableExpression<T>, T> SelectedFrom<T> for E {}

/// Compiles for expressions that can be selected from the table alone.
#[doc(hidden)]
pub fn assert_selected_from<T, E: SelectedFrom<T>>(_selected: &E) {}

/// Stands for what an embedded struct selects on the first of three backends that it is `Selectable` on. The derive's
/// code finds out by a method call: of the impls for references to references, the compiler takes the first that fits.
#[doc(hidden)]
pub struct Embedded<E, Pg, Mysql, Sqlite>(PhantomData<(E, Pg, Mysql, Sqlite)>);

impl<E, Pg, Mysql, Sqlite> Embedded<E, Pg, Mysql, Sqlite> {
    #[expect(clippy::new_without_default, reason = "it is for the derive alone")]
    pub fn new() -> Self {
        Embedded(PhantomData)
    }
}

#[doc(hidden)]
pub trait EmbeddedSelection {
    type Selection;

    fn embedded_selection(&self) -> Self::Selection;
}

macro_rules! selected_on {
    ($backend:ident: $reference:ty) => {
        impl<E: Selectable<$backend>, Pg, Mysql, Sqlite> EmbeddedSelection for $reference
        where
            $backend: Backend,
        {
            type Selection = E::SelectExpression;

            fn embedded_selection(&self) -> E::SelectExpression {
                E::construct_selection()
            }
        }
    };
}

selected_on!(Pg: &&&Embedded<E, Pg, Mysql, Sqlite>);
selected_on!(Mysql: &&Embedded<E, Pg, Mysql, Sqlite>);
selected_on!(Sqlite: &Embedded<E, Pg, Mysql, Sqlite>);

/// On no backend that is switched on here: the assertion then gets what can be selected from every table.
impl<E, Pg, Mysql, Sqlite> EmbeddedSelection for Embedded<E, Pg, Mysql, Sqlite> {
    type Selection = SqlLiteral<Bool>;

    fn embedded_selection(&self) -> SqlLiteral<Bool> {
        diesel::dsl::sql("TRUE")
    }
}

/// Compiles for an embedded struct that selects from the table alone.
#[doc(hidden)]
#[macro_export]
macro_rules! assert_embedded {
    ($embedded:ty, $table:ty) => {{
        use $crate::EmbeddedSelection as _;
        use $crate::backends::{Mysql, Pg, Sqlite};
        $crate::assert_selected_from::<$table, _>(
            &(&&&&$crate::Embedded::<$embedded, Pg, Mysql, Sqlite>::new()).embedded_selection(),
        );
    }};
}
