//! The meaning of the errors of MySQL, MariaDB and their client libraries.

use diesel::mysql::Mysql;
use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error};

use super::clients::MysqlSession;
use crate::backend::connection::{ErrorClass, ErrorClasses, message_of};

impl<C: MysqlSession> ErrorClasses<Mysql> for C {
    fn rolls_back(error: &Error) -> bool {
        match error {
            Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => true,
            Error::DatabaseError(DatabaseErrorKind::Unknown, information) => undoes_transaction(information.message()),
            _ => false,
        }
    }

    fn refuses_writes(error: &Error) -> bool {
        message_of(error).is_some_and(|message| {
            message.ends_with("read-only option so it cannot execute this statement")
                || ["Cannot execute statement in a READ ONLY transaction", "Running in read-only mode"]
                    .contains(&message.trim_end_matches('.'))
                // ALTER DATABASE .. READ ONLY (3989).
                || message.starts_with("Schema '") && message.ends_with("' is in read only mode.")
        })
    }

    fn denies_right(error: &Error) -> bool {
        message_of(error).is_some_and(denies_right)
    }

    fn is_timeout(error: &Error) -> bool {
        message_of(error).is_some_and(|message| TIMEOUTS.contains(&message))
    }

    fn classify_answer(kind: &DatabaseErrorKind, answer: &dyn DatabaseErrorInformation) -> ErrorClass {
        match kind {
            DatabaseErrorKind::Unknown => classify_message(answer.message()),
            _ => ErrorClass::Other,
        }
    }
}

/// The servers' message for a text that they do not understand (1064).
pub(super) const NOT_UNDERSTOOD: &str =
    "You have an error in your SQL syntax; check the manual that corresponds to your ";

/// The servers' message for a statement that they do not prepare (1295).
pub(super) const NOT_PREPARED: &str = "This command is not supported in the prepared statement protocol yet";

/// Their message when the sentinel savepoint is gone (1305).
pub(super) const NO_SAVEPOINT: &str = "SAVEPOINT queueable_handler does not exist";

/// The message of a block that did not begin, because the session's settings have changed.
pub(super) const OTHER_SETTINGS: &str = "queueable: the settings of the session are not what they were";

/// The servers' message to the victim of a deadlock (1213).
const DEADLOCK: &str = "Deadlock found when trying to get lock; try restarting transaction";

/// The messages of the servers, libmysqlclient, libmariadb and mysql_async when a session is lost (1053, 1927, 2006, 2013,
/// 4031), or no new one can be had (1040, 3032), each as a whole.
const LOST: [&str; 12] = [
    "MySQL server has gone away",
    "Server has gone away",
    "Lost connection to MySQL server during query",
    "Lost connection to server during query",
    "Connection was killed",
    "Server shutdown in progress",
    "The client was disconnected by the server because of inactivity. See wait_timeout and interactive_timeout for \
     configuring this behavior.",
    "Too many connections",
    "The server is currently in offline mode",
    "Driver error: `Connection to the server is closed.'",
    "Driver error: `Packet out of order.'",
    "Driver error: `Unexpected packet.'",
];

/// The same by the beginning and the end of a message that names a host, a file or an option between them (1290, 2002,
/// 2003, 2013).
const LOST_BETWEEN: [(&str, &str); 9] = [
    // mysql_async, whose socket has failed: the rest is the system's.
    ("Input/output error: ", ""),
    ("Lost connection to MySQL server at '", ""),
    ("Lost connection to server at '", ""),
    ("Can't connect to MySQL server ", ")"),
    ("Can't connect to server ", ")"),
    ("Can't connect to local MySQL server ", ")"),
    ("Can't connect to local server ", ")"),
    ("The MySQL server is running with the --", "read-only option so it cannot execute this statement"),
    ("The MariaDB server is running with the --", "read-only option so it cannot execute this statement"),
];

/// The message to a transaction with more locks than there is room for (1206).
const LOCKS_FULL: &str = "The total number of locks exceeds the lock table size";

/// The messages about a conflict with others (1205, 1206, 1213, 1317, 1412, 1615), each as a whole. KILL QUERY and
/// Galera interrupt statements. The message for a statement that has exceeded a time limit, which it would exceed
/// again, is longer.
const CONFLICTS: [&str; 6] = [
    DEADLOCK,
    LOCKS_FULL,
    "Lock wait timeout exceeded; try restarting transaction",
    "Query execution was interrupted",
    "Table definition has changed, please retry transaction",
    "Prepared statement needs to be re-prepared",
];

/// The messages of MariaDB and of MySQL for a statement that has exceeded a time limit (1969, 3024).
const TIMEOUTS: [&str; 2] = [
    "Query execution was interrupted (max_statement_time exceeded)",
    "Query execution was interrupted, maximum statement execution time exceeded",
];

/// The same by their beginnings (1020, 1047, and 3100 and 3101 of MySQL's group replication).
const CONFLICTS_FROM: [&str; 5] = [
    "Record has changed since last read in table '",
    "WSREP has not yet prepared node",
    "WSREP detected deadlock",
    "Error on observer while running replication hook '",
    "Plugin instructed the server to rollback the current transaction",
];

/// The messages when the disk is full (1021, 1026, 1030, 1114), where MySQL and MariaDB quote the system's words differently.
const FULL_BETWEEN: [(&str, &str); 6] = [
    ("Disk full (", ""),
    ("Error writing file '", "\"No space left on device\")"),
    ("Error writing file '", " - No space left on device)"),
    ("Can't create/write to file '", " - No space left on device)"),
    ("Got error 28 ", ""),
    ("The table '", "' is full"),
];

