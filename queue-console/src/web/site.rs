//! What all requests share.

use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use queueable::Error;
use queueable::control;

use super::cache::Answers;
use super::doctor::Examined;
use super::guard::Tokens;
use super::pool::Connections;
use super::run::Runs;
use super::settings::{Page, Visitor};
use super::trouble::{Told, Trouble};
use crate::console::Parts;
use crate::database::Database;
use crate::queue::Queue;

/// How long what is read is shown to others: the least time, and that of what seldom changes.
pub(super) const FRESH: Duration = Duration::from_secs(1);
pub(super) const SELDOM: Duration = Duration::from_secs(15);

pub(super) struct Shared<C: Database> {
    pub(super) parts: Arc<Parts<C>>,
    pub(super) page: Page,
    pub(super) connections: Connections<C>,
    pub(super) runs: Runs,
    pub(super) tokens: Tokens,
    pub(super) examined: Mutex<Option<Arc<Examined>>>,
    answers: Answers,
}

/// What all requests share.
pub(super) struct Site<C: Database>(Arc<Shared<C>>);

impl<C: Database> Clone for Site<C> {
    fn clone(&self) -> Self {
        Site(self.0.clone())
    }
}

impl<C: Database> Deref for Site<C> {
    type Target = Shared<C>;

    fn deref(&self) -> &Shared<C> {
        &self.0
    }
}

impl<C: Database> Site<C> {
    pub(super) fn new(parts: Arc<Parts<C>>, page: Page, address: Result<String, String>) -> Self {
        let connections = Connections::new(address);
        Site(Arc::new(Shared {
            parts,
            page,
            connections,
            runs: Runs::default(),
            tokens: Tokens::default(),
            examined: Mutex::default(),
            answers: Answers::new(),
        }))
    }

    /// Reads something, or returns what was read a moment ago. `what` names it among all that is read.
    pub(super) fn read<T: Send + Sync + 'static>(
        &self,
        what: String,
        fresh: Duration,
        ask: impl FnOnce(&Parts<C>, &mut C) -> Told<T> + Send + 'static,
    ) -> impl Future<Output = Told<Arc<T>>> + Send {
        self.clone().read_by(what, fresh, false, ask)
    }

    /// Does the same with what may take its time.
    pub(super) fn read_long<T: Send + Sync + 'static>(
        &self,
        what: String,
        fresh: Duration,
        ask: impl FnOnce(&Parts<C>, &mut C) -> Told<T> + Send + 'static,
    ) -> impl Future<Output = Told<Arc<T>>> + Send {
        self.clone().read_by(what, fresh, true, ask)
    }

    async fn read_by<T: Send + Sync + 'static>(
        self,
        what: String,
        fresh: Duration,
        is_long: bool,
        ask: impl FnOnce(&Parts<C>, &mut C) -> Told<T> + Send + 'static,
    ) -> Told<Arc<T>> {
        let parts = self.parts.clone();
        let ask = move |connection: &mut C| ask(&parts, connection);
        let read = async {
            match is_long {
                true => self.connections.work(ask).await,
                false => self.connections.ask(ask).await,
            }
        };
        self.answers.or_read(what, fresh, read).await
    }

    /// Reads something of a queue.
    pub(super) fn read_of<T: Send + Sync + 'static>(
        &self,
        of: &Named,
        what: &str,
        fresh: Duration,
        ask: impl FnOnce(&dyn Queue<C>, &mut C) -> Told<T> + Send + 'static,
    ) -> impl Future<Output = Told<Arc<T>>> + Send {
        let place = of.place;
        self.read(format!("{place} {what}"), fresh, move |parts, connection| ask(&*parts.queues[place], connection))
    }

    /// Finds a queue that the visitor may see.
    pub(super) fn queue(&self, visitor: &Visitor, name: &str) -> Told<Named> {
        let seen = self.seen(visitor).into_iter().find(|of| of.name == name);
        seen.ok_or_else(|| Trouble::NotFound(format!("There is no queue `{name}`.")))
    }

    /// The queues that the visitor may see.
    pub(super) fn seen(&self, visitor: &Visitor) -> Vec<Named> {
        let all = self.parts.queues.iter().enumerate();
        let all = all.map(|(place, queue)| (place, queue.facts()));
        let seen = all.filter(|(_, facts)| visitor.may_see(&facts.table));
        seen.map(|(place, facts)| Named { place, name: facts.name(&self.parts) }).collect()
    }

    /// The queue itself.
    pub(super) fn of(&self, named: &Named) -> &dyn Queue<C> {
        &*self.parts.queues[named.place]
    }

    /// The name of the environment, if it has one and can be read.
    pub(super) async fn environment(&self) -> Option<String> {
        let read =
            self.read("environment".to_owned(), SELDOM, |_, connection| match control::environment(connection) {
                Ok(environment) => Ok(environment),
                Err(Error::Control(_)) => Ok(None),
                Err(error) => Err(error.into()),
            });
        read.await.ok().and_then(|name| (*name).clone())
    }

    /// What is paused of a queue, in words.
    pub(super) async fn paused(&self, named: &Named) -> Vec<String> {
        let read = self.read("pauses".to_owned(), FRESH * 2, |_, connection| match queueable::pauses(connection) {
            Ok(pauses) => Ok(pauses),
            Err(Error::Control(_)) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        });
        let facts = self.of(named).facts();
        let pauses = read.await.map(|pauses| (*pauses).clone()).unwrap_or_default();
        let pauses = pauses.into_iter().filter(|paused| paused.queue == facts.queue);
        pauses.map(|paused| facts.shown_pause(paused).to_string()).collect()
    }

    /// Forgets what was read, because somebody has changed something.
    pub(super) fn forget(&self) {
        self.answers.forget();
    }
}

/// A queue as its address names it.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) place: usize,
    pub(super) name: String,
}
