//! Reads the pauses in the control table.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::names::push_names;
use super::odd_time::push_microseconds;
use crate::backend::{CONTROL_TABLE, QueueBackend, Statement};

/// Reads the pauses of one queue or of all, also those whose end has come.
pub struct ReadPauses<'a> {
    queue: Option<&'a str>,
}

impl<'a> ReadPauses<'a> {
    /// Reads those of this queue, or of all.
    pub fn new(queue: Option<&'a str>) -> Self {
        ReadPauses { queue }
    }
}

impl<DB: QueueBackend> Statement<DB> for ReadPauses<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_names(&mut out, "SELECT {}, {}, {}, {}, ", &["queue", "scope", "paused_by", "pause_reason"])?;
        out.push_sql(DB::AS_INTEGER.0);
        push_names(&mut out, "CASE WHEN {} IS NULL THEN 0 ELSE 1 END", &["paused_until"])?;
        out.push_sql(DB::AS_INTEGER.1);
        for time in ["paused_at", "paused_until"] {
            out.push_sql(", ");
            push_microseconds(&mut out, &|out| out.push_identifier(time))?;
        }
        out.push_sql(", ");
        push_microseconds(&mut out, &|out| {
            out.push_sql(DB::STATEMENT_TIME);
            Ok(())
        })?;
        push_names(&mut out, " FROM {} WHERE {} IS NOT NULL", &[CONTROL_TABLE, "paused_at"])?;
        if let Some(queue) = self.queue {
            push_names(&mut out, " AND {} = ", &["queue"])?;
            DB::bind_text(&mut out, queue)?;
        }
        push_names(&mut out, " ORDER BY {}, {}", &["queue", "scope"])
    }
}
