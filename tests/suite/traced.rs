//! Rows that know the trace context in which they were enqueued, in each mode.

use std::sync::{Mutex, Once};

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::bounds::{HandlerFor, QueueOn};
use queueable::{Lease, Message, Migrations, Outcome, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, NewPayment, payments};
use crate::suite::warnings::keep_warnings;

macro_rules! payments {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue(retry = fixed("1h"), traceparent, timeout = "30s", $($key)*)]
        #[allow(dead_code, reason = "it is decoded, not read")]
        struct $name {
            id: i64,
        }
    )*};
}

payments! {
    Traced();
    TracedGroup(group = 20);
    TracedCall(lease = "60s");
    TracedInOrder(order_by = amount_cents, serial_by = company_id);
}

const CONTEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

static LINKED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has the attempts' links noted. A process has one trace context, and this program's others are never traced.
fn set_trace_context() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        keep_warnings();
        let note = |_: &tracing::Span, context: &str| LINKED.lock().unwrap().push(context.to_owned());
        assert!(queueable::set_trace_context(|| Some(CONTEXT.to_owned()), note));
    });
}

/// Runs three rows: one that is traced, one that is not, and one whose column has something else.
fn run<Q: QueueOn<Conn>>(traced: impl FnOnce(&mut Conn), handler: impl HandlerFor<Q, Conn> + 'static) {
    let bank = Bank::new();
    let connection = &mut bank.connect();
    connection.run_pending_migrations(Migrations::new().entity::<Traced>().entity::<TracedInOrder>()).unwrap();
    bank.enqueue([1, 2, 3]);
    traced(connection);
    let tally = Q::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 4);
}

#[test]
fn attempts_in_each_mode_are_linked_to_the_context_of_their_row_and_to_nothing_else() {
    set_trace_context();
    fn enqueue(connection: &mut Conn) {
        let row = (NewPayment { company_id: 2, amount_cents: 9 }, Traced::due_now(), Traced::traced());
        diesel::insert_into(payments::table).values(row).execute(connection).unwrap();
        let others = [(1, "<script>alert(1)</script>".to_owned()), (2, "0".repeat(180))];
        for (amount, text) in others {
            let row = payments::table.filter(payments::amount_cents.eq(amount));
            diesel::update(row).set(traced_queue::traceparent.eq(text)).execute(connection).unwrap();
        }
    }
    run::<Traced>(enqueue, |_: &Traced, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    run::<TracedGroup>(enqueue, |_: &TracedGroup, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    let call = |_: &TracedCall, _: &Lease| Ok(());
    run::<TracedCall>(enqueue, (call, |_: &TracedCall, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done)));
    run::<TracedInOrder>(enqueue, |_: &TracedInOrder, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    assert_eq!(*LINKED.lock().unwrap(), [CONTEXT; 4]);
}
