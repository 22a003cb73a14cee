//! The handler: sends a mail.
//!
//! Plain Diesel against one connection type, as an application writes it.

use diesel::prelude::*;
use lettre::{SmtpTransport, Transport};
use queueable::{Failure, Handler, HandlerResult, Message, Outcome};

use super::Conn;
use crate::mails::{EmailText, UnsentEmail, email_texts, unsent_emails};

/// Sends a mail, and marks it as sent in the article's own column.
pub(crate) struct Send {
    pub(crate) smtp: SmtpTransport,
}

impl Handler<UnsentEmail, Conn> for Send {
    /// The database's part comes first, because the worker can undo it if the mail cannot be sent. A mail cannot be
    /// undone, so after it nothing may fail except the release of the savepoint and the commit. If one of these fails,
    /// the mail is sent again, with the same Message-ID; in group mode so are the mails of the whole group.
    fn handle(&self, email: &UnsentEmail, message: &mut Message<'_, Conn>) -> HandlerResult {
        diesel::update(unsent_emails::table.find(email.id))
            .set(unsent_emails::status.eq("sent"))
            .execute(message.connection())?;
        let text = email_texts::table.find(email.id).select(EmailText::as_select()).first(message.connection())?;
        // A colon may not stand in a Message-ID.
        let id = message.idempotency_key().replace(':', "-");
        let mail = lettre::Message::builder()
            .message_id(Some(format!("<{id}@shop.example.org>")))
            .from("shop@example.org".parse().map_err(Failure::fatal)?)
            .to(text.recipient.parse().map_err(Failure::fatal)?)
            .subject(text.subject)
            .body(text.body)
            .map_err(Failure::fatal)?;
        match self.smtp.send(&mail) {
            Ok(_) => Ok(Outcome::Done),
            // 5xx: the server will say the same next time.
            Err(error) if error.is_permanent() => Err(Failure::fatal(error)),
            // 4xx, and errors of the connection.
            Err(error) => Err(Failure::retry(error)),
        }
    }
}
