//! What is known and what is shown. Nothing here asks the database or writes to the terminal.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::internals::by_name::PageOrder;
use queueable::report::{Explanations, PollerProcess};

use super::ask::{Ask, Errors, Known, Listed, Look, Page, Paragraph, Place, Target};
use super::dialog::Dialog;
use crate::queue::{Facts, State};

/// The screen.
pub(super) struct Model {
    pub(super) facts: Vec<Facts>,
    /// The names of the queues.
    pub(super) names: Vec<String>,
    /// The database, without its password.
    pub(super) address: String,
    pub(super) read_only: bool,
    /// The reason that the command line gives.
    pub(super) reason: Option<String>,
    /// After how long without an answer `r` connects anew.
    pub(super) patience: Duration,
    pub(super) now: DateTime<Utc>,

    pub(super) tab: Tab,
    pub(super) chosen: [Choice; Tab::ALL.len()],
    pub(super) sort: Sort,
    /// Of the tab of rows.
    pub(super) queue: usize,
    pub(super) state: Option<State>,
    pub(super) filter: Option<String>,
    /// The order of the rows; `None` is the one that fits their state.
    pub(super) order: Option<PageOrder>,
    pub(super) over: Option<Over>,
    pub(super) dialog: Dialog,
    pub(super) said: Option<Said>,
    /// How many lines a page has, and how far the text can be moved: the view says so.
    pub(super) drawn: Drawn,

    pub(super) read_at: Option<DateTime<Utc>>,
    pub(super) environment: Option<String>,
    pub(super) queues: Vec<Known>,
    pub(super) pollers: Option<Vec<PollerProcess>>,
    pub(super) why: Option<(usize, Result<Explanations, String>)>,
    pub(super) errors: Option<Errors>,
    pub(super) page: Option<(Listed, Result<Page, String>)>,

    /// Since when the reader waits for an answer.
    pub(super) busy: Option<DateTime<Utc>>,
    pub(super) lost: Option<Lost>,
    /// Tells a change to stop.
    pub(super) stop: Arc<AtomicBool>,
    /// How the screen ends when the change that runs has ended.
    pub(super) ends: bool,
}

/// What the program has to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    Ask(Ask),
    /// Start another reader: this one waits for an answer that may never come.
    Anew,
    /// Draw all of it, because somebody else has written to the terminal.
    Redraw,
    /// Give the terminal to the shell, until it is given back.
    Suspend,
    Quit,
    /// End as Ctrl-C does.
    Interrupt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Queues,
    Running,
    Errors,
    Rows,
    Pollers,
}

impl Tab {
    pub(super) const ALL: [Tab; 5] = [Tab::Queues, Tab::Running, Tab::Errors, Tab::Rows, Tab::Pollers];

    pub(super) fn name(self) -> &'static str {
        match self {
            Tab::Queues => "queues",
            Tab::Running => "running",
            Tab::Errors => "errors",
            Tab::Rows => "rows",
            Tab::Pollers => "pollers",
        }
    }
}

/// Which line of a list is chosen. It stays with its line when the lines move.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) name: String,
    pub(super) place: usize,
}

/// By which column the queues are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Worst,
    OldestDue,
    Due,
    Failed,
    Rate,
    Name,
}

impl Sort {
    pub(super) const ALL: [Sort; 6] = [Sort::Worst, Sort::OldestDue, Sort::Due, Sort::Failed, Sort::Rate, Sort::Name];

    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Worst => "the worst first",
            Sort::OldestDue => "by oldest due",
            Sort::Due => "by due",
            Sort::Failed => "by failed",
            Sort::Rate => "by rate",
            Sort::Name => "by name",
        }
    }
}

/// What covers the list.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Over {
    Help,
    /// A row, as far as it has been read.
    Row(Place, Option<Vec<Paragraph>>),
    /// A group of errors, and the first of its examples. It stays what it is when other groups come.
    Group(Target, Vec<Paragraph>, Option<Place>),
}

/// A message for the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) is_refusal: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Drawn {
    /// How many lines of the list or the text are seen.
    pub(super) page: usize,
    /// How many lines of the text are above the last page.
    pub(super) most: usize,
    /// The first line of the text that is seen.
    pub(super) from: usize,
}

/// There is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) since: DateTime<Utc>,
    pub(super) why: String,
    pub(super) next: DateTime<Utc>,
}

impl Model {
    pub(super) fn new(facts: Vec<Facts>, names: Vec<String>, address: String, now: DateTime<Utc>) -> Self {
        Model {
            facts,
            names,
            address,
            read_only: false,
            reason: None,
            patience: Duration::from_secs(30),
            now,
            tab: Tab::Queues,
            chosen: Default::default(),
            sort: Sort::Worst,
            queue: 0,
            state: None,
            filter: None,
            order: None,
            over: None,
            dialog: Dialog::None,
            said: None,
            drawn: Drawn::default(),
            read_at: None,
            environment: None,
            queues: Vec::new(),
            pollers: None,
            why: None,
            errors: None,
            page: None,
            busy: None,
            lost: None,
            stop: Arc::default(),
            ends: false,
        }
    }

    /// What the reader has to read.
    pub(super) fn look(&self) -> Look {
        match self.tab {
            Tab::Queues => Look::Queues { chosen: self.chosen_queue().unwrap_or(0) },
            Tab::Running => Look::Running,
            Tab::Errors => Look::Errors,
            Tab::Rows => Look::Rows(self.listed()),
            Tab::Pollers => Look::Pollers,
        }
    }

