//! A console for the main job's queue: the whole program is one line.
//!
//! ```sh
//! cargo run --example payments                       # makes target/payments.sqlite
//! cargo run --example console -- status
//! cargo run --example console -- serve --allow-changes   # the page: http://127.0.0.1:8080/
//! cargo run --example console -- errors
//! cargo run --example console -- list payments --failed --where 'amount_cents <= 0'
//! cargo run --example console -- retry payments --failed --where 'company_id = 3345' --dry-run
//! ```

use diesel::SqliteConnection;
use queueable_console::Console;

use self::bank::Payment;

#[allow(dead_code, reason = "the console needs the entity, and the job the rest")]
#[path = "payments/bank.rs"]
mod bank;

fn main() -> queueable_console::Result {
    Console::<SqliteConnection>::new().entity::<Payment>().default_database("target/payments.sqlite").run()
}
