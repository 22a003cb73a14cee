//! What one process knows about refused rows, and which rows a claim is therefore for. Nothing here asks the database.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{SubsecRound, TimeDelta};

use crate::entity::jittered;
use crate::row::{Instant as Due, Options, RowKey};
use crate::sync::OneAtATime;

/// How long a row is left alone after its first refusal. Each further refusal multiplies it by [`REFUSAL_PAUSE_GROWTH`].
const FIRST_REFUSAL_PAUSE: Duration = Duration::from_secs(10);

const REFUSAL_PAUSE_GROWTH: u32 = 4;

const LONGEST_REFUSAL_PAUSE: Duration = Duration::from_secs(3600);

/// A try of a refused row, or a survey, is followed by a pause that is this many times as long: both together take a
/// tenth of one worker's time at most.
const PAUSE_PER_TRY: u32 = 20;

/// The shortest time between surveys while no row is known to be below the floor.
const SURVEY_INTERVAL: Duration = Duration::from_secs(1);

/// How many rows a claim passes over by their keys.
pub(super) const ROWS_EXCEPTED: usize = 50;

/// How many rows a survey reads beyond the refused ones.
const ROWS_SURVEYED: usize = 1000;

/// Up to this many rows among the refused ones are claimed by their keys rather than along the index.
const FEW_ROWS_LEFT: usize = 100;

/// How much earlier than a survey its floor is: a row is committed a little later than its due time.
const COMMIT_DELAY: TimeDelta = TimeDelta::seconds(1);

/// How far a claim leaps ahead if it meets a refused row behind the floor. Each further refused row doubles it.
const FIRST_LEAP: TimeDelta = TimeDelta::seconds(1);

const LONGEST_LEAP: TimeDelta = TimeDelta::days(36_500);

/// How many rows are remembered. Rows beyond that number are tried again and again.
const REFUSED_ROWS_REMEMBERED: usize = 1_000_000;

/// The text of a key.
type KeyText = Arc<str>;

/// When a row was due; the name of its lane, if rows of a lane keep their order; and whether the row itself says how long it
/// waits, so that it is not due meanwhile.
pub(super) type Place = (Option<Due>, Option<Arc<str>>, bool);

/// What one process knows about the refused rows of one entity, and which rows the next claim is for.
pub(super) struct RefusedState<K> {
    turns: Turns,
    pub(super) rows: HashMap<KeyText, RefusedRow<K>>,
    by_due_time: BTreeSet<(Due, KeyText)>,
    /// Those in the lanes of a serial queue.
    by_lane: BTreeSet<(Arc<str>, KeyText)>,
    pub(super) retries: Retries,
    pub(super) found: FoundRows<K>,
    pub(super) start: ClaimStart<K>,
    pub(super) survey: Survey,
}

pub(super) struct RefusedRow<K> {
    key: RowKey<K>,
    due: Option<Due>,
    lane: Option<Arc<str>>,
    pub(super) times: u32,
    until: Instant,
}

/// When refused rows are tried again, one at a time.
pub(super) struct Retries {
    by_time: BTreeSet<(Instant, KeyText)>,
    /// The row that is being tried again, and since when.
    running: Option<(KeyText, Instant)>,
    /// The earliest time of the next try.
    next: Instant,
}

/// Rows that were due at the last survey, and are not known to be refused.
pub(super) struct FoundRows<K> {
    /// Rows that no worker has tried yet.
    pub(super) waiting: VecDeque<RowKey<K>>,
    /// Rows that workers are trying, and since when.
    tried: HashMap<KeyText, Instant>,
    /// Whether the last one was refused, so that the next are probably refused too, and are tried alone.
    are_refused: bool,
    /// The earliest time of the next try, unless there is nothing else to do.
    next: Instant,
}

/// Where claims begin.
pub(super) struct ClaimStart<K> {
    /// The due time. `None`: claims begin with the row that has been due longest.
    pub(super) floor: Option<Due>,
    /// How far the next leap goes.
    leap: TimeDelta,
    /// Whether claims take only the rows that surveys have found.
    pub(super) only_found: bool,
    /// The refused rows that are not below the floor.
    excepted: Vec<RowKey<K>>,
    /// Whether the floor has moved since the last claim.
    has_moved: bool,
}

