//! Entities without a limit of tries, one for each backoff, and a poller in this process whose handler always fails.

use anyhow::{Result, bail};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Failure, Lease, Message, Outcome, PollerHandle, Queueable};

use super::Conn;
use crate::bank::{PLANNED, payments};
use crate::bars::backoffs::Growth;
use crate::options::Mode;

macro_rules! entities {
    ($($entity:ident: $mode:tt;)*) => {$(
        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue $mode]
        struct $entity {
            #[expect(dead_code, reason = "its key is all that is needed of it")]
            id: i64,
        }
    )*};
}

entities! {
    Doubling: (retry = exponential("10s", max = "36500d"), max_tries = 2147483647);
    Capped: (retry = exponential("10s"), max_tries = 2147483647);
    Growing: (retry = linear("300s"), max_tries = 2147483647);
    GroupDoubling: (group = 20, retry = exponential("10s", max = "36500d"), max_tries = 2147483647);
    LeaseDoubling: (lease = "5s", retry = exponential("10s", max = "36500d"), max_tries = 2147483647);
}

/// Starts a poller that fails every due payment.
pub(crate) fn fail_all(url: &str, mode: Mode, growth: Growth) -> Result<PollerHandle> {
    let pool = Pool::builder().max_size(6).min_idle(Some(0)).build_unchecked(ConnectionManager::<Conn>::new(url));
    macro_rules! fail {
        ($entity:ident) => {
            $entity::poller(pool, |_: &$entity, _: &mut Message<'_, Conn>| Err(Failure::retry(PLANNED)))
        };
    }
    let poller = match (mode, growth) {
        (Mode::Transaction, Growth::Doubling) => fail!(Doubling),
        (Mode::Transaction, Growth::Capped) => fail!(Capped),
        (Mode::Transaction, Growth::Linear) => fail!(Growing),
        (Mode::Group, Growth::Doubling) => fail!(GroupDoubling),
        (Mode::Lease, Growth::Doubling) => {
            let call = |_: &LeaseDoubling, _: &Lease| Err::<(), _>(Failure::retry(PLANNED));
            let apply = |_: &LeaseDoubling, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
            LeaseDoubling::poller(pool, (call, apply))
        }
        (Mode::Group | Mode::Lease, _) => bail!("the ways to back off are the same in every mode"),
    };
    Ok(poller.start()?)
}
