//! What is left when a handler has ended its group's transaction: the messages before it are innocent, and whether their
//! effects are committed is read from the mark that the group wrote.

use diesel::result::QueryResult;

use crate::attempt::{Misfortune, Rest};
use crate::backend::QueueConnection;
use crate::conclude::in_transaction;
use crate::group::{Decided, Mark};
use crate::handler::Failure;
use crate::statement::{Fence, Marked, QueueOn};
use crate::verdict::{Rules, Settled, tries_before};

/// What became of a transaction that a handler ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was committed. The messages before the handler's own are settled now; `None` where somebody else has changed the
    /// row meanwhile, so that its effects may have come twice.
    Committed(Vec<Option<Settled>>),
    /// It was rolled back: the messages before are as they were, and due.
    RolledBack,
    /// Somebody else has changed the marked row meanwhile.
    Unknown,
}

/// Finds out, under the marked row's lock, whether the transaction was committed, and if so settles the messages whose
/// effects came with it.
pub(crate) fn settle_if_committed<Q, C>(
    connection: &mut C,
    mark: &Mark<Q::Key>,
    before: &[Decided<Q::Key>],
) -> QueryResult<Fate>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    in_transaction(connection, |connection| match Q::recall_mark(connection, &mark.key)? {
        Some(Marked { text: Some(text), .. }) if text == mark.text => {
            let settle = |row: &Decided<Q::Key>| {
                let changed = match row.settled {
                    Settled::Deleted => Q::remove(connection, &row.key, row.fence)?,
                    _ => Q::settle_anew(connection, &row.key, row.fence, &row.change)?,
                };
                Ok((changed == 1).then_some(row.settled))
            };
            before.iter().map(settle).collect::<QueryResult<_>>().map(Fate::Committed)
        }
        Some(Marked { fence, pending: true, .. }) if fence == mark.fence => Ok(Fate::RolledBack),
        _ => Ok(Fate::Unknown),
    })
}

/// What is written on a row of which nobody knows whether its effects are committed: it is reported, and not run again by
/// itself.
pub(crate) fn in_doubt(rules: &Rules, fence: Fence) -> Rest {
    let (settled, change) = rules.after_failure(tries_before(fence) + 1, &Failure::fatal(Misfortune::InDoubt));
    Rest::Record(settled, change)
}
