//! The console of an application with two queues, on the database that the address names.

mod entities;
mod handlers;

use std::env;
use std::iter;

use diesel::{MysqlConnection, PgConnection, SqliteConnection};
use queueable::bounds::ConnectionFor;
use queueable_console::{Console, Database, Replayable, TheDatabase};

use self::entities::{Invoice, Letter, Payment};

fn main() -> queueable_console::Result {
    let addresses = iter::zip(env::args(), env::args().skip(1));
    let address = addresses.into_iter().find(|(option, _)| option == "--database-url").map(|(_, address)| address);
    match address.or(env::var("DATABASE_URL").ok()).unwrap_or_default() {
        address if address.starts_with("postgres") => console::<PgConnection>().run(),
        address if address.starts_with("mysql") => console::<MysqlConnection>().run(),
        _ => console::<SqliteConnection>().run(),
    }
}

fn console<C>() -> Console<C>
where
    (): TheDatabase<C>,
    C: Database + ConnectionFor<Payment> + ConnectionFor<Invoice> + ConnectionFor<Letter>,
    Payment: Replayable<C>,
    Invoice: Replayable<C>,
    Letter: Replayable<C>,
{
    let console = Console::new()
        .entity::<Payment>()
        .entity_without::<Invoice>([])
        .migrations(|queues| queues.control().pollers().minutes().audit());
    let console = match env::var_os("HANDLERS") {
        Some(_) => handlers::add(console.entity::<Letter>()),
        None => console,
    };
    match env::var_os("READ_ONLY") {
        Some(_) => console.read_only(),
        None => console,
    }
}
