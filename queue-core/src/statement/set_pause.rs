//! Pauses a queue, or a part of it, in the control table.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::names::{push_names, push_within};
use crate::backend::{CONTROL_TABLE, QueueBackend, Statement, push_now_plus};
use crate::row::Instant;

const KEY: [&str; 2] = ["queue", "scope"];

const VALUES: [&str; 4] = ["paused_at", "paused_until", "paused_by", "pause_reason"];

/// When a pause ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseEnd {
    /// It does not.
    Never,
    /// At this time.
    At(Instant),
    /// After this time.
    After(Duration),
}

/// Writes a pause from now on. If there is one already, this one takes its place.
pub struct SetPause<'a> {
    /// The queue's name.
    pub queue: &'a str,
    /// The part of the queue; empty for the whole.
    pub scope: &'a str,
    /// Who pauses it.
    pub by: &'a str,
    /// Why.
    pub reason: &'a str,
    /// When it ends by itself.
    pub end: PauseEnd,
}

impl<DB: QueueBackend> Statement<DB> for SetPause<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("INSERT INTO ");
        out.push_identifier(CONTROL_TABLE)?;
        push_names(&mut out, " ({}, {}, {}, {}, {}, {}) VALUES (", &[KEY.as_slice(), &VALUES].concat())?;
        DB::bind_text(&mut out, self.queue)?;
        out.push_sql(", ");
        DB::bind_text(&mut out, self.scope)?;
        out.push_sql(", ");
        out.push_sql(DB::NOW);
        out.push_sql(", ");
        match &self.end {
            PauseEnd::Never => out.push_sql("NULL"),
            PauseEnd::At(time) => DB::bind_time(&mut out, time)?,
            PauseEnd::After(time) => push_now_plus(&mut out, *time),
        }
        out.push_sql(", ");
        DB::bind_text(&mut out, self.by)?;
        out.push_sql(", ");
        DB::bind_text(&mut out, self.reason)?;
        out.push_sql(")");
        push_names(&mut out, DB::ON_SAME_KEY, &KEY[..DB::KEY_COLUMNS_NAMED])?;
        for (i, value) in VALUES.into_iter().enumerate() {
            push_names(&mut out, if i == 0 { "{} = " } else { ", {} = " }, &[value])?;
            push_within(&mut out, DB::INSERTED, |out| out.push_identifier(value))?;
        }
        Ok(())
    }
}
