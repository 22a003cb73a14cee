//! One message, one transaction: claim, savepoint, handler, release, settle, commit.
//!
//! `attempt.rs` tells the story. `conclude.rs` writes what is left to write when the transaction is gone.

mod attempt;
mod attempt_error;
mod begin;
mod conclude;
mod crash_check;
mod crash_mark;
mod end;
mod plan;
mod preflight;
mod runner;
mod settle_rules;
mod slot;
mod transaction_runner;
mod turn;

pub use self::turn::Tally;

pub(crate) use self::attempt::settle_claimed;
pub(crate) use self::attempt_error::AttemptError;
pub(crate) use self::conclude::{Conclusion, find_out, in_transaction, record};
pub(crate) use self::end::leaves_commit_in_doubt;
pub(crate) use self::plan::{AttemptBody, LockedRow, Plan, Remainder, is_interruption};
pub(crate) use self::preflight::{channel, check_claim, check_stages, key_prefix};
pub(crate) use self::runner::{BoxedRunner, Runner};
pub(crate) use self::settle_rules::{SettleRules, stored, tries_before};
pub(crate) use self::slot::{ErasedRow, Revocation, Slot};
pub(crate) use self::transaction_runner::{CONCLUSIONS, TransactionRunner};
pub(crate) use self::turn::Turn;
