//! The control table.

/// The statement that creates the control table. The names are compared byte by byte, and the key has no more than the 3,072 bytes that InnoDB takes.
pub(super) const CREATE_CONTROL: &str = "CREATE TABLE IF NOT EXISTS `queueable_control` (
  `queue` VARCHAR(500) NOT NULL,
  `scope` VARCHAR(255) NOT NULL DEFAULT '',
  `paused_at` DATETIME(6) NULL,
  `paused_until` DATETIME(6) NULL,
  `paused_by` VARCHAR(255) NULL,
  `pause_reason` VARCHAR(1000) NULL,
  `paused_value` VARCHAR(500) NULL,
  `workers` INT NULL,
  `at_most` INT NULL,
  `retry_delay_ms` BIGINT NULL,
  `limited_at` DATETIME(6) NULL,
  `limited_by` VARCHAR(255) NULL,
  `limit_reason` VARCHAR(1000) NULL,
  `environment` VARCHAR(255) NULL,
  PRIMARY KEY (`queue`, `scope`),
  CHECK (`queue` <> ''),
  CHECK (`paused_until` > `paused_at`),
  CHECK (TRIM(`paused_by`) <> ''),
  CHECK (TRIM(`pause_reason`) <> ''),
  CHECK ((`paused_at` IS NULL) = (`paused_by` IS NULL) AND (`paused_at` IS NULL) = (`pause_reason` IS NULL)),
  CHECK (`paused_at` IS NOT NULL OR `paused_until` IS NULL),
  CHECK (`workers` > 0),
  CHECK (`at_most` > 0),
  CHECK (`retry_delay_ms` BETWEEN 0 AND 3155760000000),
  CHECK (TRIM(`limited_by`) <> ''),
  CHECK (TRIM(`limit_reason`) <> ''),
  CHECK (TRIM(`environment`) <> ''),
  CHECK ((`limited_at` IS NULL) = (`limited_by` IS NULL) AND (`limited_at` IS NULL) = (`limit_reason` IS NULL)),
  CHECK ((`limited_at` IS NULL) = (COALESCE(`workers`, `at_most`, `retry_delay_ms`) IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
