//! One worker: a thread with its own session that takes turns for the runners that have work.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::post::{Duty, Post};
use super::shared::{PollerShared, spawn};
use super::work_board::TurnPermit;
use crate::attempt::{Runner, Slot, Turn, WorkerCalls, WorkerTurn};
use crate::backend::{QueueConnection, SessionHolder};
use crate::crash::GATE;
use crate::entity::{Retry, RetryPolicy, jittered};
use crate::error::{Error, panic_text};
use crate::event::ThreadConnection;
use crate::row::failure_text;
use crate::sync::InTurn;

/// How a worker backs off from a database in trouble: for 25 to 400 milliseconds, at random up to twice as long. So it
/// is back within a second after the database.
const BACKOFF: Retry = Retry::exponential(Duration::from_millis(25)).max(Duration::from_millis(400));

/// A worker before it starts.
pub(crate) struct Worker<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    slot: Arc<Slot>,
    post: Arc<Post>,
}

impl<C: QueueConnection> Worker<C> {
    /// `connection`: what is known of its connection at first.
    pub(crate) fn new(shared: Arc<PollerShared<C>>, connection: ThreadConnection) -> Self {
        let slot = shared.new_slot();
        let post = shared.new_post(Duty::Worker(slot.clone()), connection, shared.settings.patience());
        Worker { shared, slot, post }
    }

    /// Starts the thread.
    pub(crate) fn spawn(self, name: String, has_tried: Option<Sender<()>>) -> Result<(), Error> {
        let (shared, post) = (self.shared.clone(), self.post.clone());
        post.tells_trial(has_tried);
        spawn(&shared, post, name, move || self.run())
    }

    /// Takes turns until the poller stops, or another thread has taken this one's place.
    fn run(self) {
        let shared = &*self.shared;
        let _tasks = shared.tasks.enter();
        let mut holder = shared.sessions.of_worker(&self.post);
        self.try_to_open(&mut holder);
        self.post.note_trial();
        let mut troubles = 0;
        while let Some(mut permit) = self.next_turn(&mut holder) {
            let mut turn = self.take_turn(&mut holder, &mut permit, false);
            while turn == Turn::Suspect {
                turn = self.take_turn(&mut holder, &mut permit, true);
            }
            troubles = if turn == Turn::Trouble { troubles + 1 } else { 0 };
            if turn.has_failures() && shared.tasks.has_ended() {
                shared.stop_because(permit.runner, "the tokio runtime of the handlers' tasks has ended");
            }
            if self.post.end_turn() {
                shared.board.count(turn);
                break;
            }
            let drained = shared.board.end_turn(permit, turn);
            // The scout probes when the next row is due. A poller that ends when nothing is due does so after the last turn, also if
            // other workers have reported before that they found nothing.
            if drained || (shared.until_idle && shared.board.is_quiet()) {
                shared.wake_signal.note_drained(permit.runner);
            }
            if self.slot.is_replaced() {
                break;
            }
            if troubles > 0 {
                let delay = BACKOFF.delay(troubles).unwrap_or_default();
                holder.end_wait();
                shared.board.pause(jittered(delay, 1.0, fastrand::f64()));
            }
        }
    }

    /// Opens the session, if there is none. Returns whether there is one.
    fn try_to_open(&self, holder: &mut SessionHolder<C>) -> bool {
        let opened = catch_unwind(AssertUnwindSafe(|| holder.session_as_it_is().map(drop)));
        let text = match opened {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => failure_text(&error, 500),
            Err(panic) => panic_text(panic),
        };
        self.shared.log.warn("poller", &format!("a worker cannot connect; the other workers continue: {text}"));
        false
    }

    /// Waits for a turn, in no transaction: the next one may have begun with the end of the last message. A worker
    /// without a session asks for no turn, so that it keeps no work from the workers that have one.
    fn next_turn(&self, holder: &mut SessionHolder<C>) -> Option<TurnPermit> {
        for tries in 1.. {
            if self.slot.is_replaced() {
                return None;
            }
            if self.shared.board.is_stopping() || holder.open_session().is_some() || self.try_to_open(holder) {
                break;
            }
            self.shared.board.pause(jittered(BACKOFF.delay(tries).unwrap_or_default(), 1.0, fastrand::f64()));
        }
        if let Some(permit) = self.shared.board.find_work() {
            self.post.begin_turn(permit.runner);
            return Some(permit);
        }
        holder.roll_back_idle();
        holder.rest(true);
        holder.end_wait();
        let permit = self.shared.board.wait_for_work()?;
        // Before the next statement, which may get no answer.
        self.post.begin_turn(permit.runner);
        holder.rest(false);
        Some(permit)
    }