/// The result of the last survey, and when the next one is made.
pub(super) struct Survey {
    pub(super) running: OneAtATime,
    next: Instant,
    /// The database's time at the last survey, and this process's time then.
    present: Option<(Due, Instant)>,
    /// Whether it has read all rows that were due, and all of them are refused.
    pub(super) is_all_refused: bool,
}

/// The result of noting a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Whether it is the row's first refusal.
    pub(crate) is_first: bool,
    /// Whether the row is left alone now. It is not if there are too many rows to remember.
    pub(crate) is_left_alone: bool,
}

/// What a worker does next.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step<K> {
    /// Claims the due rows from this time on, except these. `is_new`: the claims begin elsewhere now, so prefetched rows are
    /// out of date.
    From { floor: Option<Due>, except: Vec<RowKey<K>>, is_new: bool },
    /// Claims only these.
    Only(Vec<RowKey<K>>),
    /// Claims none: as far as is known, all due rows are refused.
    Nothing,
    /// Reads this many keys.
    Survey(u32),
}

/// What the order of an entity's rows allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// The due time decides, so that claims can begin at a floor.
    ByDueTime,
    /// Another column comes first.
    InOrder,
    /// No claim passes the first row.
    OneByOne,
}

impl Turns {
    pub(super) fn of(options: &Options) -> Self {
        let one_by_one = options.exclusive.then_some(Turns::OneByOne);
        one_by_one.unwrap_or(if options.order.is_some() { Turns::InOrder } else { Turns::ByDueTime })
    }
}

/// Returns how long a row is left alone that was refused `times` times before.
pub(super) fn pause_after(times: u32) -> Duration {
    let pause =
        FIRST_REFUSAL_PAUSE.saturating_mul(REFUSAL_PAUSE_GROWTH.saturating_pow(times)).min(LONGEST_REFUSAL_PAUSE);
    jittered(pause, 0.1, fastrand::f64())
}

impl<K: Clone> RefusedState<K> {
    pub(super) fn new(turns: Turns, now: Instant) -> Self {
        let start =
            ClaimStart { floor: None, leap: FIRST_LEAP, only_found: false, excepted: Vec::new(), has_moved: false };
        RefusedState {
            turns,
            rows: HashMap::new(),
            by_due_time: BTreeSet::new(),
            by_lane: BTreeSet::new(),
            retries: Retries { by_time: BTreeSet::new(), running: None, next: now },
            found: FoundRows { waiting: VecDeque::new(), tried: HashMap::new(), are_refused: false, next: now },
            start,
            survey: Survey { running: OneAtATime::default(), next: now, present: None, is_all_refused: false },
        }
    }

    /// Notes that a row is refused, and has been at least `times` times before.
    pub(super) fn refuse(&mut self, key: &RowKey<K>, place: Place, times: u32, now: Instant) -> Refusal {
        let (mut due, lane, is_noted) = place;
        let text = key.text().clone();
        self.retries.end(&text, now);
        self.found.note_refused(&text, now);
        let before = self.rows.remove(&text);
        let is_first = before.is_none();
        if is_first && self.rows.len() >= REFUSED_ROWS_REMEMBERED {
            return Refusal { is_first, is_left_alone: false };
        }
        let times = before.as_ref().map_or(0, |row| row.times).max(times);
        let mut until = now + pause_after(times);
        if is_noted && self.turns != Turns::OneByOne {
            // It moves back in the line, past rows that are not refused, and must be due when it is tried again here.
            due = before.as_ref().map_or(due, |before| before.due);
            until += pause_after(times) / 10 + Duration::from_secs(1);
        }
        let is_there = before.as_ref().is_some_and(|before| before.due == due);
        before.inspect(|before| self.forget(&text, before));
        self.retries.by_time.insert((until, text.clone()));
        self.by_due_time.extend(due.map(|due| (due, text.clone())));
        self.by_lane.extend(lane.clone().map(|lane| (lane, text.clone())));
        self.rows.insert(text, RefusedRow { key: key.clone(), due, lane, times: times.saturating_add(1), until });
        match (due, self.start.floor) {
            _ if is_there || self.start.is_above(due) => {}
            (Some(due), Some(_)) if self.turns == Turns::ByDueTime => self.leap_from(due, now),
            _ => {
                self.start.excepted.retain(|other| other != key);
                self.start.excepted.push(key.clone());
                if self.start.excepted.len() > ROWS_EXCEPTED {
                    self.raise_floor(now);
                }
            }
        }
        Refusal { is_first, is_left_alone: true }
    }

