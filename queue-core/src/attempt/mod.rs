//! One message, one transaction: claim, savepoint, handler, release, settle, commit.
//!
//! `attempt.rs` tells the story. `conclude.rs` writes what is left when the transaction is gone.

mod attempt;
mod begin;
mod conclude;
mod crash_check;
mod end;
mod ended;
mod in_flight;
mod preflight;
mod refusal;
mod runner;
mod served_queue;
mod settle_rules;
mod size;
mod slot;
mod stall;
mod transaction_runner;

pub use self::ended::Tally;
pub use self::preflight::ComparesSchema;

pub(crate) use self::attempt::settle_claimed;
pub(crate) use self::begin::{ClaimPlan, LockedRow, Plan};
pub(crate) use self::end::{RELEASE, ROLLBACK_TO, SAVEPOINT};
pub(crate) use self::ended::{
    AttemptError, Conclusion, InDoubt, Interruption, NewState, Rest, Turn, UnsettledRow, is_interruption,
};
pub(crate) use self::in_flight::{CallPlace, InFlight, Reserved};
pub(crate) use self::refusal::{KEPT, is_refusal, nowhere};
pub(crate) use self::runner::{
    AnyQueue, BackgroundCalls, BoxedRunner, Runner, RunnerInfo, RunnerSettings, WorkerCalls, WorkerTurn,
};
pub(crate) use self::served_queue::{HEARTBEATS_PER_LEASE, ServedQueue, in_transaction, record};
pub(crate) use self::settle_rules::{SettleRules, stored, tries_before};
pub(crate) use self::size::Size;
pub(crate) use self::slot::{ErasedRow, Revocation, Slot};
pub(crate) use self::transaction_runner::TransactionRunner;
