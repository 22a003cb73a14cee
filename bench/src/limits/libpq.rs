//! PostgreSQL through its own library, with prepared statements and nothing in between.
//!
//! The only room with `unsafe`: the safe wrappers of libpq want bindings of another version than Diesel's, and only one
//! can be linked.

#![allow(unsafe_code, reason = "a library in C")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use pq_sys::{
    ConnStatusType, ExecStatusType, PGconn, PGresult, PQclear, PQconnectdb, PQconsumeInput, PQerrorMessage, PQexec,
    PQexecPrepared, PQfinish, PQfreemem, PQgetisnull, PQgetvalue, PQnotifies, PQntuples, PQprepare,
    PQresultErrorMessage, PQresultStatus, PQsocket, PQstatus,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A session.
pub(crate) struct Connection(NonNull<PGconn>);

/// The result of a statement.
pub(crate) struct Rows(NonNull<PGresult>);

impl Connection {
    pub(crate) fn open(url: &str) -> Result<Self> {
        let url = CString::new(url)?;
        // SAFETY: the text ends with a zero and outlives the call.
        let connection = NonNull::new(unsafe { PQconnectdb(url.as_ptr()) }).context("no memory for a connection")?;
        let connection = Connection(connection);
        // SAFETY: the pointer is libpq's own and not finished yet.
        match unsafe { PQstatus(connection.0.as_ptr()) } {
            ConnStatusType::CONNECTION_OK => Ok(connection),
            _ => bail!("no connection: {}", connection.error()),
        }
    }

    /// Runs statements without parameters; the answer is the last one's.
    pub(crate) fn run(&mut self, statements: &CStr) -> Result<Rows> {
        // SAFETY: the pointer is not finished yet, the text outlives the call.
        self.rows(unsafe { PQexec(self.0.as_ptr(), statements.as_ptr()) })
    }

    pub(crate) fn prepare(&mut self, name: &CStr, statement: &str) -> Result<()> {
        let statement = CString::new(statement)?;
        // SAFETY: as in `run`; the server finds out the parameters' types.
        let answer = unsafe { PQprepare(self.0.as_ptr(), name.as_ptr(), statement.as_ptr(), 0, ptr::null()) };
        self.rows(answer).map(drop)
    }

    /// Runs a prepared statement. The parameters are text, each ends with a zero.
    pub(crate) fn execute(&mut self, name: &CStr, parameters: &[&CStr]) -> Result<Rows> {
        let values: Vec<*const c_char> = parameters.iter().map(|value| value.as_ptr()).collect();
        let count = c_int::try_from(values.len())?;
        // SAFETY: as in `run`; there are as many values as is said, and text needs neither lengths nor formats.
        let answer = unsafe {
            PQexecPrepared(self.0.as_ptr(), name.as_ptr(), count, values.as_ptr(), ptr::null(), ptr::null(), 0)
        };
        self.rows(answer)
    }

    /// Waits for an announcement on a channel that this session listens to, or until the time is over.
    pub(crate) fn wait_for_notice(&mut self, time: Duration) -> Result<()> {
        // SAFETY: the pointer is not finished yet, and neither is the socket while this function has it.
        let socket = unsafe { BorrowedFd::borrow_raw(PQsocket(self.0.as_ptr())) };
        let time = Timespec::try_from(time)?;
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&time))?;
        // SAFETY: as above; a notice is given back to the library that has made it.
        unsafe {
            PQconsumeInput(self.0.as_ptr());
            loop {
                let notice = PQnotifies(self.0.as_ptr());
                if notice.is_null() {
                    return Ok(());
                }
                PQfreemem(notice.cast());
            }
        }
    }

    fn rows(&self, answer: *mut PGresult) -> Result<Rows> {
        let Some(rows) = NonNull::new(answer).map(Rows) else { bail!("no answer: {}", self.error()) };
        // SAFETY: the pointer is an answer's that is not cleared yet.
        match unsafe { PQresultStatus(rows.0.as_ptr()) } {
            ExecStatusType::PGRES_COMMAND_OK | ExecStatusType::PGRES_TUPLES_OK => Ok(rows),
            // SAFETY: the same; the text lives as long as the answer.
            _ => bail!("{}", unsafe { CStr::from_ptr(PQresultErrorMessage(rows.0.as_ptr())) }.to_string_lossy()),
        }
    }

    fn error(&self) -> String {
        // SAFETY: the pointer is not finished yet, and the text is copied before anything else is done with it.
        unsafe { CStr::from_ptr(PQerrorMessage(self.0.as_ptr())) }.to_string_lossy().into_owned()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: nobody else has the pointer.
        unsafe { PQfinish(self.0.as_ptr()) }
    }
}

impl Rows {
    pub(crate) fn count(&self) -> usize {
        // SAFETY: the pointer is not cleared yet.
        usize::try_from(unsafe { PQntuples(self.0.as_ptr()) }).expect("a number of rows is not negative")
    }

    /// A value as the server wrote it, `None` for NULL.
    pub(crate) fn text(&self, row: usize, column: usize) -> Option<&CStr> {
        let (row, column) = (c_int::try_from(row).ok()?, c_int::try_from(column).ok()?);
        // SAFETY: libpq answers questions for rows and columns that are not there with NULL; the text lives as long as the
        // answer.
        unsafe {
            if PQgetisnull(self.0.as_ptr(), row, column) != 0 {
                return None;
            }
            Some(CStr::from_ptr(PQgetvalue(self.0.as_ptr(), row, column)))
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        // SAFETY: nobody else has the pointer.
        unsafe { PQclear(self.0.as_ptr()) }
    }
}
