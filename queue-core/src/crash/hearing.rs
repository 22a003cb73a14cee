//! What is done with a claimed row before its handler runs.

use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use super::suspicion::{Suspicion, earlier};
use super::{Course, strict};
use crate::attempt::{DecodedMessage, Plan, Rest};
use crate::backend::{ErrorClass, QueueConnection};
use crate::details::Details;
use crate::handler::Failure;
use crate::statement::{Change, ErrorText, Fence, Next, QueueOn};
use crate::status::Status;
use crate::verdict::{Settled, tries_before};

/// What came of it.
pub(crate) enum Hearing<Q> {
    /// The row is handled, in the transaction that is open. The text stays if the outcome says nothing else.
    Handle(DecodedMessage<Q>, ErrorText),
    /// The claim is given up. The row is due, and is to be claimed by somebody who is alone.
    Suspect,
    /// The row was set aside.
    SetAside,
    /// The claim was lost.
    Lost(DieselError),
    /// The claim is given up and there is something to do, as after an attempt.
    Unsettled(Rest),
}

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

/// The error text as it was before the row was suspected.
pub(super) fn as_it_was(text: Option<&str>) -> ErrorText {
    earlier(text).map_or(ErrorText::Clear, |text| ErrorText::Set(text.to_owned()))
}

/// Writes on the claimed row and commits.
pub(super) fn write<Q, C>(connection: &mut C, key: &Q::Key, fence: Fence, change: &Change) -> QueryResult<()>
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    if Q::settle(connection, key, fence, change)? != 1 {
        return Err(DieselError::NotFound);
    }
    C::TransactionManager::commit_transaction(connection)
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

/// The rest of an attempt whose row cannot be marked: a failure, or, if that cannot be written either, a row to pass over.
pub(super) fn unmarkable<Q, C>(plan: &Plan<'_, Q, C>, fence: Fence, error: DieselError, details: &Details) -> Rest
where
    C: QueueConnection,
    Q: QueueOn<C>,
{
    #[derive(Debug, thiserror::Error)]
    #[error("the row cannot be marked before it is handled")]
    struct Unmarkable(#[source] DieselError);

    let (settled, change) =
        plan.rules.after_failure(tries_before(fence) + 1, &Failure::retry(Unmarkable(error)), details);
    Rest::Record(settled, Box::new(change))
}