    /// Puts the floor some way behind a refused row, but not into the future.
    fn leap_from(&mut self, due: Due, now: Instant) {
        let ahead = due.checked_add_signed(self.start.leap);
        let since = |at| TimeDelta::from_std(now.saturating_duration_since(at)).ok();
        // The database's time, or a little less.
        let present =
            self.survey.present.and_then(|(present, at)| present.checked_add_signed(since(at)? - COMMIT_DELAY));
        let floor = present.map_or(ahead, |present| ahead.map(|ahead| ahead.min(present)));
        // SQLite stores milliseconds. A floor between two of them would mean another time there than here.
        let floor = floor.map(|floor| Due::from(floor.trunc_subsecs(3)));
        self.put_floor(floor.max(Some(due)));
        self.start.leap = (self.start.leap * 2).min(LONGEST_LEAP);
    }

    /// Puts the floor at the refused row with the latest due time. The next survey finds the rows that are left below
    /// it.
    fn raise_floor(&mut self, now: Instant) {
        let last = self.by_due_time.last().filter(|_| self.turns == Turns::ByDueTime);
        self.put_floor(last.map(|(due, _)| *due));
        if self.start.only_found {
            self.survey.next = now;
        }
    }

    /// Makes claims begin at a floor, unless too many refused rows are there.
    fn put_floor(&mut self, floor: Option<Due>) {
        let from = floor.map_or(Bound::Unbounded, |floor| Bound::Included((floor, KeyText::from(""))));
        let behind = self.by_due_time.range((from, Bound::Unbounded)).take(ROWS_EXCEPTED + 1);
        let mut excepted: Vec<_> = behind.filter_map(|(_, text)| Some(self.rows.get(text)?.key.clone())).collect();
        // A row whose due time cannot be read may be on either side of the floor.
        if self.by_due_time.len() < self.rows.len() {
            let timeless = self.rows.values().filter(|row| row.due.is_none());
            excepted.extend(timeless.take(ROWS_EXCEPTED + 1).map(|row| row.key.clone()));
        }
        self.start.put(floor, excepted);
    }

    /// Notes that a claim has looked at these rows since `begun` and could not try them. A survey finds them again, so the next one
    /// waits, in proportion to the time of this look.
    pub(super) fn put_off(&mut self, keys: &[RowKey<K>], begun: Instant, now: Instant) {
        keys.iter().for_each(|key| self.retries.end(key.text(), now));
        if keys.iter().any(|key| self.found.tried.contains_key(key.text())) {
            // Where claims take only found rows, the other rows wait for the next survey.
            let longest = if self.start.only_found { SURVEY_INTERVAL } else { FIRST_REFUSAL_PAUSE };
            let next = self.survey.next.max(now) + now.saturating_duration_since(begun) * PAUSE_PER_TRY;
            self.survey.next = next.min(now + longest).max(self.survey.next);
        }
    }

    /// Notes that a claim has not found a row, which others hold, or which is no longer due, unless it was put off.
    pub(super) fn end_unless_put_off(&mut self, text: &KeyText) {
        if !self.rows.contains_key(text) || self.retries.running.as_ref().is_some_and(|(of, _)| of == text) {
            self.end(text);
        }
    }

    pub(super) fn end(&mut self, text: &KeyText) {
        self.found.are_refused &= self.found.tried.remove(text).is_none();
        let Some(row) = self.rows.remove(text) else {
            return self.start.leap = (self.start.leap / 2).max(FIRST_LEAP);
        };
        self.forget(text, &row);
        self.start.excepted.retain(|key| key.text() != text);
        self.retries.end(text, Instant::now());
        if self.rows.is_empty() {
            let new = RefusedState::new(self.turns, Instant::now());
            self.survey.running = std::mem::replace(self, new).survey.running;
        }
    }

