//! The control table on SQLite.

use diesel::sqlite::SqliteConnection;

use crate::backend::control_ddl::ControlDdl;

impl ControlDdl for SqliteConnection {
    // A column takes values of any type, so each is checked. A time that is no time has no Julian day.
    const CREATE: &'static str = "CREATE TABLE IF NOT EXISTS `queueable_control` (
  `queue` TEXT NOT NULL CHECK (typeof(`queue`) = 'text' AND `queue` <> ''),
  `scope` TEXT NOT NULL DEFAULT '' CHECK (typeof(`scope`) = 'text'),
  `paused_at` TEXT CHECK (`paused_at` IS NULL
    OR (`paused_at` GLOB '[0-9][0-9][0-9][0-9]-*' AND julianday(`paused_at`) IS NOT NULL)),
  `paused_until` TEXT CHECK (`paused_until` IS NULL
    OR (`paused_until` GLOB '[0-9][0-9][0-9][0-9]-*' AND COALESCE(julianday(`paused_until`) > julianday(`paused_at`), 0))),
  `paused_by` TEXT CHECK (typeof(`paused_by`) IN ('text', 'null') AND trim(`paused_by`) <> ''),
  `pause_reason` TEXT CHECK (typeof(`pause_reason`) IN ('text', 'null') AND trim(`pause_reason`) <> ''),
  PRIMARY KEY (`queue`, `scope`),
  CHECK ((`paused_at` IS NULL) = (`paused_by` IS NULL) AND (`paused_at` IS NULL) = (`pause_reason` IS NULL)),
  CHECK (`paused_at` IS NOT NULL OR `paused_until` IS NULL)
)";

    const DROP: &'static str = "DROP TABLE IF EXISTS `queueable_control`";
}
