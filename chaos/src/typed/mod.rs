//! Mounted once for each connection, so `super` says which. As in the suite, nothing here is generic.

pub(crate) mod application;
pub(crate) mod backoffs;
mod handler;
mod kinds;
mod lanes;
mod misconduct;
mod operator;
mod pick;
pub(crate) mod saver;
pub(crate) mod serve;

use super::{Conn, DIALECT, be_patient, booking};
