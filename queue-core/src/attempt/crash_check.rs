//! Checks what is known about a claimed row's crashes before its handler runs.

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::crash_mark::{Checked, NotHandled, as_it_was, mark_and_commit};
use super::plan::{DecodedMessage, Plan, Remainder};
use super::settle_rules::tries_before;
use crate::backend::{ErrorClass, QueueConnection};
use crate::crash::{CrashAction, Suspicion};
use crate::entity::Key;
use crate::event::Watch;
use crate::row::{Details, ErrorText, Fence, RowKey, Settlement, Status};
use crate::statement::{Change, Next};

/// Checks what is known about the row's crashes, and acts on it. A mark makes the row due at another time, and
/// `claimed` follows it.
pub(crate) fn check_crashes<K: Key, C: QueueConnection>(
    connection: &mut C,
    plan: &Plan<'_, K, C>,
    (key, watch): (&RowKey<K>, &Watch),
    claimed: &mut Fence,
    message: DecodedMessage,
    details: &Details,
) -> Result<Checked, NotHandled> {
    let (recorder, fence) = (plan.slot.recorder(), *claimed);
    // The attempt that this mark belonged to has ended.
    drop(recorder.take_mark());
    // A row that cannot be decoded is not handled; it fails.
    let Ok((entity, state)) = message else { return Ok((message, ErrorText::Keep)) };
    let text = state.last_attempt_error_message.as_deref();
    let checked = match recorder.decide(&plan.info.key_prefix, key, fence, text) {
        CrashAction::Handle => {
            let text = if Suspicion::of(text).is_some() { as_it_was(text) } else { ErrorText::Keep };
            Ok((Ok((entity, state)), text))
        }
        CrashAction::ComeBackAlone => match C::TransactionManager::rollback_transaction(connection) {
            Ok(()) => Err(NotHandled::Suspect),
            Err(error) => Err(NotHandled::Lost(error)),
        },
        CrashAction::Mark(text, suspect) => {
            let change = Change { error: ErrorText::Set(text), ..Change::default() };
            let written = plan.write_and_commit(connection, key, fence, &change);
            recorder.crashes.written(suspect, written.is_ok());
            Err(unwritten::<C>(written).unwrap_or(NotHandled::Suspect))
        }
        CrashAction::SetAside(text, suspect) => {
            let change = failed_by_crashes(fence, text);
            let written = plan.write_and_commit(connection, key, fence, &change);
            if written.is_ok() {
                plan.rules.teller.settled(key, Settlement::Failed, &change, watch);
            }
            if let Some(suspect) = suspect {
                recorder.crashes.written(suspect, written.is_ok());
            }
            Err(match unwritten::<C>(written) {
                None => NotHandled::SetAside,
                // The failure is recorded again, in a plainer text, or the row is passed over.
                Some(NotHandled::Unsettled(_)) => {
                    NotHandled::Unsettled(Remainder::Record(Settlement::Failed, Box::new(change)))
                }
                Some(lost) => lost,
            })
        }
        CrashAction::MarkAndHandle(mark) => mark_and_commit(connection, plan, key, claimed, mark, (state, details)),
    };
    if checked.is_ok() {
        recorder.begin(&plan.info.key_prefix, [(key, fence)]);
    }
    checked
}

/// Returns the new state of a row whose handler has ended the process too often.
fn failed_by_crashes(fence: Fence, text: String) -> Change {
    Change {
        status: Some(Status::Failed),
        next: Some(Next::Never),
        // The text counts the crashed attempts, none of which was recorded as a try.
        try_count: Some(i32::try_from(tries_before(fence)).unwrap_or(i32::MAX)),
        attempted: true,
        error: ErrorText::Set(text),
        ..Change::default()
    }
}

/// Returns how a claim ends whose row could not be written. `None`: it was written.
fn unwritten<C: QueueConnection>(written: QueryResult<()>) -> Option<NotHandled> {
    written.err().map(|error| match C::classify(&error) {
        ErrorClass::Other => NotHandled::Unsettled(Remainder::Leave),
        ErrorClass::Conflict | ErrorClass::NoRoom | ErrorClass::ConnectionLost => NotHandled::Lost(error),
    })
}
