//! A small mail server of the example's own: takes mails, sends them nowhere, and counts them.
//!
//! It speaks as much SMTP as a client needs, <https://www.rfc-editor.org/rfc/rfc5321>.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The server. It runs until the process ends.
pub(crate) struct Sink {
    pub(crate) port: u16,
    mailboxes: Arc<Mutex<Mailboxes>>,
}

#[derive(Debug, Default)]
struct Mailboxes {
    taken: Vec<(String, String)>,
    /// The mailboxes that were full once.
    full: BTreeSet<String>,
    refused: u64,
}

/// The mails that the server has seen.
#[derive(Debug)]
pub(crate) struct Seen {
    /// How often each mail was taken, by its recipient and its Message-ID.
    pub(crate) taken: BTreeMap<(String, String), u64>,
    /// How often a recipient was refused, for good or for now.
    pub(crate) refused: u64,
}

impl Sink {
    /// Starts the server on a free port of this machine.
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let sink = Sink { port: listener.local_addr()?.port(), mailboxes: Arc::default() };
        let mailboxes = sink.mailboxes.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mailboxes = mailboxes.clone();
                // A client that goes away in the middle of a mail has sent none.
                thread::spawn(move || converse(client, &mailboxes));
            }
        });
        Ok(sink)
    }

    pub(crate) fn seen(&self) -> Seen {
        let mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = BTreeMap::new();
        for mail in &mailboxes.taken {
            *taken.entry(mail.clone()).or_default() += 1;
        }
        Seen { taken, refused: mailboxes.refused }
    }
}

fn converse(client: TcpStream, mailboxes: &Mutex<Mailboxes>) -> io::Result<()> {
    let mut lines = BufReader::new(client.try_clone()?).lines();
    let say = |line: &str| (&client).write_all(format!("{line}\r\n").as_bytes());
    let mut recipient = None;
    say("220 sink.example.org")?;
    while let Some(line) = lines.next().transpose()? {
        let verb = line.get(..4).unwrap_or_default().to_ascii_uppercase();
        match verb.as_str() {
            "EHLO" | "HELO" | "NOOP" | "MAIL" => say("250 well")?,
            "RCPT" => {
                let address = between(&line, '<', '>');
                let mut mailboxes = mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
                let answer = mailboxes.answer(address);
                recipient = answer.starts_with("250").then(|| address.to_owned());
                drop(mailboxes);
                say(answer)?;
            }
            "DATA" => {
                let Some(recipient) = recipient.take() else {
                    say("503 to whom?")?;
                    continue;
                };
                say("354 go on")?;
                let id = message_id(&mut lines)?;
                mailboxes.lock().unwrap_or_else(PoisonError::into_inner).taken.push((recipient, id));
                say("250 taken")?;
            }
            "RSET" => {
                recipient = None;
                say("250 well")?;
            }
            "QUIT" => return say("221 good bye"),
            _ => say("500 what?")?,
        }
    }
    Ok(())
}

impl Mailboxes {
    /// Answers for a recipient, whose address says how the mailbox behaves.
    fn answer(&mut self, address: &str) -> &'static str {
        let answer = if address.starts_with("nobody-") {
            "550 no such mailbox"
        } else if address.starts_with("full-") && self.full.insert(address.to_owned()) {
            "450 the mailbox is full, try again"
        } else {
            return "250 well";
        };
        self.refused += 1;
        answer
    }
}

/// Reads a mail to the dot at its end and returns its Message-ID.
fn message_id(lines: &mut impl Iterator<Item = io::Result<String>>) -> io::Result<String> {
    let mut id = String::new();
    for line in lines {
        let line = line?;
        if line == "." {
            return Ok(id);
        }
        if line.starts_with("Message-ID:") {
            id = between(&line, '<', '>').to_owned();
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

fn between(line: &str, from: char, to: char) -> &str {
    let inner = line.split_once(from).and_then(|(_, rest)| rest.split_once(to));
    inner.map_or("", |(inner, _)| inner)
}
