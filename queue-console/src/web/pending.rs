use crate::database::Database;
use std::time::Duration;
pub(super) fn limit_session<C: Database>(_: &mut C, _: Duration, _: Duration) -> Result<(), queueable::Error> {
    Ok(())
}
pub(super) fn is_timeout<C: Database>(_: &queueable::Error) -> bool {
    false
}
