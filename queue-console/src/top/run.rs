//! The run of the screen: keys, what the reader tells, and signals change the model, and the model is drawn.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use chrono::Utc;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::SIGINT;

use super::ask::{Ask, News};
use super::model::{Effect, Model};
use super::operate::By;
use super::reader::Reader;
use super::signals::{Signals, end_by, suspend};
use super::terminal::{Screen, check, is_coloured};
use super::view::{Theme, View};
use crate::change::user;
use crate::cli::{self, Global};
use crate::console::Parts;
use crate::database::{Database, without_password};
use crate::failure::{Answer, Failure};

/// How long it waits for a key before it looks for other things.
const PACE: Duration = Duration::from_millis(50);

/// How the screen ends.
enum Ending {
    Quit,
    Interrupted,
    By(i32),
}

pub(crate) fn run<C: Database>(parts: Arc<Parts<C>>, global: &Global, of: &cli::Top) -> Answer {
    check(global)?;
    parts.queues(None)?;
    // A wrong address is an error before the screen is there, and not a screen that waits.
    let connection = parts.connect(global)?;
    let theme = Theme { is_coloured: is_coloured(global) };
    let mut live = Live::new(parts, global, of)?;
    live.start(Some(connection));
    let signals = Signals::watch()?;
    let screen = Screen::take()?;
    let ended = live.run(screen, &signals, theme);
    match ended? {
        Ending::Quit => Ok(()),
        Ending::Interrupted => Err(Failure::Interrupted(String::new())),
        Ending::By(signal) => {
            end_by(signal);
            Err(Failure::Interrupted(String::new()))
        }
    }
}

struct Live<C: Database> {
    parts: Arc<Parts<C>>,
    global: Global,
    every: Duration,
    by: By,
    model: Model,
    asks: Sender<Ask>,
    news: Receiver<News>,
    reader: Option<JoinHandle<()>>,
}

impl<C: Database> Live<C> {
    fn new(parts: Arc<Parts<C>>, global: &Global, of: &cli::Top) -> Answer<Self> {
        let facts: Vec<_> = parts.queues.iter().map(|queue| queue.facts().clone()).collect();
        let names = facts.iter().map(|facts| facts.name(&parts)).collect();
        let address = without_password(parts.address(global)?);
        let mut model = Model::new(facts, names, address, Utc::now());
        model.read_only = parts.read_only;
        model.reason.clone_from(&of.author.reason);
        model.patience = global.timeout;
        let by = By { name: user(&of.author), reason: of.author.reason.clone() };
        let ((asks, _), (_, news)) = (channel(), channel());
        Ok(Live { parts, global: global.clone(), every: of.every, by, model, asks, news, reader: None })
    }

    /// Starts a reader. The one before, if there is one, ends after what it waits for.
    fn start(&mut self, connection: Option<C>) {
        let ((asks, asked), (tells, news)) = (channel(), channel());
        let reader = Reader {
            parts: self.parts.clone(),
            global: self.global.clone(),
            every: self.every,
            by: self.by.clone(),
            look: self.model.look(),
            connection,
            asks: asked,
            news: tells,
            stop: self.model.stop.clone(),
        };
        (self.asks, self.news) = (asks, news);
        self.reader = Some(thread::spawn(move || reader.run()));
    }

    fn run(&mut self, mut screen: Screen, signals: &Signals, theme: Theme) -> Answer<Ending> {
        let mut view = View::new(theme);
        let mut drawn_at = None;
        loop {
            self.model.now = Utc::now();
            let mut effects = Vec::new();
            // A waiting key was pressed before this news was seen, so it acts on the old screen.
            while !event::poll(Duration::ZERO).unwrap_or(false)
                && let Some(news) = self.news()?
            {
                effects.extend(self.model.told(news));
                drawn_at = None;
            }
            match signals.noted() {
                Some(SIGINT) => return Ok(Ending::Interrupted),
                Some(signal) => return Ok(Ending::By(signal)),
                None => {}
            }
            // Ages grow once a second.
            if drawn_at != Some(self.model.now.timestamp()) {
                self.draw(&mut screen, &mut view)?;
                drawn_at = Some(self.model.now.timestamp());
            }
            if event::poll(PACE)? {
                effects.extend(self.happened(&event::read()?));
                drawn_at = None;
            }
            if let Some(ending) = self.perform(effects, &mut screen)? {
                return Ok(ending);
            }
        }
    }

    /// Returns what the reader has told, if there is something.
    fn news(&mut self) -> Answer<Option<News>> {
        match self.news.try_recv() {
            Ok(news) => Ok(Some(news)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                let panicked = self.reader.take().and_then(|reader| reader.join().err());
                let why = panicked.as_ref().and_then(|why| {
                    why.downcast_ref::<String>().map(String::as_str).or(why.downcast_ref::<&str>().copied())
                });
                Err(Failure::Failed(format!("the reader of the database has panicked: {}", why.unwrap_or_default())))
            }
        }
    }

    fn happened(&mut self, event: &Event) -> Vec<Effect> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.model.key(*key),
            _ => Vec::new(),
        }
    }

    fn draw(&mut self, screen: &mut Screen, view: &mut View) -> Answer {
        let model = &self.model;
        let mut drawn = model.drawn;
        screen.terminal.draw(|frame| drawn = view.draw(frame, model))?;
        self.model.drawn = drawn;
        Ok(())
    }

    /// Does what a key asks for. A reader that has gone is seen where it tells nothing any more.
    fn perform(&mut self, effects: Vec<Effect>, screen: &mut Screen) -> Answer<Option<Ending>> {
        for effect in effects {
            match effect {
                Effect::Ask(ask) => drop(self.asks.send(ask)),
                Effect::Anew => {
                    self.start(None);
                    self.model.busy = None;
                }
                Effect::Redraw => screen.clear()?,
                Effect::Suspend => {
                    suspend();
                    screen.retake()?;
                }
                Effect::Quit => return Ok(Some(Ending::Quit)),
                Effect::Interrupt => return Ok(Some(Ending::Interrupted)),
            }
        }
        Ok(None)
    }
}
