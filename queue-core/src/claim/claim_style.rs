//! How lease mode claims its rows.

use serde::{Deserialize, Serialize};

/// How lease mode claims its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClaimStyle {
    /// A select passes over the rows that others are claiming (`SKIP LOCKED`), if the server supports it. Otherwise,
    /// and on SQLite, the same as [`UpdateThenSelect`](ClaimStyle::UpdateThenSelect).
    #[default]
    Auto,
    /// An update marks the rows, and a select finds them by the mark. Every database supports this, but workers that
    /// claim at the same time wait for one another.
    UpdateThenSelect,
}
