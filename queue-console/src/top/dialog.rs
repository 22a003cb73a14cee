//! What stands between a key and its effect: a line to type, a question, a change at work.

use std::sync::atomic::Ordering;

use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::ask::{Ask, Change, Found};
use super::input::Input;
use super::model::{Effect, Model, Tab};
use crate::change::word;
use crate::command::condition;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Dialog {
    #[default]
    None,
    /// A line is typed. The text says why the last one was refused.
    Typing(Asked, Input, Option<String>),
    /// The rows of a change are counted.
    Counting(Change),
    /// Go on?
    Confirming(Change, Found),
    /// The change runs, or the screen waits for its beginning.
    Working { what: String, progress: Option<(usize, usize)>, stops: bool },
}

/// What a line is typed for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Asked {
    Filter { queue: usize },
    Reason { queue: usize },
    Environment(Change, Found, String),
}

impl Asked {
    pub(super) fn question(&self) -> String {
        match self {
            Asked::Filter { .. } => "only rows for which this holds".to_owned(),
            Asked::Reason { .. } => "pause this queue, because".to_owned(),
            Asked::Environment(_, found, name) => {
                format!("this changes {} of `{name}`: type its name", crate::shown::rows(found.shape.count))
            }
        }
    }
}

impl Model {
    /// Gives a key to the dialog.
    pub(super) fn key_of_dialog(&mut self, key: KeyEvent) -> Vec<Effect> {
        match std::mem::take(&mut self.dialog) {
            Dialog::None => Vec::new(),
            Dialog::Typing(asked, mut input, refused) => match key.code {
                KeyCode::Esc => Vec::new(),
                KeyCode::Enter => self.typed(asked, input),
                _ => {
                    input.key(key);
                    self.dialog = Dialog::Typing(asked, input, refused);
                    Vec::new()
                }
            },
            Dialog::Counting(change) => {
                if key.code != KeyCode::Esc {
                    self.dialog = Dialog::Counting(change);
                }
                Vec::new()
            }
            Dialog::Confirming(change, found) => self.confirmed(key, change, found),
            Dialog::Working { what, progress, stops } => {
                let stops = stops || key.code == KeyCode::Esc;
                self.stop.store(stops, Ordering::SeqCst);
                self.dialog = Dialog::Working { what, progress, stops };
                Vec::new()
            }
        }
    }

    fn confirmed(&mut self, key: KeyEvent, change: Change, found: Found) -> Vec<Effect> {
        match (key.code, &found.environment) {
            (KeyCode::Char('y' | 'Y'), Some(name)) => {
                let asked = Asked::Environment(change, found.clone(), name.clone());
                self.dialog = Dialog::Typing(asked, Input::default(), None);
                Vec::new()
            }
            (KeyCode::Char('y' | 'Y'), None) => self.apply(change, found),
            // A key that is pressed by mistake ends the question, as Enter does.
            _ => {
                self.say("nothing was changed");
                Vec::new()
            }
        }
    }

    fn apply(&mut self, change: Change, found: Found) -> Vec<Effect> {
        let progress = Some((0, found.shape.count));
        self.stop.store(false, Ordering::SeqCst);
        self.dialog = Dialog::Working { what: word(&change.operate).to_owned(), progress, stops: false };
        vec![Effect::Ask(Ask::Apply(change, found))]
    }

    fn typed(&mut self, asked: Asked, input: Input) -> Vec<Effect> {
        let text = input.text();
        let text = text.trim();
        match asked {
            Asked::Filter { queue } => self.filtered(queue, text, input.clone()),
            Asked::Reason { .. } if text.is_empty() => {
                self.dialog = Dialog::Typing(asked, input, Some("a pause needs a reason".to_owned()));
                Vec::new()
            }
            Asked::Reason { queue } => {
                self.dialog = Dialog::Working { what: "pause".to_owned(), progress: None, stops: false };
                vec![Effect::Ask(Ask::Pause { queue, reason: text.to_owned() })]
            }
            Asked::Environment(change, found, name) if name == text => self.apply(change, found),
            Asked::Environment(..) => {
                self.refuse("nothing was changed: that is not the name of the environment");
                Vec::new()
            }
        }
    }

    fn filtered(&mut self, queue: usize, text: &str, input: Input) -> Vec<Effect> {
        let Some(facts) = self.facts.get(queue) else { return Vec::new() };
        match condition(facts, text) {
            _ if text.is_empty() => self.filter = None,
            Ok(_) => self.filter = Some(text.to_owned()),
            Err(refused) => {
                self.dialog = Dialog::Typing(Asked::Filter { queue }, input, Some(refused.to_string()));
                return Vec::new();
            }
        }
        self.open(Tab::Rows)
    }
}
