//! The control table on MySQL and MariaDB.

use diesel::mysql::Mysql;

use super::mysql_session::MysqlSession;
use crate::backend::control_ddl::ControlDdl;

impl<C: MysqlSession> ControlDdl<Mysql> for C {
    // The names are compared byte by byte, and the key has no more than the 3,072 bytes that InnoDB takes.
    const CREATE: &'static str = "CREATE TABLE IF NOT EXISTS `queueable_control` (
  `queue` VARCHAR(500) NOT NULL,
  `scope` VARCHAR(255) NOT NULL DEFAULT '',
  `paused_at` DATETIME(6) NULL,
  `paused_until` DATETIME(6) NULL,
  `paused_by` VARCHAR(255) NULL,
  `pause_reason` VARCHAR(1000) NULL,
  PRIMARY KEY (`queue`, `scope`),
  CHECK (`queue` <> ''),
  CHECK (`paused_until` > `paused_at`),
  CHECK (TRIM(`paused_by`) <> ''),
  CHECK (TRIM(`pause_reason`) <> ''),
  CHECK ((`paused_at` IS NULL) = (`paused_by` IS NULL) AND (`paused_at` IS NULL) = (`pause_reason` IS NULL)),
  CHECK (`paused_at` IS NOT NULL OR `paused_until` IS NULL)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

    const DROP: &'static str = "DROP TABLE IF EXISTS `queueable_control`";
}