    fn forget(&mut self, text: &KeyText, row: &RefusedRow<K>) {
        self.retries.by_time.remove(&(row.until, text.clone()));
        row.due.map(|due| self.by_due_time.remove(&(due, text.clone())));
        row.lane.clone().map(|lane| self.by_lane.remove(&(lane, text.clone())));
    }

    /// Returns refused rows of a lane, at most so many.
    pub(super) fn in_lane(&self, lane: &Arc<str>, most: usize) -> Vec<RowKey<K>> {
        let of_lane = self.by_lane.range((lane.clone(), KeyText::from(""))..).take_while(|(other, _)| other == lane);
        of_lane.take(most).filter_map(|(_, text)| Some(self.rows.get(text)?.key.clone())).collect()
    }

    pub(super) fn next_step(&mut self, limit: u32, now: Instant) -> Step<K> {
        if self.turns == Turns::OneByOne {
            let waiting = self.rows.values().filter(|row| row.until > now).take(ROWS_EXCEPTED);
            let except = waiting.map(|row| row.key.clone()).collect();
            return Step::From { floor: None, except, is_new: false };
        }
        if let Some(key) = self.retry(now) {
            return Step::Only(vec![key]);
        }
        let found = self.found.take(limit as usize, now, |key| self.rows.contains_key(key));
        if !found.is_empty() {
            return Step::Only(found);
        }
        self.begin_survey(false, now).map_or_else(|| self.start.step(), Step::Survey)
    }

    /// Makes the rows that a survey has found wait no longer, because there is nothing else to do. Returns whether
    /// there are any.
    pub(super) fn release_found(&mut self, now: Instant) -> bool {
        self.found.next = self.found.next.min(now);
        // A survey may arrive when no row is refused any more. Then claims take them along the index.
        !self.rows.is_empty() && !self.found.waiting.is_empty()
    }

    /// Takes the row whose pause is over, if one may be tried again now.
    fn retry(&mut self, now: Instant) -> Option<RowKey<K>> {
        let retries = &mut self.retries;
        // A worker that took it may have been interrupted without saying so.
        retries.running.take_if(|(_, since)| now.saturating_duration_since(*since) > FIRST_REFUSAL_PAUSE);
        if retries.running.is_some() || now < retries.next || retries.by_time.first()?.0 > now {
            return None;
        }
        let (_, text) = retries.by_time.pop_first()?;
        let row = self.rows.get_mut(&text)?;
        row.until = now + FIRST_REFUSAL_PAUSE;
        retries.by_time.insert((row.until, text.clone()));
        retries.running = Some((text, now));
        Some(row.key.clone())
    }

    /// Begins a survey, if it is time for one or `at_once` asks for it, and no other worker makes one. Returns how many
    /// keys to read.
    pub(super) fn begin_survey(&mut self, at_once: bool, now: Instant) -> Option<u32> {
        if self.survey.running.is_running() || (!at_once && now < self.survey.next) {
            return None;
        }
        self.survey.running.begin();
        // Each number of keys is a statement of its own.
        u32::try_from((self.rows.len() + ROWS_SURVEYED).next_power_of_two()).ok()
    }

