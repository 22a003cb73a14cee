//! How lease mode claims its rows.

use serde::{Deserialize, Serialize};

/// How lease mode claims its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClaimStyle {
    /// By a select that passes over the rows that others are claiming (`SKIP LOCKED`), where the server has it; else, and
    /// on SQLite, as [`UpdateThenSelect`](ClaimStyle::UpdateThenSelect).
    #[default]
    Auto,
    /// By an update that marks the rows and a select that finds them by the mark. Every database can do that; workers that
    /// claim at the same time wait for one another.
    UpdateThenSelect,
}
