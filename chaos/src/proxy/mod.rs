//! A proxy between worker processes and a server, which finds each COMMIT: it cuts, stalls and blacks out connections.

mod link;
mod messages;
mod proxy;
mod traffic;

pub(crate) use self::link::Cut;
pub(crate) use self::proxy::Proxy;
pub(crate) use self::traffic::{Counts, Trouble};
