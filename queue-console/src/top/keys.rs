//! What a key does. A change that cannot be undone needs Shift.

use std::sync::atomic::Ordering;

use queue_core::internals::by_name::{Operate, PageOrder};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::ask::{Ask, Change, Paragraph, Place, Target};
use super::dialog::{Asked, Dialog};
use super::input::Input;
use super::model::{Effect, Model, Over, Sort, Tab};
use crate::queue::State;
use crate::shown::ago;

/// The states of the tab of rows.
const STATES: [Option<State>; 7] = [
    None,
    Some(State::Due),
    Some(State::Scheduled),
    Some(State::Running),
    Some(State::Failed),
    Some(State::Skipped),
    Some(State::Finished),
];

/// The orders of the tab of rows.
const ORDERS: [Option<PageOrder>; 5] = [
    None,
    Some(PageOrder::LatestAttempt),
    Some(PageOrder::NextAttempt),
    Some(PageOrder::Key),
    Some(PageOrder::KeyDescending),
];

impl Model {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return self.interrupted(),
                KeyCode::Char('l') => return vec![Effect::Redraw],
                KeyCode::Char('z') => return vec![Effect::Suspend],
                _ => {}
            }
        }
        self.said = None;
        if self.dialog != Dialog::None {
            return self.key_of_dialog(key);
        }
        match key.code {
            KeyCode::Char(_) if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => Vec::new(),
            KeyCode::Char('q') => vec![Effect::Quit],
            KeyCode::Char('?') => {
                self.cover(Over::Help);
                Vec::new()
            }
            KeyCode::Char('r') => self.refreshed(),
            KeyCode::Esc if self.over.is_some() => {
                self.over = None;
                Vec::new()
            }
            _ => self.moved(key.code).unwrap_or_else(|| self.acted(key.code)),
        }
    }

    /// A change that runs stops between two transactions first; a second Ctrl-C does not wait for that.
    fn interrupted(&mut self) -> Vec<Effect> {
        match &mut self.dialog {
            Dialog::Working { stops, .. } if !self.ends => {
                *stops = true;
                self.ends = true;
                self.stop.store(true, Ordering::SeqCst);
                Vec::new()
            }
            _ => vec![Effect::Interrupt],
        }
    }

    fn refreshed(&self) -> Vec<Effect> {
        let waits = self.busy.and_then(|since| (self.now - since).to_std().ok());
        match waits {
            Some(waits) if waits > self.patience => vec![Effect::Anew],
            _ => vec![Effect::Ask(Ask::Refresh)],
        }
    }

    /// Moves the choice, the text or the tab.
    fn moved(&mut self, key: KeyCode) -> Option<Vec<Effect>> {
        let page = self.drawn.page.max(1);
        let target = |place: usize, last: usize| match key {
            KeyCode::Char('j') | KeyCode::Down => Some(place.saturating_add(1).min(last)),
            KeyCode::Char('k') | KeyCode::Up => Some(place.saturating_sub(1)),
            KeyCode::PageDown => Some(place.saturating_add(page).min(last)),
            KeyCode::PageUp => Some(place.saturating_sub(page)),
            KeyCode::Char('g') | KeyCode::Home => Some(0),
            KeyCode::Char('G') | KeyCode::End => Some(last),
            _ => None,
        };
        let side = match key {
            KeyCode::Char('l') | KeyCode::Right | KeyCode::Tab => Some(1),
            KeyCode::Char('h') | KeyCode::Left | KeyCode::BackTab => Some(Tab::ALL.len() - 1),
            _ => None,
        };
        if let Some(side) = side {
            return Some(self.open(Tab::ALL[(self.tab as usize + side) % Tab::ALL.len()]));
        }
        if let KeyCode::Char(digit @ '1'..='5') = key {
            return Some(self.open(Tab::ALL[digit as usize - '1' as usize]));
        }
        if self.over.is_some() {
            self.drawn.from = target(self.drawn.from, self.drawn.most)?;
            return Some(Vec::new());
        }
        let lines = self.lines(self.tab);
        let place = target(self.line(), lines.len().saturating_sub(1))?;
        let choice = &mut self.chosen[self.tab as usize];
        let moves = choice.place != place;
        choice.place = place;
        choice.name = lines.get(place).cloned().unwrap_or_default();
        // Why its rows wait is shown of one queue.
        Some(if moves && self.tab == Tab::Queues { vec![Effect::Ask(Ask::Look(self.look()))] } else { Vec::new() })
    }

    /// Shows a tab.
    pub(super) fn open(&mut self, tab: Tab) -> Vec<Effect> {
        self.over = None;
        if tab == Tab::Rows {
            self.enter_queue();
        }
        self.tab = tab;
        self.settle(tab);
        vec![Effect::Ask(Ask::Look(self.look()))]
    }

    /// Turns to the rows of the chosen queue. A filter names the columns of one queue, so another begins without it.
    fn enter_queue(&mut self) {
        let queue = self.chosen_queue().unwrap_or(0);
        if self.queue != queue {
            (self.filter, self.state, self.order) = (None, None, None);
            self.chosen[Tab::Rows as usize] = Default::default();
        }
        self.queue = queue;
    }

    fn acted(&mut self, key: KeyCode) -> Vec<Effect> {
        match key {
            KeyCode::Enter => self.entered(),
            KeyCode::Char('/') => self.filtering(),
            KeyCode::Char('s') => self.sorted_next(),
            KeyCode::Char('f') if self.tab == Tab::Rows => {
                let place = STATES.iter().position(|state| *state == self.state).unwrap_or(0);
                self.state = STATES[(place + 1) % STATES.len()];
                self.open(Tab::Rows)
            }
            KeyCode::Char('p') => self.pausing(),
            KeyCode::Char('u') => self.unpausing(),
            KeyCode::Char('R') => self.changing(Operate::RetryNow),
            KeyCode::Char('S') => self.changing(Operate::Skip),
            KeyCode::Char('X') => self.changing(Operate::Stop),
            _ => Vec::new(),
        }
    }

    fn filtering(&mut self) -> Vec<Effect> {
        self.enter_queue();
        let input = Input::new(self.filter.as_deref().unwrap_or_default());
        self.dialog = Dialog::Typing(Asked::Filter { queue: self.queue }, input, None);
        Vec::new()
    }

    fn sorted_next(&mut self) -> Vec<Effect> {
        match self.tab {
            Tab::Queues => {
                self.sort = Sort::ALL[(self.sort as usize + 1) % Sort::ALL.len()];
                self.settle(Tab::Queues);
                Vec::new()
            }
            Tab::Rows => {
                let place = ORDERS.iter().position(|order| *order == self.order).unwrap_or(0);
                self.order = ORDERS[(place + 1) % ORDERS.len()];
                self.open(Tab::Rows)
            }
            _ => Vec::new(),
        }
    }

    /// Shows more of the chosen line.
    fn entered(&mut self) -> Vec<Effect> {
        if let Some(over) = &self.over {
            // The examples of a group lead to the first of them.
            return match over.clone() {
                Over::Group(_, _, Some(place)) => self.explain(place),
                _ => Vec::new(),
            };
        }
        match self.tab {
            Tab::Queues => self.open(Tab::Rows),
            Tab::Running => {
                let running = self.running();
                let Some(of) = running.get(self.line()) else { return Vec::new() };
                let place = self.facts.iter().position(|facts| facts.queue == of.message.queue);
                let Some(queue) = place else {
                    self.refuse("this console does not have the queue of that message");
                    return Vec::new();
                };
                let place = Place { queue, key: of.message.key.clone() };
                self.explain(place)
            }
            Tab::Errors => {
                self.show_group();
                Vec::new()
            }
            Tab::Rows => match self.row() {
                Some(place) => self.explain(place),
                None => Vec::new(),
            },
            Tab::Pollers => Vec::new(),
        }
    }

    fn explain(&mut self, place: Place) -> Vec<Effect> {
        self.cover(Over::Row(place.clone(), None));
        vec![Effect::Ask(Ask::Explain(place))]
    }

    fn show_group(&mut self) {
        let Some(group) = self.errors.as_ref().and_then(|errors| errors.groups.get(self.line())) else { return };
        let time = group.last.map(|time| ago(time, self.now)).unwrap_or_default();
        let mut text = vec![
            Paragraph::named("queue", &self.names[group.queue]),
            Paragraph::named("rows", crate::shown::number(group.rows)),
            Paragraph::named("failed", crate::shown::number(group.failed)),
            Paragraph::named("last", time),
            Paragraph::named("examples", group.keys.join(" ")),
            Paragraph::text(""),
        ];
        text.extend(group.pattern.lines().map(Paragraph::text));
        if group.example != group.pattern {
            text.extend([Paragraph::text(""), Paragraph::text("for example:")]);
            text.extend(group.example.lines().map(Paragraph::text));
        }
        let (queue, first) = (group.queue, group.keys.first().cloned());
        let place = first.map(|key| Place { queue, key });
        let target = Target::Group { queue, pattern: group.pattern.clone() };
        self.cover(Over::Group(target, text, place));
    }

    fn cover(&mut self, over: Over) {
        self.drawn.from = 0;
        self.over = Some(over);
    }

    fn row(&self) -> Option<Place> {
        let page = self.shown_page()?.as_ref().ok()?;
        Some(page.rows.get(self.line())?.place.clone())
    }

    /// The queue to which a key refers.
    fn meant(&self) -> Option<usize> {
        match self.tab {
            Tab::Queues => self.chosen_queue(),
            Tab::Rows => Some(self.queue),
            _ => None,
        }
    }

    /// Whether something may be changed now; if not, the person is told why.
    fn may_change(&mut self) -> bool {
        if self.read_only {
            self.refuse("this console is read-only: it changes nothing");
        } else if self.lost.is_some() {
            self.refuse("there is no connection: nothing can be changed");
        } else {
            return true;
        }
        false
    }

    fn pausing(&mut self) -> Vec<Effect> {
        let Some(queue) = self.meant() else { return Vec::new() };
        if self.may_change() {
            let input = Input::new(self.reason.as_deref().unwrap_or_default());
            self.dialog = Dialog::Typing(Asked::Reason { queue }, input, None);
        }
        Vec::new()
    }

    fn unpausing(&mut self) -> Vec<Effect> {
        let Some(queue) = self.meant() else { return Vec::new() };
        if !self.may_change() {
            return Vec::new();
        }
        self.dialog = Dialog::Working { what: "unpause".to_owned(), progress: None, stops: false };
        vec![Effect::Ask(Ask::Unpause { queue })]
    }

    /// Counts the rows of a change, before a person is asked.
    fn changing(&mut self, operate: Operate) -> Vec<Effect> {
        if !self.may_change() {
            return Vec::new();
        }
        let target = match (&self.over, self.tab) {
            (Some(Over::Row(place, _)), _) => Some(Target::Row(place.clone())),
            (Some(Over::Group(target, ..)), _) => Some(target.clone()),
            (Some(Over::Help), _) => None,
            (_, Tab::Rows) => self.row().map(Target::Row),
            (_, Tab::Errors) => {
                let group = self.errors.as_ref().and_then(|errors| errors.groups.get(self.line()));
                group.map(|group| Target::Group { queue: group.queue, pattern: group.pattern.clone() })
            }
            _ => None,
        };
        let Some(target) = target else {
            self.say("choose a row, or a group of errors");
            return Vec::new();
        };
        let change = Change { operate, target };
        self.dialog = Dialog::Counting(change.clone());
        vec![Effect::Ask(Ask::Preview(change))]
    }
}
