//! The application's own code: its tables, the entity, and the mails.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! {
    unsent_emails (id) {
        id -> Integer,
        status -> Nullable<Text>,
        owner -> BigInt,
    }
}

diesel::table! {
    email_texts (email_id) {
        email_id -> Integer,
        recipient -> Text,
        subject -> Text,
        body -> Text,
    }
}

/// An unsent mail. Its table has a column `status` already, so the queue's columns get a prefix: `mail_status` and so on.
///
/// Ten mails share a transaction, as ten share an `UPDATE` in the article. The timeout is the mail server's: the default of
/// one second on SQLite is meant for handlers that stay in the database.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = unsent_emails)]
#[queue(prefix = "mail_", group = 10, retry = fixed("500ms"), max_tries = 5, timeout = "30s")]
pub(crate) struct UnsentEmail {
    pub(crate) id: i32,
}

/// A mail's text and recipient.
#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = email_texts)]
pub(crate) struct EmailText {
    pub(crate) email_id: i32,
    pub(crate) recipient: String,
    pub(crate) subject: String,
    pub(crate) body: String,
}

impl EmailText {
    pub(crate) fn of(email_id: i32) -> Self {
        EmailText {
            email_id,
            recipient: Recipient::of(email_id).address(email_id),
            subject: format!("Your order {email_id}"),
            body: "Dear reader,\n\nit is on its way.\n".to_owned(),
        }
    }
}

/// How a recipient's mailbox behaves; its name is in the address, so that the sink knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// Takes the mail.
    Reader,
    /// Is full at the first try (450), and takes the mail at the second.
    Full,
    /// Does not exist (550).
    Nobody,
}

impl Recipient {
    pub(crate) fn of(email_id: i32) -> Self {
        match email_id {
            id if id % 13 == 0 => Recipient::Nobody,
            id if id % 7 == 0 => Recipient::Full,
            _ => Recipient::Reader,
        }
    }

    pub(crate) fn address(self, email_id: i32) -> String {
        let name = match self {
            Recipient::Reader => "reader",
            Recipient::Full => "full",
            Recipient::Nobody => "nobody",
        };
        format!("{name}-{email_id}@example.org")
    }
}

/// The mails that were sent before the table became a queue.
pub(crate) const SENT: std::ops::RangeInclusive<i32> = 1..=20;

/// The mails that a process had claimed in the article's way when it died.
pub(crate) const CLAIMED: std::ops::RangeInclusive<i32> = 21..=24;

/// The connection that had claimed them, long gone.
pub(crate) const DEAD_OWNER: i64 = 4711;
