//! The stages of a pipeline, as an enum of the user's.

/// The stages that a row of a pipeline passes through: an enum without fields, named by `#[queue(stage = ..)]`.
///
/// `#[derive(Stage)]` implements it, together with Diesel's mapping to text, so that queries can filter by a stage and
/// store it like any value. The text of a stage is its name in capitals with underscores, `SEND_MAIL` for `SendMail`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an enum of stages",
    label = "not an enum of stages",
    note = "add `#[derive(Debug, Clone, Copy, queueable::Stage)]` to an enum without fields"
)]
pub trait Stage: Copy + Send + Sync + 'static {
    /// All stages, in the order in which a row passes through them. A row begins in the first.
    const ALL: &'static [Self];

    /// Their texts, in the same order.
    const NAMES: &'static [&'static str];

    /// Returns the stage's text.
    fn name(self) -> &'static str;

    /// Returns the stage with this text.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().zip(Self::NAMES).find(|(_, known)| **known == name).map(|(stage, _)| *stage)
    }
}

/// Returns the stage with this text, for the derive's mapping.
#[doc(hidden)]
pub fn stage_named<S: Stage>(name: &str) -> diesel::deserialize::Result<S> {
    S::named(name).ok_or_else(|| format!("`{name}` is not a stage, expected {}", S::NAMES.join(", ")).into())
}
