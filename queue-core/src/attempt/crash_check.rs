//! What is done with a claimed row before its handler runs.

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::crash_mark as strict;
use super::crash_mark::{Hearing, as_it_was, write};
use super::plan::{DecodedMessage, Plan, Rest};
use super::settlement::tries_before;
use crate::backend::{ErrorClass, QueueConnection};
use crate::crash::{Course, Suspicion};
use crate::row::{Details, ErrorText, Fence, Settled, Status};
use crate::statement::{Change, Next, QueueOn};

/// Weighs what is known of the row's crashes, and acts on it.
pub(crate) fn hear<Q, C>(
    connection: &mut C,
    plan: &Plan<'_, Q, C>,
    key: &Q::Key,
    fence: Fence,
    message: DecodedMessage<Q>,
    details: &Details,
) -> Hearing<Q>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    let recorder = plan.slot.recorder();
    // The one before this has ended.
    drop(recorder.take_mark());
    // A row that cannot be decoded is not handled; it fails.
    let Ok((entity, state)) = message else { return Hearing::Handle(message, ErrorText::Keep) };
    let text = state.last_attempt_error_message.as_deref();
    let heard = match recorder.weigh(plan.key_prefix, key, fence, text) {
        Course::Handle => {
            let text = if Suspicion::of(text).is_some() { as_it_was(text) } else { ErrorText::Keep };
            Hearing::Handle(Ok((entity, state)), text)
        }
        Course::ComeBackAlone => match C::TransactionManager::rollback_transaction(connection) {
            Ok(()) => Hearing::Suspect,
            Err(error) => Hearing::Lost(error),
        },
        Course::Mark(text, accusation) => {
            let change = Change { error: ErrorText::Set(text), ..Change::default() };
            let told = write::<Q, C>(connection, key, fence, &change);
            recorder.written(accusation, told.is_ok());
            unwritten::<Q, C>(told).unwrap_or(Hearing::Suspect)
        }
        Course::SetAside(text, accusation) => {
            let change = Change {
                status: Some(Status::Failed),
                next: Some(Next::Never),
                // The crashed attempts are in the text: nothing of them was recorded.
                try_count: Some(i32::try_from(tries_before(fence)).unwrap_or(i32::MAX)),
                attempted: true,
                error: ErrorText::Set(text),
                ..Change::default()
            };
            tracing::warn!(entity = Q::ENTITY, ?key, "a row has ended its process too often and is set aside");
            let told = write::<Q, C>(connection, key, fence, &change);
            if let Some(accusation) = accusation {
                recorder.written(accusation, told.is_ok());
            }
            match unwritten::<Q, C>(told) {
                None => Hearing::SetAside,
                // The text again in plainer words, or the row is passed over.
                Some(Hearing::Unsettled(_)) => Hearing::Unsettled(Rest::Record(Settled::Failed, Box::new(change))),
                Some(lost) => lost,
            }
        }
        Course::MarkAndHandle(mark) => strict::mark(connection, plan, key, fence, mark, (entity, state, details)),
    };
    if matches!(heard, Hearing::Handle(..)) {
        recorder.take_off(plan.key_prefix, [(key, fence)]);
    }
    heard
}

/// What a claim comes to whose row could not be written. `None`: it could.
fn unwritten<Q, C>(told: QueryResult<()>) -> Option<Hearing<Q>>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    told.err().map(|error| match C::classify(&error) {
        ErrorClass::Other => Hearing::Unsettled(Rest::Leave),
        ErrorClass::Conflict | ErrorClass::ConnectionLost => Hearing::Lost(error),
    })
}
