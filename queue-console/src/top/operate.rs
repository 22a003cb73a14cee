//! Changes that the screen has asked for.

use std::sync::atomic::{AtomicBool, Ordering};

use queue_core::internals::by_name::Operated;

use super::ask::{Change, Found, Target};
use super::report::Asking;
use crate::change::{environment_asked, figures, is_recorded, same, summary, word};
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::queue::{Asked, Author, Ends, Queue, Rows, Scope};
use crate::shown::rows;

/// How many rows are changed in one transaction.
const BATCH: u32 = 500;

/// Who changes something.
#[derive(Debug, Clone)]
pub(super) struct By {
    pub(super) name: Option<String>,
    pub(super) reason: Option<String>,
}

impl<'a, C: Database> Asking<'a, C> {
    /// Counts the rows of a change, and changes nothing.
    pub(super) fn count(&mut self, change: &Change) -> Answer<Found> {
        let nobody = Author { by: String::new(), reason: String::new(), recorded: false };
        let (queue, asked) = self.asked(change, nobody)?;
        let ready = queue.prepare(self.connection, &asked)?;
        let shape = ready.shape();
        let summary = summary(queue.facts(), &*ready, &asked);
        let environment = environment_asked(self.parts, self.connection, shape.count)?;
        Ok(Found { shape, summary, environment })
    }

    /// Changes the rows, if they are still those that were counted. Between two transactions it stops if it is told to.
    pub(super) fn apply(
        &mut self,
        (change, found): (&Change, &Found),
        by: &By,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(usize),
    ) -> Answer<String> {
        let author = self.author(by, "from top")?;
        let (queue, asked) = self.asked(change, author)?;
        let ready = queue.prepare(self.connection, &asked)?;
        same(&found.shape, &ready.shape())?;
        let done = ready.work(self.connection, &mut |at| {
            progress(at.done);
            !stop.load(Ordering::SeqCst)
        });
        let done = done.map_err(|error| Failure::from(error).with("the rows that were changed stay so"))?;
        ended(&asked, ready.count(), done)
    }

    pub(super) fn pause(&mut self, queue: usize, reason: &str, by: &By) -> Answer<String> {
        let author = Author { reason: reason.to_owned(), ..self.author(by, "")? };
        let queue = self.queue(queue)?;
        queue.pause(self.connection, &Scope::default(), Ends::Never, &author)?;
        Ok(format!("{} is paused: no attempt begins from two seconds on", queue.facts().name(self.parts)))
    }

    pub(super) fn unpause(&mut self, queue: usize, by: &By) -> Answer<String> {
        let author = self.author(by, "unpaused from top")?;
        let queue = self.queue(queue)?;
        let was = queue.unpause(self.connection, &Scope::default(), &author)?;
        let name = queue.facts().name(self.parts);
        let left = queueable::pauses(self.connection)?;
        let left = left.iter().filter(|paused| paused.queue == queue.facts().queue).count();
        let said = if was { format!("the pause of {name} has ended") } else { format!("{name} was not paused") };
        Ok(match left {
            0 => said,
            _ => format!("{said}; pauses of stages or values stay: the command `unpause` ends them"),
        })
    }

    fn author(&mut self, by: &By, reason: &str) -> Answer<Author> {
        let who = by.name.clone().ok_or_else(|| Failure::Usage("who are you? Start it with `--by NAME`".to_owned()))?;
        let reason = by.reason.clone().unwrap_or_else(|| reason.to_owned());
        Ok(Author { by: who, reason, recorded: is_recorded(self.connection)? })
    }

    fn asked(&self, change: &Change, author: Author) -> Answer<(&'a dyn Queue<C>, Asked)> {
        let operate = change.operate.clone();
        let (queue, rows, group) = match &change.target {
            Target::Row(place) => {
                let (queue, condition) = self.chosen(place)?;
                (queue, Rows { filter: Some(condition), ..Rows::default() }, None)
            }
            Target::Group { queue, pattern } => (self.queue(*queue)?, Rows::default(), Some(pattern.clone())),
        };
        let figures = figures(queue.facts());
        Ok((queue, Asked { operate, rows, group, figures, author, batch: BATCH }))
    }
}

/// Says what a change has done.
fn ended(asked: &Asked, picked: usize, done: Operated) -> Answer<String> {
    let Operated { rows: changed, refused, refusal, seen, .. } = done;
    let mut said = format!("{}: {} changed", word(&asked.operate), rows(changed));
    let left = seen.saturating_sub(changed + refused);
    if left > 0 {
        said.push_str(&format!(", {left} left alone because they run, are locked or have changed"));
    }
    if seen < picked {
        said.push_str(&format!(", {} not looked at because it was stopped", picked - seen));
    }
    match refusal {
        None => Ok(said),
        Some(why) => Err(Failure::Failed(format!("{said}; the database refused {}: {why}", rows(refused)))),
    }
}
