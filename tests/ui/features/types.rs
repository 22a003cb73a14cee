//! Types whose feature is off.

use queueable::{Async, AsyncMysqlSession, AsyncPgSession};

fn main() {}
