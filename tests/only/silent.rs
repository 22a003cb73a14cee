//! A server that accepts connections and never answers.

use std::future::ready;
use std::net::TcpListener;

use queueable::{Poller, Queueable};
use tokio::runtime::Builder;

use crate::db::{Conn, NAME};
use crate::suite::bank::{Payment, book};

#[test]
fn a_stop_is_heard_while_the_poller_waits_for_its_first_connection() {
    // The system accepts for it.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{NAME}://nobody@{}/none", server.local_addr().unwrap());
    let poller: Poller<Conn> = Payment::poller(&url, book);
    let runtime = Builder::new_current_thread().build().unwrap();
    let shutdown = runtime.block_on(poller.run_until(ready(()))).unwrap();
    assert_eq!((shutdown.tally.succeeded, shutdown.rolled_back), (0, 0));
}
