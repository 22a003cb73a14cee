//! Mounted once for each connection, so `super` says which. As in the suite, nothing here is generic.

pub(crate) mod application;
mod handler;
mod misconduct;
pub(crate) mod serve;

use super::{Conn, be_patient};