    /// Tells whether there is anything to do in a turn for a runner.
    fn has_to_take_turn(&self, number: usize) -> bool {
        let (shared, runner) = (&*self.shared, &*self.shared.runners[number]);
        // Calls that have ended are settled also while nothing new may begin.
        let has_answers = runner.calls().is_some_and(|calls| calls.counts().has_answers());
        // If a lease's claim has taken rows already, the turn gives them back.
        let may_claim = || shared.gates[number].is_open() || runner.claimed_ahead() > 0;
        has_answers || (!shared.board.is_stopping() && may_claim())
    }

    /// Takes one turn for a runner, `alone` in the process if that is asked for.
    fn take_turn(&self, holder: &mut SessionHolder<C>, permit: &mut TurnPermit, alone: bool) -> Turn {
        let (shared, slot, number) = (&*self.shared, &*self.slot, permit.runner);
        let runner = &*shared.runners[number];
        // In this order: a worker that waits to write is inside already. A worker that wants to be alone does not wait for
        // calls under leases: they may take long, and the end of the lease shows a crash in them.
        let _inside = if runner.info().counts_crashes {
            if GATE.has_to_wait(alone) {
                holder.roll_back_idle();
            }
            holder.end_wait();
            let Some(permit) = GATE.enter(alone, || shared.board.is_stopping()) else { return Turn::Idle };
            slot.recorder().set_concurrency(permit.concurrency);
            slot.set_gate_number(permit.number);
            Some((shared.turn_to_write(), permit, InTurn::begin()))
        } else {
            None
        };
        slot.note_turn_for(number);
        let changes = shared.gates[number].changes();
        if !self.has_to_take_turn(number) {
            return Turn::Idle;
        }
        holder.move_to_file(shared.sessions.files());
        let stays = !alone && shared.board.is_only_work(number);
        let calls = CallsOfTurn { shared, slot, permit: Cell::new(*permit), changes, alone };
        let turn =
            catch_unwind(AssertUnwindSafe(|| runner.turn(&mut WorkerTurn { holder, slot, calls: &calls, stays })));
        *permit = calls.permit.get();
        turn.unwrap_or_else(|panic| {
            // A handler's panic is caught closer to the handler. This one comes from this library or from the driver,
            // and the thread lives on.
            std::mem::forget(panic);
            shared.log.warn(runner.info().entity, "an attempt panicked outside its handler");
            let given_up = slot.leave();
            holder.close();
            if given_up { Turn::GivenUp } else { Turn::Trouble }
        })
    }
}

/// What a turn asks of its worker, and tells it.
struct CallsOfTurn<'a, C: QueueConnection> {
    shared: &'a PollerShared<C>,
    slot: &'a Slot,
    permit: Cell<TurnPermit>,
    /// How often the pauses had changed when the turn began.
    changes: u64,
    alone: bool,
}

impl<C: QueueConnection> WorkerCalls for CallsOfTurn<'_, C> {
    fn note_claim(&self) {
        let runner = self.permit.get().runner;
        self.shared.board.found_work(runner, self.shared.runners[runner].claimed_ahead() > 0);
    }

    fn may_find_rows(&self) -> bool {
        self.shared.board.work_of(self.permit.get().runner).0
    }

    fn note_freed_others(&self) {
        self.shared.board.signal_work(self.permit.get().runner);
    }

    fn goes_on(&self) -> bool {
        !self.shared.board.is_stopping()
            && !self.slot.is_replaced()
            && self.shared.gates[self.permit.get().runner].is_open_since(self.changes)
    }

    fn stop(&self, why: &str) {
        self.shared.stop_because(self.permit.get().runner, why);
    }

    fn try_take_next(&self, ended: Turn) -> bool {
        let mut permit = self.permit.get();
        // Other runners get their turns, and a suspect row its time alone.
        let takes_next = matches!(ended, Turn::Settled(_))
            && self.goes_on()
            && !self.alone
            && !GATE.has_to_wait(false)
            && self.shared.board.try_go_on(&mut permit, ended);
        self.permit.set(permit);
        takes_next
    }
}

/// Refuses to process queues until nothing is due inside a handler, which may have to return before that can be.
pub(crate) fn check_reentrance<C: QueueConnection>(runners: &[Box<dyn Runner<C>>]) -> Result<(), Error> {
    let Some(runner) = runners.first().filter(|_| InTurn::is_taken()) else { return Ok(()) };
    Err(Error::Setting {
        setting: "run_until_idle",
        found: format!("called for {} inside a handler whose end it would wait for", runner.info().entity),
        expected: "a call outside of handlers; what a handler enqueues is worked when its transaction is committed",
    })
}