    /// Takes the keys that a survey has read.
    pub(super) fn arrive(&mut self, keys: Vec<RowKey<K>>, number: u32, present: Due, begun: Instant) {
        let is_complete = keys.len() < number as usize;
        self.survey.present = Some((present, begun));
        self.found.tried.clear();
        let is_refused: Vec<_> = keys.iter().map(|key| self.rows.contains_key(key.text())).collect();
        let behind_them = is_refused.iter().rposition(|is_refused| *is_refused).map_or(0, |last| last + 1);
        let sound_rows = is_refused.iter().filter(|is_refused| !**is_refused).count();
        self.survey.is_all_refused = is_complete && sound_rows == 0;
        let now = Instant::now();
        self.survey.next = now + (now.saturating_duration_since(begun) * PAUSE_PER_TRY).max(SURVEY_INTERVAL);
        let by_due_time = self.turns == Turns::ByDueTime;
        // All due rows below the floor are known, if they are few.
        let are_few = is_complete && sound_rows <= FEW_ROWS_LEFT;
        let last = self.by_due_time.last().map(|(due, _)| *due);
        let floor = if are_few { present.checked_sub_signed(COMMIT_DELAY).map(Due::from) } else { last };
        self.put_floor(floor.filter(|_| by_due_time));
        // A refused row that was not read is due later than all of these.
        let is_beyond = is_refused.len() - sound_rows < self.rows.len();
        let takes_all = !by_due_time || are_few || is_beyond || self.start.only_found;
        let keys = keys.into_iter().zip(is_refused).take(if takes_all { usize::MAX } else { behind_them });
        self.found.waiting = keys.filter(|(_, is_refused)| !is_refused).map(|(key, _)| key).collect();
        if by_due_time && self.start.only_found && !is_complete {
            // The next survey reads the rest as soon as these are processed.
            self.survey.next = now + now.saturating_duration_since(begun) * PAUSE_PER_TRY;
        }
    }

    /// Returns how long it is until a survey, or a new try of a refused row, shows more.
    pub(super) fn until_known(&self, now: Instant) -> Duration {
        let retry = self.retries.by_time.first().map(|(until, _)| (*until).max(self.retries.next));
        retry.unwrap_or(self.survey.next).min(self.survey.next).saturating_duration_since(now)
    }

    /// Returns how long this row is still left alone.
    pub(super) fn waits(&self, text: &KeyText, now: Instant) -> Option<Duration> {
        Some(self.rows.get(text)?.until.saturating_duration_since(now)).filter(|waits| !waits.is_zero())
    }
}

impl Retries {
    /// Notes that the row was written, or refused once more. If it was being tried again, the next try waits, in
    /// proportion to the time of this one.
    pub(super) fn end(&mut self, text: &KeyText, now: Instant) {
        if let Some((_, since)) = self.running.take_if(|(retried, _)| retried == text) {
            self.next = now + now.saturating_duration_since(since) * PAUSE_PER_TRY;
        }
    }
}

impl<K> FoundRows<K> {
    /// Notes that the row is refused. If it was one of these, the next one waits, in proportion to the time of this
    /// try.
    fn note_refused(&mut self, text: &KeyText, now: Instant) {
        if let Some(since) = self.tried.remove(text) {
            (self.are_refused, self.next) = (true, now + now.saturating_duration_since(since) * PAUSE_PER_TRY);
        }
    }

    /// Takes the next of them, if they may be tried now, except those that are refused by now.
    fn take(&mut self, limit: usize, now: Instant, is_refused: impl Fn(&KeyText) -> bool) -> Vec<RowKey<K>> {
        let (mut taken, limit) = (Vec::new(), if self.are_refused { 1 } else { limit });
        while now >= self.next
            && taken.len() < limit
            && let Some(key) = self.waiting.pop_front()
        {
            if !is_refused(key.text()) {
                self.tried.insert(key.text().clone(), now);
                taken.push(key);
            }
        }
        taken
    }
}

impl<K: Clone> ClaimStart<K> {
    /// Tells whether claims begin behind a row that was due at this time.
    fn is_above(&self, due: Option<Due>) -> bool {
        self.only_found || matches!((due, self.floor), (Some(due), Some(floor)) if due < floor)
    }

    /// Makes claims begin at a floor, and pass over these refused rows behind it, unless they are too many.
    fn put(&mut self, floor: Option<Due>, excepted: Vec<RowKey<K>>) {
        self.only_found = excepted.len() > ROWS_EXCEPTED;
        self.has_moved = true;
        (self.floor, self.excepted) = if self.only_found { (None, Vec::new()) } else { (floor, excepted) };
    }

    /// Returns the rows that a claim is for that begins here.
    fn step(&mut self) -> Step<K> {
        if self.only_found {
            return Step::Nothing;
        }
        let is_new = std::mem::take(&mut self.has_moved);
        Step::From { floor: self.floor, except: self.excepted.clone(), is_new }
    }
}

#[cfg(test)]
mod tests;