/// Diesel passes on only the message, not the number.
pub(super) fn classify_message(message: &str) -> ErrorClass {
    let is_between = |&(start, end): &(&str, &str)| message.strip_prefix(start).is_some_and(|rest| rest.ends_with(end));
    if LOST.contains(&message) || LOST_BETWEEN.iter().any(is_between) {
        ErrorClass::ConnectionLost
    } else if CONFLICTS.contains(&message) || CONFLICTS_FROM.iter().any(|start| message.starts_with(start)) {
        ErrorClass::Conflict
    } else if FULL_BETWEEN.iter().any(is_between) {
        ErrorClass::NoRoom
    } else {
        ErrorClass::Other
    }
}

/// Tells whether the server has undone the whole transaction with this error (1020, 1206, 1213).
pub(super) fn undoes_transaction(message: &str) -> bool {
    [DEADLOCK, LOCKS_FULL].contains(&message) || CONFLICTS_FROM.iter().any(|start| message.starts_with(start))
}

/// Tells whether the message says that a right is missing (1142, 1143): `INSERT, UPDATE command denied to user 'a'@'b'
/// for table ..`.
pub(super) fn denies_right(message: &str) -> bool {
    message
        .split_once(" command denied to user '")
        .is_some_and(|(rights, _)| rights.chars().all(|c| c.is_ascii_uppercase() || matches!(c, ',' | ' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_session_is_known_by_the_words_of_all_clients() {
        for message in [
            "MySQL server has gone away",
            "Server has gone away",
            "Lost connection to MySQL server during query",
            "Lost connection to server at 'handshake: reading initial communication packet', system error: 104",
            "Can't connect to server on '127.0.0.1' (115)",
            "Connection was killed",
            "Input/output error: Input/output error: Connection reset by peer (os error 104)",
            "Input/output error: Input/output error: connection closed",
            "Driver error: `Connection to the server is closed.'",
            "The MariaDB server is running with the --read-only option so it cannot execute this statement",
            "The MySQL server is running with the --super-read-only option so it cannot execute this statement",
        ] {
            assert_eq!(classify_message(message), ErrorClass::ConnectionLost, "{message}");
        }
    }

    #[test]
    fn a_full_disk_a_conflict_and_a_server_in_offline_mode_are_known_by_each_servers_words() {
        for (message, class) in [
            ("Error writing file '/tmp/MYfd=84' (OS errno 28 - No space left on device)", ErrorClass::NoRoom),
            ("Error writing file '/tmp/MYfd=84' (Errcode: 28 \"No space left on device\")", ErrorClass::NoRoom),
            ("Can't create/write to file '/tmp/MLfd=9' (OS errno 28 - No space left on device)", ErrorClass::NoRoom),
            ("The table 'payments' is full", ErrorClass::NoRoom),
            ("Error writing file '/tmp/MYfd=84' (OS errno 5 - Input/output error)", ErrorClass::Other),
            ("Error on observer while running replication hook 'before_commit'.", ErrorClass::Conflict),
            ("Plugin instructed the server to rollback the current transaction.", ErrorClass::Conflict),
            ("The server is currently in offline mode", ErrorClass::ConnectionLost),
        ] {
            assert_eq!(classify_message(message), class, "{message}");
        }
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn what_can_only_be_read_is_known_by_each_servers_words() {
        let refuses = |message: &str| {
            let error = Error::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message.to_owned()));
            <diesel::MysqlConnection as ErrorClasses<Mysql>>::refuses_writes(&error)
        };
        for message in [
            "The MySQL server is running with the --super-read-only option so it cannot execute this statement",
            "Cannot execute statement in a READ ONLY transaction",
            "Cannot execute statement in a READ ONLY transaction.",
            "Running in read-only mode",
            "Schema 'shop' is in read only mode.",
        ] {
            assert!(refuses(message), "{message}");
        }
        assert!(!refuses("Incorrect integer value: 'Running in read-only mode' for column 'a' at row 1"));
    }

    #[test]
    fn a_limit_on_a_statements_time_is_no_conflict() {
        for limit in TIMEOUTS {
            assert_eq!(classify_message(limit), ErrorClass::Other);
        }
        assert_eq!(classify_message("Query execution was interrupted"), ErrorClass::Conflict);
        assert_eq!(classify_message("Duplicate entry '1' for key 'PRIMARY'"), ErrorClass::Other);
    }

    #[test]
    fn a_message_that_quotes_another_says_nothing_of_it() {
        let full = "Disk full (./test/t.MAI); waiting for someone to free some space... (errno: 28)";
        assert_eq!(classify_message(full), ErrorClass::NoRoom);
        for message in LOST.iter().chain(&CONFLICTS).chain(&CONFLICTS_FROM).chain(&[full]) {
            let quoted = format!("Incorrect integer value: '{message}' for column `a`.`b`.`c` at row 1");
            assert_eq!(classify_message(&quoted), ErrorClass::Other, "{quoted}");
        }
    }

    #[test]
    fn a_missing_right_is_known_by_the_beginning_of_its_message() {
        assert!(denies_right("INSERT, UPDATE command denied to user 'a'@'localhost' for table `b`.`c`"));
        assert!(!denies_right("Table 'x.INSERT command denied to user 'a'@'b'' doesn't exist"));
    }
}
