//! What arrives from the reader.

use std::time::Duration;

use chrono::TimeDelta;

use super::ask::{Ask, News, Paragraph, Place, Snapshot};
use super::dialog::Dialog;
use super::model::{Effect, Lost, Model, Over, Tab};

impl Model {
    /// Takes what the reader tells.
    pub(super) fn told(&mut self, news: News) -> Vec<Effect> {
        match news {
            News::Busy(is) => self.busy = is.then_some(self.now),
            News::Read(snapshot) => self.read(*snapshot),
            News::Lost { why, pause } => self.lose(why, pause),
            News::Explained(place, text) => self.explained(&place, text),
            News::Counted(change, found) => {
                // Somebody may have left the question before it was there.
                if self.dialog != Dialog::Counting(change.clone()) {
                    return Vec::new();
                }
                self.dialog = Dialog::None;
                match found.shape.count {
                    0 => self.say(format!("{}: nothing to change", found.summary)),
                    _ => self.dialog = Dialog::Confirming(change, found),
                }
            }
            News::Progress { done, of } => {
                if let Dialog::Working { progress, .. } = &mut self.dialog {
                    *progress = Some((done, of));
                }
                // It is an answer of the database.
                self.busy = Some(self.now);
            }
            News::Done(said) => {
                self.say(said);
                let mut effects = self.change_ended();
                // A row that is shown may be the one that was changed.
                if let Some(Over::Row(place, _)) = &self.over {
                    effects.push(Effect::Ask(Ask::Explain(place.clone())));
                }
                return effects;
            }
            News::Refused(why) => {
                if let Some(Over::Row(_, None)) = self.over {
                    self.over = None;
                }
                self.refuse(why);
                return self.change_ended();
            }
        }
        Vec::new()
    }

    fn change_ended(&mut self) -> Vec<Effect> {
        if let Dialog::Working { .. } | Dialog::Counting(_) = self.dialog {
            self.dialog = Dialog::None;
        }
        if self.ends { vec![Effect::Interrupt] } else { Vec::new() }
    }

    fn read(&mut self, read: Snapshot) {
        let Snapshot { at, environment, queues, pollers, why, errors, page } = read;
        self.read_at = Some(at);
        self.environment = environment;
        self.lost = None;
        self.queues = queues.unwrap_or(std::mem::take(&mut self.queues));
        self.pollers = pollers.unwrap_or(self.pollers.take());
        self.why = why.or(self.why.take());
        self.errors = errors.or(self.errors.take());
        self.page = page.or(self.page.take());
        Tab::ALL.into_iter().for_each(|tab| self.settle(tab));
    }

    fn lose(&mut self, why: String, pause: Duration) {
        let since = self.lost.as_ref().map_or(self.now, |lost| lost.since);
        let next = self.now + TimeDelta::from_std(pause).unwrap_or_default();
        self.lost = Some(Lost { since, why, next });
    }

    fn explained(&mut self, place: &Place, text: Option<Vec<Paragraph>>) {
        match (&mut self.over, text) {
            (Some(Over::Row(of, shown)), Some(text)) if of == place => *shown = Some(text),
            (Some(Over::Row(of, _)), None) if of == place => {
                self.over = None;
                self.refuse(format!("{}: there is no such row any more", place.key));
            }
            _ => {}
        }
    }
}
