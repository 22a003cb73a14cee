//! What the library's own tables name: queues, and keys of rows, with links to their pages.

use maud::{Markup, html};
use queueable::report::RunningMessage;

use super::guard::Visit;
use super::layout::segment;
use super::search::query;
use super::site::{Named, Site};
use crate::database::Database;
use crate::queue::Facts;
use crate::shown::visible;

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
        let key = named.and_then(|named| self.facts(named).key_of_poller(&message.key));
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
