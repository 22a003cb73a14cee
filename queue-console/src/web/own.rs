//! What the library's own tables name: queues, and keys of rows, with links to their pages.

use maud::{Markup, html};
use queueable::report::RunningMessage;

use super::guard::Visit;
use super::layout::segment;
use super::search::query;
use super::site::{Named, Site};
use crate::database::Database;
use crate::queue::{Facts, joined};
use crate::shown::visible;

/// How many characters of a key the table of pollers has.
const LONGEST_KEY: usize = 200;

/// The queues that a visitor may see, for what the library's own tables say of queues.
pub(super) struct Queues<'a, C: Database> {
    site: &'a Site<C>,
    visit: &'a Visit,
    pub(super) all: Vec<Named>,
}

impl<'a, C: Database> Queues<'a, C> {
    pub(super) fn of(site: &'a Site<C>, visit: &'a Visit) -> Self {
        Queues { site, visit, all: site.seen(&visit.visitor) }
    }

    pub(super) fn facts(&self, named: &Named) -> &'a Facts {
        self.site.of(named).facts()
    }

    /// Finds a queue by its name in the library's tables. The database may have queues of other applications.
    pub(super) fn find(&self, queue: &str) -> Option<&Named> {
        self.all.iter().find(|named| self.facts(named).queue == queue)
    }

    /// A queue, with a link to its page if it has one.
    pub(super) fn link(&self, queue: &str) -> Markup {
        html! {
            @match self.find(queue) {
                Some(named) => a href={ (self.visit.root) "q/" (segment(&named.name)) } { bdi { (named.name) } },
                None => bdi { (visible(queue)) },
            }
        }
    }

    /// A queue's name, as people know it.
    pub(super) fn name(&self, queue: &str) -> Markup {
        html! { bdi { (visible(self.find(queue).map_or(queue, |named| &named.name))) } }
    }

    /// The row of a message that runs, with a link to its page.
    pub(super) fn row(&self, message: &RunningMessage) -> Markup {
        let named = self.find(&message.queue);
        let key = named.and_then(|named| key_of(&message.key, self.facts(named).key.len()));
        html! {
            @match named.zip(key) {
                Some((named, key)) => {
                    @let address = format!("{}q/{}/row", self.visit.root, segment(&named.name));
                    a href={ (address) "?" (query(&[("key".to_owned(), key.clone())])) } { bdi { (visible(&key)) } }
                },
                None => bdi { (visible(&message.key)) },
            }
        }
    }
}

/// Turns a key of the table of pollers into one as people write it. `None`: it was cut there, or is a digest.
pub(super) fn key_of(text: &str, parts: usize) -> Option<String> {
    if text.chars().count() >= LONGEST_KEY {
        return None;
    }
    let found: Vec<_> = text.split(',').map(unescaped).collect::<Option<_>>()?;
    (found.len() == parts).then(|| joined(&found.into_iter().map(Some).collect::<Vec<_>>()))
}

/// Reads a part of a key as the library writes it: printable ASCII, other bytes as `%0A`, and bytes that are no text after `0x`.
fn unescaped(part: &str) -> Option<String> {
    if part.starts_with("sha256-") {
        return None;
    }
    let part = part.strip_prefix("0x").unwrap_or(part);
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_pollers_are_those_that_people_write() {
        let one = |text: &str| key_of(text, 1);
        assert_eq!(one("42").as_deref(), Some("42"));
        assert_eq!(one("a%20b%3Ac%2Cd%25").as_deref(), Some("a b:c,d%"));
        assert_eq!(one("%C3%A4").as_deref(), Some("ä"));
        assert_eq!(one("0xff00").as_deref(), Some("ff00"));
        assert_eq!(one("%30xff").as_deref(), Some("0xff"));
        assert_eq!(key_of("north,2", 2).as_deref(), Some("north,2"));
        assert_eq!(key_of("a%2Cb,2", 2).as_deref(), Some(r#"["a,b","2"]"#));
    }

    #[test]
    fn a_key_that_cannot_be_read_has_no_link() {
        for text in ["%", "%4", "%zz", "%FF", "sha256-00", "1,2", &"a".repeat(200)] {
            assert_eq!(key_of(text, 1), None, "{text}");
        }
    }
}
