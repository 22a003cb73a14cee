//! Cuts a client's bytes into messages, and finds those that commit.

use crate::session::Dialect;

/// The requests before a PostgreSQL session's first message: for TLS, and for GSS encryption.
const ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];
/// MySQL's command bytes before a statement's text: to run it, and to prepare it.
const COM_QUERY: u8 = 3;
const COM_STMT_PREPARE: u8 = 22;
/// MySQL's command byte before a prepared statement's number.
const COM_STMT_EXECUTE: u8 = 23;

/// What a message has to do with a COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Import {
    None,
    /// It tells the server to commit.
    Commits,
    /// It prepares a statement that commits. The answer has the statement's number.
    PreparesCommit,
    /// It runs the prepared statement of this number.
    Executes(u32),
}

/// A whole message as it was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    pub(super) import: Import,
}

/// The bytes of one client, cut into messages. The servers offer no encryption, so the proxy can read them.
pub(super) struct Messages {
    dialect: Dialect,
    /// Whether PostgreSQL's first message, which has no type byte, is past.
    is_begun: bool,
    bytes: Vec<u8>,
}

impl Messages {
    pub(super) fn of(dialect: Dialect) -> Self {
        Messages { dialect, is_begun: false, bytes: Vec::new() }
    }

    /// Takes bytes that were read.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete message.
    pub(super) fn next(&mut self) -> Option<Message> {
        let length = match self.dialect {
            Dialect::Postgres if self.is_begun => 1 + number(self.bytes.get(1..5)?)?,
            Dialect::Postgres => number(self.bytes.get(..4)?)?.max(4),
            _ => {
                4 + usize::from(*self.bytes.first()?)
                    + (usize::from(*self.bytes.get(1)?) << 8)
                    + (usize::from(*self.bytes.get(2)?) << 16)
            }
        };
        if self.bytes.len() < length {
            return None;
        }
        let bytes: Vec<u8> = self.bytes.drain(..length).collect();
        let import = match self.dialect {
            Dialect::Postgres => self.postgres_import(&bytes),
            _ => mysql_import(&bytes),
        };
        Some(Message { bytes, import })
    }

    fn postgres_import(&mut self, bytes: &[u8]) -> Import {
        if !self.is_begun {
            let request = bytes.get(4..8).and_then(number).and_then(|request| u32::try_from(request).ok());
            self.is_begun = !request.is_some_and(|request| ENCRYPTION.contains(&request));
            return Import::None;
        }
        let mut texts = bytes[5..].split(|&byte| byte == 0);
        let text = match bytes[0] {
            b'Q' => texts.next(),
            // The first text is the statement's name. Its execution follows in the same flight.
            b'P' => texts.nth(1),
            _ => None,
        };
        if text.is_some_and(commits) { Import::Commits } else { Import::None }
    }
}

/// A command restarts the packet numbers at 0, so no packet of the handshake looks like one.
fn mysql_import(bytes: &[u8]) -> Import {
    let Some((&command, rest)) = bytes.get(4..).and_then(<[u8]>::split_first).filter(|_| bytes[3] == 0) else {
        return Import::None;
    };
    match command {
        COM_QUERY if commits(rest) => Import::Commits,
        COM_STMT_PREPARE if commits(rest) => Import::PreparesCommit,
        COM_STMT_EXECUTE => rest.get(..4).and_then(statement_number).map_or(Import::None, Import::Executes),
        _ => Import::None,
    }
}

/// The number of the statement that MySQL has prepared, unless it refused.
pub(super) fn prepared(answer: &[u8]) -> Option<u32> {
    statement_number(answer.get(5..9).filter(|_| answer[4] == 0)?)
}

fn statement_number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Whether one of the statements is a COMMIT. It would mistake a text value with `; COMMIT` in it, which no payment has.
fn commits(sql: &[u8]) -> bool {
    sql.split(|&byte| byte == b';').any(|statement| {
        let word: Vec<u8> = statement
            .iter()
            // Newer clients of MySQL put a count of attributes before the text.
            .skip_while(|byte| !byte.is_ascii_alphabetic())
            .take_while(|byte| byte.is_ascii_alphabetic())
            .map(u8::to_ascii_uppercase)
            .collect();
        word == b"COMMIT"
    })
}

fn number(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(bytes.try_into().ok()?)).ok()
}

/// Whether a server's answers contain the one to COMMIT. PostgreSQL's clients may have sent more before it, such as the end
/// of a prepared statement.
pub(super) fn says_outcome(dialect: Dialect, answers: &[u8]) -> bool {
    let contains = |what: &[u8]| answers.windows(what.len()).any(|part| part == what);
    match dialect {
        Dialect::Postgres => {
            [&b"COMMIT\0"[..], b"ROLLBACK\0", b"SERROR\0", b"SFATAL\0"].iter().any(|what| contains(what))
        }
        _ => true,
    }
}

/// Whether a server's answer to COMMIT says that it has committed.
pub(super) fn says_committed(dialect: Dialect, answer: &[u8]) -> bool {
    match dialect {
        // A COMMIT of a transaction in error is answered with ROLLBACK.
        Dialect::Postgres => answer.windows(7).any(|part| part == b"COMMIT\0"),
        // OK begins with 0, an error with 255.
        _ => answer.get(4) == Some(&0),
    }
}
