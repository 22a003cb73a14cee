//! One entity in lease mode: its handler, its settings, and the rows that it has leased.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::claim::{Decided, Leased};
use super::claim_size::ClaimSize;
use super::claim_style::ClaimStyle;
use super::leased_rows::{Held, Holds};
use crate::attempt::Rules;
use crate::claim::{LowWater, Pauses};
use crate::entity::Entity;
use crate::row::Settled;

/// A leased row, for whoever records that its handler is late.
pub(crate) struct LateRow<Q: Entity> {
    pub(crate) held: Arc<Held<Q::Key>>,
    /// How long it was given.
    pub(crate) budget: Duration,
}

/// How many times the heart beats within a lease. It passes over a row that is locked just then, and has to find it free once
/// in half a lease.
pub(crate) const BEATS: u32 = 8;

/// An entity, its handler, its settings, and the rows that it has leased.
pub(crate) struct LeaseLane<Q: Entity, C, H> {
    pub(crate) handler: H,
    pub(crate) rules: Rules,
    pub(crate) key_prefix: String,
    pub(crate) holds: Holds<Q::Key>,
    pub(crate) pauses: Pauses<Q::Key>,
    pub(crate) low_water: LowWater,
    pub(crate) size: ClaimSize,
    pub(crate) style: ClaimStyle,
    /// The stages that are served, if not all.
    pub(crate) stages: Option<Vec<&'static str>>,
    pub(crate) skips_locked_rows: AtomicBool,
    pub(crate) can_lock: AtomicBool,
    /// Whether the answer of a claim by one statement could not be read: its rows are leased to nobody then. Or it was refused
    /// again and again.
    pub(crate) claims_in_steps: AtomicBool,
    /// How often in a row it was refused, and the same rows could be claimed in steps.
    pub(crate) refusals: AtomicU32,
    pub(crate) ready: Mutex<VecDeque<(Instant, Ready<Q>)>>,
    pub(crate) writer: Arc<Mutex<()>>,
    pub(crate) connection: PhantomData<fn(C)>,
}

/// What a claim has brought and no worker has taken yet.
pub(crate) enum Ready<Q: Entity> {
    Leased(Leased<Q>),
    /// It is under its lease, and settled without its handler.
    Decided(Decided<Q>),
    /// The claim has settled the row already: it is only to be counted.
    Settled(Settled),
}
