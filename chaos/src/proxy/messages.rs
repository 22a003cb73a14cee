//! What a client sends, message by message, and which of the messages commit.

use crate::session::Dialect;

/// Requests that come before a PostgreSQL session's first message: for TLS, for GSS encryption.
const ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];
/// The command byte of MySQL that a statement's text follows.
const COM_QUERY: u8 = 3;

/// A whole message as it was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// Whether it tells the server to commit.
    pub(super) commits: bool,
}

/// The bytes of one client on their way, cut into messages. The servers offer no encryption, so all of it can be read.
pub(super) struct Messages {
    dialect: Dialect,
    /// Whether PostgreSQL's first message is past, which has no type.
    is_begun: bool,
    bytes: Vec<u8>,
}

impl Messages {
    pub(super) fn of(dialect: Dialect) -> Self {
        Messages { dialect, is_begun: false, bytes: Vec::new() }
    }

    /// Takes what was read.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message that has come whole.
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
        let commits = match self.dialect {
            Dialect::Postgres => self.is_postgres_commit(&bytes),
            _ => is_mysql_commit(&bytes),
        };
        Some(Message { bytes, commits })
    }

    fn is_postgres_commit(&mut self, bytes: &[u8]) -> bool {
        if !self.is_begun {
            let request = bytes.get(4..8).and_then(number).and_then(|request| u32::try_from(request).ok());
            self.is_begun = !request.is_some_and(|request| ENCRYPTION.contains(&request));
            return false;
        }
        let mut texts = bytes[5..].split(|&byte| byte == 0);
        match bytes[0] {
            b'Q' => texts.next().is_some_and(commits),
            // The first text is the statement's name. Its execution follows in the same flight.
            b'P' => texts.nth(1).is_some_and(commits),
            _ => false,
        }
    }
}

/// A command starts anew with the number 0, so nothing of the handshake looks like one.
fn is_mysql_commit(bytes: &[u8]) -> bool {
    bytes[3] == 0 && bytes.get(4) == Some(&COM_QUERY) && commits(&bytes[5..])
}

/// Whether one of the statements is a COMMIT. A text value with `; COMMIT` in it would be taken for one: none has it here.
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

/// Whether a server's answer to COMMIT says that it has committed.
pub(super) fn says_committed(dialect: Dialect, answer: &[u8]) -> bool {
    match dialect {
        // A COMMIT of a transaction in error is answered with ROLLBACK.
        Dialect::Postgres => answer.windows(7).any(|part| part == b"COMMIT\0"),
        // OK begins with 0, an error with 255.
        _ => answer.get(4) == Some(&0),
    }
}
