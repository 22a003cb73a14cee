//! The derive's check that an entity is `Selectable`.

use diesel::Selectable;
use diesel::backend::Backend;

/// An entity that can be selected: every [`Selectable`] is one. It exists for its error message.
#[diagnostic::on_unimplemented(
    message = "the queue cannot select `{Self}`, because it is not `Selectable`",
    label = "this entity is not `Selectable`",
    note = "add `#[derive(Selectable)]` beside `#[derive(Queryable, Queueable)]`"
)]
#[doc(hidden)]
pub trait SelectableEntity<DB> {}

#[diagnostic::do_not_recommend]
impl<T: Selectable<DB>, DB: Backend> SelectableEntity<DB> for T {}

/// Compiles for entities that are `Selectable`. The derive calls it.
#[doc(hidden)]
pub const fn assert_selectable<T: SelectableEntity<DB>, DB>() {}
