//! The thread that has the connection: it reads what the screen shows, again and again, and does what the screen asks for.
//!
//! It does one thing after the other, so a statement that takes long delays the next one and no two run at the same time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::ask::{Ask, Look, News};
use super::link::identity;
use super::operate::By;
use super::report::Asking;
use crate::cli::Global;
use crate::console::Parts;
use crate::database::Database;
use crate::failure::{Answer, Failure};

/// How long it waits before it connects again for the first time, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// How long it waits after a key has asked for something else, because the next key may do so too.
const MOMENT: Duration = Duration::from_millis(50);

/// The screen has ended.
struct Gone;

pub(super) struct Reader<C: Database> {
    pub(super) parts: Arc<Parts<C>>,
    pub(super) global: Global,
    pub(super) every: Duration,
    pub(super) by: By,
    pub(super) look: Look,
    pub(super) connection: Option<C>,
    pub(super) asks: Receiver<Ask>,
    pub(super) news: Sender<News>,
    /// Tells a change to stop.
    pub(super) stop: Arc<AtomicBool>,
}

/// The reader at work.
struct At<C: Database> {
    of: Reader<C>,
    next: Instant,
    pause: Duration,
    /// Which file of SQLite is open.
    identity: Option<(u64, u64)>,
}

impl<C: Database> Reader<C> {
    /// Reads until the screen ends.
    pub(super) fn run(self) {
        let identity = self.parts.address(&self.global).ok().and_then(identity::<C>);
        let mut at = At { of: self, next: Instant::now(), pause: FIRST_PAUSE, identity };
        while at.step().is_ok() {}
    }
}

impl<C: Database> At<C> {
    fn step(&mut self) -> Result<(), Gone> {
        match self.of.asks.recv_timeout(self.next.saturating_duration_since(Instant::now())) {
            Ok(ask) => self.answer(ask),
            Err(RecvTimeoutError::Timeout) => self.read(),
            Err(RecvTimeoutError::Disconnected) => Err(Gone),
        }
    }

    fn tell(&self, news: News) -> Result<(), Gone> {
        self.of.news.send(news).map_err(|_| Gone)
    }

    fn answer(&mut self, ask: Ask) -> Result<(), Gone> {
        let ask = match ask {
            Ask::Look(look) => {
                self.of.look = look;
                // While there is no connection, the pause goes on.
                if self.of.connection.is_some() {
                    self.next = self.next.min(Instant::now() + MOMENT);
                }
                return Ok(());
            }
            Ask::Refresh => {
                self.next = Instant::now();
                return Ok(());
            }
            other => other,
        };
        self.tell(News::Busy(true))?;
        let news = self.connected().and_then(|()| self.asked(&ask));
        self.tell(News::Busy(false))?;
        match news {
            Ok(news) => {
                self.next = Instant::now();
                self.tell(news)
            }
            Err(failure) => {
                self.tell(News::Refused(failure.to_string()))?;
                // If the connection is lost, the next reading says so.
                self.next = self.next.min(Instant::now());
                Ok(())
            }
        }
    }

    fn asked(&mut self, ask: &Ask) -> Answer<News> {
        let Reader { parts, connection, global, by, stop, news, .. } = &mut self.of;
        let Some(connection) = connection else {
            return Err(Failure::NoConnection("there is no connection".to_owned()));
        };
        let mut asking = Asking { parts, connection, utc: global.utc };
        match ask {
            Ask::Explain(place) => Ok(News::Explained(place.clone(), asking.row(place)?)),
            Ask::Preview(change) => Ok(News::Counted(change.clone(), asking.count(change)?)),
            Ask::Apply(change, found) => {
                let of = found.shape.count;
                // If the screen has ended, the change goes on to its end all the same.
                let mut progress = |done| drop(news.send(News::Progress { done, of }));
                asking.apply((change, found), by, stop, &mut progress).map(News::Done)
            }
            Ask::Pause { queue, reason } => asking.pause(*queue, reason, by).map(News::Done),
            Ask::Unpause { queue } => asking.unpause(*queue, by).map(News::Done),
            Ask::Look(_) | Ask::Refresh => Ok(News::Busy(false)),
        }
    }

    /// Reads what is looked at. If there is no connection, it makes one; each attempt that fails makes the pause longer.
    fn read(&mut self) -> Result<(), Gone> {
        self.tell(News::Busy(true))?;
        let read = self.connected().and_then(|()| {
            let Reader { parts, connection, global, look, .. } = &mut self.of;
            let lost = || Failure::NoConnection("there is no connection".to_owned());
            let connection = connection.as_mut().ok_or_else(lost)?;
            Asking { parts, connection, utc: global.utc }.snapshot(look)
        });
        self.tell(News::Busy(false))?;
        match read {
            Ok(snapshot) => {
                self.pause = FIRST_PAUSE;
                self.next = Instant::now() + self.of.every;
                self.tell(News::Read(Box::new(snapshot)))
            }
            Err(failure) => {
                self.of.connection = None;
                let pause = self.pause;
                self.next = Instant::now() + pause;
                self.pause = (pause * 2).min(LONGEST_PAUSE);
                self.tell(News::Lost { why: failure.to_string(), pause })
            }
        }
    }

    /// Makes a connection, if there is none.
    fn connected(&mut self) -> Answer {
        let address = self.of.parts.address(&self.of.global)?;
        // An open file of SQLite can be read although it is no longer the one with that name.
        let identity = identity::<C>(address);
        if self.of.connection.is_none() || identity != self.identity {
            self.of.connection = None;
            self.of.connection = Some(self.of.parts.connect(&self.of.global)?);
            self.identity = identity;
        }
        Ok(())
    }
}
