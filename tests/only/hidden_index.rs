//! An index that the planner may not use: MySQL calls it invisible, MariaDB ignored.

use diesel::connection::SimpleConnection;
use queue_core::internals::backend::Schema;
use queueable::Error;

use crate::suite::bank::{Bank, Payment, book};
use crate::suite::keyed::erased;

/// A claim names the index, and the server then says that there is none.
#[test]
fn an_index_that_the_planner_may_not_use_is_named_with_its_mend_and_shown_again_by_a_migration() {
    let bank = Bank::new();
    let target = erased::<Payment>().target().unwrap();
    let hide =
        format!("ALTER TABLE payments ALTER INDEX {} /*!80000 INVISIBLE */ /*M!100600 IGNORED */", target.index());
    let mut connection = bank.connect();
    for is_mended_by_hand in [true, false] {
        connection.batch_execute(&hide).unwrap();
        let Err(Error::Unsafe(found)) = bank.poller(book).run_until_idle() else { panic!("it ran") };
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert!(finding.problem.contains("no usable index") && finding.mend.contains(" ALTER INDEX "), "{found:?}");
        match is_mended_by_hand {
            true => connection.batch_execute(&finding.mend).unwrap(),
            false => connection.add_queue(&target).unwrap(),
        }
        bank.enqueue([1]);
        assert_eq!(bank.run(book).succeeded, 1);
    }
}
