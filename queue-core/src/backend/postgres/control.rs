//! The control table on PostgreSQL.

use super::pg_session::PgSession;
use crate::backend::control_ddl::ControlDdl;
use diesel::pg::Pg;

impl<C: PgSession> ControlDdl<Pg> for C {
    const CREATE: &'static str = r#"CREATE TABLE IF NOT EXISTS "queueable_control" (
  "queue" TEXT NOT NULL CHECK ("queue" <> ''),
  "scope" TEXT NOT NULL DEFAULT '',
  "paused_at" TIMESTAMP WITH TIME ZONE CHECK (isfinite("paused_at")),
  "paused_until" TIMESTAMP WITH TIME ZONE CHECK (isfinite("paused_until") AND "paused_until" > "paused_at"),
  "paused_by" TEXT CHECK (btrim("paused_by") <> ''),
  "pause_reason" TEXT CHECK (btrim("pause_reason") <> ''),
  PRIMARY KEY ("queue", "scope"),
  CHECK (("paused_at" IS NULL) = ("paused_by" IS NULL) AND ("paused_at" IS NULL) = ("pause_reason" IS NULL)),
  CHECK ("paused_at" IS NOT NULL OR "paused_until" IS NULL)
)"#;

    const DROP: &'static str = r#"DROP TABLE IF EXISTS "queueable_control""#;
}