    pub(super) fn listed(&self) -> Listed {
        let order = self.order.unwrap_or(match self.state {
            Some(State::Failed | State::Skipped | State::Finished) => PageOrder::LatestAttempt,
            Some(_) => PageOrder::NextAttempt,
            None => PageOrder::Key,
        });
        Listed { queue: self.queue, state: self.state, filter: self.filter.clone(), order }
    }

    /// The page that is shown, if it has been read.
    pub(super) fn shown_page(&self) -> Option<&Result<Page, String>> {
        let listed = self.listed();
        self.page.as_ref().filter(|(of, _)| *of == listed).map(|(_, page)| page)
    }

    /// The places of the queues, in the order in which they are shown.
    pub(super) fn sorted(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.names.len()).collect();
        let backlog = |place: usize| self.queues.get(place).and_then(|known| known.backlog.as_ref().ok());
        let oldest = |place: usize| backlog(place).and_then(|backlog| backlog.oldest_due);
        let failed = |place: usize| backlog(place).map_or(0, |backlog| backlog.failed);
        match self.sort {
            Sort::Worst => places.sort_by_key(|place| {
                let refused = self.queues.get(*place).is_some_and(|known| known.backlog.is_err());
                std::cmp::Reverse((refused, self.is_unserved(*place), oldest(*place), failed(*place)))
            }),
            Sort::OldestDue => places.sort_by_key(|place| std::cmp::Reverse(oldest(*place))),
            Sort::Due => places.sort_by_key(|place| std::cmp::Reverse(backlog(*place).map(|backlog| backlog.due))),
            Sort::Failed => places.sort_by_key(|place| std::cmp::Reverse(failed(*place))),
            Sort::Rate => {
                let done = |place: usize| self.queues.get(place).map_or(0, |known| known.done.iter().sum::<i64>());
                places.sort_by_key(|place| std::cmp::Reverse(done(*place)));
            }
            Sort::Name => places.sort_by(|one, other| self.names[*one].cmp(&self.names[*other])),
        }
        places
    }

    /// Whether rows are due and processes have registered, but none for this queue.
    pub(super) fn is_unserved(&self, place: usize) -> bool {
        let due = self.queues.get(place).and_then(|known| known.backlog.as_ref().ok()).map_or(0, |backlog| backlog.due);
        due > 0 && self.pollers_of(place) == Some(0)
    }

    /// The name under which people know a queue, or its own.
    pub(super) fn name_of<'a>(&'a self, queue: &'a str) -> &'a str {
        let place = self.facts.iter().position(|facts| facts.queue == queue);
        place.and_then(|place| self.names.get(place)).map_or(queue, String::as_str)
    }

    /// How many registered processes serve a queue; `None` if nobody registers.
    pub(super) fn pollers_of(&self, place: usize) -> Option<usize> {
        let queue = &self.facts.get(place)?.queue;
        let pollers = self.pollers.as_ref()?;
        Some(pollers.iter().filter(|poller| poller.queues.iter().any(|of| of.queue == *queue)).count())
    }

    /// What runs, with the process: what has run longest first.
    pub(super) fn running(&self) -> Vec<Running<'_>> {
        let pollers = self.pollers.iter().flatten();
        let mut running: Vec<_> =
            pollers.flat_map(|poller| poller.running.iter().map(move |message| Running { poller, message })).collect();
        running.sort_by_key(|of| of.message.since);
        running
    }

    /// The names of the lines of the list, which are different for different lines.
    pub(super) fn lines(&self, tab: Tab) -> Vec<String> {
        match tab {
            Tab::Queues => self.sorted().into_iter().map(|place| self.facts[place].queue.clone()).collect(),
            Tab::Running => self
                .running()
                .iter()
                .map(|Running { poller, message }| format!("{} {} {}", message.queue, message.key, poller.pid))
                .collect(),
            Tab::Errors => {
                let groups = self.errors.iter().flat_map(|errors| &errors.groups);
                groups.map(|group| format!("{} {}", group.queue, group.pattern)).collect()
            }
            Tab::Rows => {
                let rows = self.shown_page().and_then(|page| page.as_ref().ok());
                rows.iter().flat_map(|page| &page.rows).map(|row| row.place.key.clone()).collect()
            }
            Tab::Pollers => {
                let pollers = self.pollers.iter().flatten();
                pollers.map(|of| format!("{} {} {}", of.host, of.pid, of.started)).collect()
            }
        }
    }

    /// The place of the chosen line of the list.
    pub(super) fn line(&self) -> usize {
        self.chosen[self.tab as usize].place
    }

    pub(super) fn chosen_queue(&self) -> Option<usize> {
        self.sorted().get(self.chosen[Tab::Queues as usize].place).copied()
    }

    /// Lets a choice follow its line, after the lines have changed.
    pub(super) fn settle(&mut self, tab: Tab) {
        let lines = self.lines(tab);
        let choice = &mut self.chosen[tab as usize];
        let place = match lines.iter().position(|line| *line == choice.name) {
            Some(place) => place,
            None => choice.place.min(lines.len().saturating_sub(1)),
        };
        *choice = Choice { name: lines.get(place).cloned().unwrap_or_default(), place };
    }

    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.said = Some(Said { text: text.into(), is_refusal: false });
    }

    pub(super) fn refuse(&mut self, text: impl Into<String>) {
        self.said = Some(Said { text: text.into(), is_refusal: true });
    }
}

/// A message that runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running<'a> {
    pub(super) poller: &'a PollerProcess,
    pub(super) message: &'a queueable::report::RunningMessage,
}
