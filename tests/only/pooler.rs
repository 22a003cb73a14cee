//! A pooler between the application and its server.

use diesel::connection::CacheSize;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::ConnectionManager;
use diesel::sql_types::Text;
use queueable::{Error, Poller, Queueable, Status};

use crate::db::{Conn, PrivateServer, settings, start_pooler};
use crate::suite::bank::{Bank, NewPayment, Payment, book, payments};

/// The address of the bank's database at a pooler.
fn through(pooler: &PrivateServer, bank: &Bank) -> String {
    let name = bank.database.url().rsplit('/').next().expect("a URL");
    pooler.url().replace("/postgres", &format!("/{name}"))
}

fn poller(url: &str) -> Poller<Conn> {
    Poller::with_own_connections(ConnectionManager::new(url)).serve::<Payment>(book).workers(2)
}

#[test]
fn a_poller_refuses_sessions_that_a_pooler_shares() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    for sessions in [1, 5] {
        let pooler = start_pooler("transaction", sessions);
        let url = through(&pooler, &bank);
        let pool = diesel::r2d2::Pool::builder().max_size(4).build(ConnectionManager::new(&url)).unwrap();
        let pooled = Payment::poller(pool, book).workers(2);
        for poller in [poller(&url), pooled] {
            let error = poller.run_until_idle().expect_err("the sessions are shared");
            let Error::Setting { setting, expected, .. } = &error else { panic!("{error}") };
            assert_eq!(*setting, "the connections");
            assert!(expected.contains("with_own_connections") && expected.contains("pool_mode = session"), "{error}");
        }
    }
    assert!(ids.iter().all(|id| bank.state(*id).try_count == 0 && bank.state(*id).status == Status::NotAttempted));
}

#[test]
fn a_poller_works_through_a_pooler_that_shares_nothing() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3]);
    let pooler = start_pooler("session", 8);
    assert_eq!(poller(&through(&pooler, &bank)).run_until_idle().unwrap().succeeded, 3);
    assert_eq!(bank.booked(), ids);
}

#[test]
fn rows_are_enqueued_and_operated_on_through_a_pooler_that_shares_one_session() {
    let bank = Bank::new();
    let pooler = start_pooler("transaction", 1);
    let url = through(&pooler, &bank);
    let connect = || {
        let mut connection = Conn::establish(&url).expect("the pooler answers");
        // A PgBouncer before 1.21 does not know prepared statements by name.
        connection.set_prepared_statement_cache_size(CacheSize::Disabled);
        connection
    };
    let found =
        |connection: &mut Conn| diesel::select(sql::<Text>(&settings())).get_result::<String>(connection).unwrap();
    let before = found(&mut connect());
    let (mut one, mut other) = (connect(), connect());
    for round in 1..=5_i64 {
        for connection in [&mut one, &mut other] {
            connection
                .transaction(|connection| {
                    let row = (NewPayment { company_id: round, amount_cents: round }, Payment::due_now());
                    diesel::insert_into(payments::table).values(row).execute(connection)
                })
                .unwrap();
        }
        let of_round = || Payment::queue().filter(payments::company_id.eq(round));
        assert_eq!(of_round().count(&mut one).unwrap(), 2);
        assert_eq!(of_round().stop(&mut other).unwrap(), 2);
        assert_eq!(of_round().restart(&mut one).unwrap(), 2);
        assert!(Payment::explain(&mut other, &1).is_ok());
    }
    assert_eq!(found(&mut connect()), before, "nothing of an operation stays in the shared session");
    drop((one, other));
    assert_eq!(bank.poller(book).run_until_idle().unwrap().succeeded, 10);
}
