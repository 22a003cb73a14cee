//! Queueable as a contestant, in each of its modes.

mod on_async_postgres;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use contestant::{
    Backend, Contestant, Description, Enqueue, Fill, Guarantee, Handler as Does, Kind, Meter, Pace, Running, Skill,
    Work,
};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{self, ConnectionManager, CustomizeConnection, Pool};
use queueable::{
    AsyncCalls, Failure, Group, Handler, HandlerResult, Lease, LeaseHandler, Message, Outcome, Poller, PollerHandle,
};
use tokio::runtime::Runtime;

use crate::service::{Client, IN_FLIGHT, runtime};

use crate::table::{
    self, Fair, Fifth, Fourth, Grouped, Leased, Notified, Optimistic, Ordered, Reported, Second, Serial, Single, Third,
    each_further, ledger,
};

/// A mode of queueable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Transaction,
    /// Transaction mode on PostgreSQL through diesel-async.
    Async,
    Group,
    Optimistic,
    AtOnce,
    Lease,
    LeaseBatch,
    Calls,
    Notify,
    Serial,
    Fair,
    Ordered,
    Reported,
    Counted,
}

/// Queueable in one of its modes on one of its databases.
pub(crate) struct InMode {
    pub(crate) mode: Mode,
    pub(crate) backend: Backend,
}

impl Contestant for InMode {
    fn describe(&self) -> Description {
        let (name, pace, settings) = match self.mode {
            Mode::Transaction => ("queueable", Pace::Single, "transaction mode: a savepoint and a commit per message"),
            Mode::Async => ("queueable-async", Pace::Single, "transaction mode through diesel-async, an async handler"),
            Mode::Group => ("queueable-group", Pace::Group, "group = 50: a savepoint per message"),
            Mode::Optimistic => ("queueable-optimistic", Pace::Group, "group(50, optimistic): a savepoint per group"),
            Mode::AtOnce => ("queueable-at-once", Pace::Group, "group = 50, handle_group: one insert of 50 rows"),
            Mode::Lease => {
                ("queueable-lease", Pace::Single, "lease = 60s: claim and settlement commit apart, call is empty")
            }
            Mode::LeaseBatch => {
                ("queueable-lease-batch", Pace::Single, "lease = 60s, claim_batch(32): one claim for up to 32 messages")
            }
            Mode::Calls => ("queueable-calls", Pace::Single, "lease = 60s, AsyncCalls with in_flight(1000)"),
            Mode::Serial => {
                ("queueable-serial", Pace::Single, "transaction mode, serial_by = company_id: a thousand companies")
            }
            Mode::Fair => {
                ("queueable-fair", Pace::Single, "transaction mode, fair_by = company_id: a thousand companies")
            }
            Mode::Ordered => ("queueable-ordered", Pace::Single, "transaction mode, order_by = amount_cents"),
            Mode::Reported => ("queueable-reports", Pace::Single, "transaction mode, report_index = amount_cents"),
            Mode::Counted => ("queueable-minutes", Pace::Single, "transaction mode, with minutes"),
            Mode::Notify => {
                let settings = "transaction mode, wake = notify: a trigger tells of each row, and nothing else does";
                ("queueable-notify", Pace::Single, settings)
            }
        };
        let mut skills = vec![Skill::Drain, Skill::Nothing, Skill::Finished, Skill::Wide, Skill::Waits, Skill::Scales];
        if self.mode == Mode::Transaction {
            skills.extend([Skill::Enqueue, Skill::Entities]);
        }
        if self.mode == Mode::Notify {
            skills = vec![Skill::Enqueue, Skill::Waits];
        }
        if matches!(self.mode, Mode::Serial | Mode::Fair | Mode::Async | Mode::Counted) {
            skills = vec![Skill::Drain, Skill::Nothing];
        }
        if self.mode == Mode::Ordered {
            skills = vec![Skill::Ordered];
        }
        if self.mode == Mode::Reported {
            skills = vec![Skill::Drain, Skill::Reports];
        }
        if self.mode == Mode::Calls {
            skills = vec![Skill::Calls];
        }
        if matches!(self.mode, Mode::Transaction | Mode::Group) {
            skills.push(Skill::Endures);
        }
        Description {
            name: name.to_owned(),
            kind: Kind::Queueable,
            backends: vec![self.backend],
            guarantee: Guarantee::SameTransaction,
            pace: match self.backend {
                Backend::Postgres | Backend::Mariadb => pace,
                Backend::SqliteFull | Backend::SqliteNormal => Pace::Group,
            },
            skills,
            settings: settings.to_owned(),
        }
    }

    fn prepare(&self, url: &str, entities: usize) -> Result<()> {
        table::create(self.backend, url, entities)?;
        if self.mode == Mode::Notify {
            table::add_notifications(self.backend, url)?;
        }
        if matches!(self.mode, Mode::Serial | Mode::Fair) {
            table::add_companies(self.backend, url)?;
        }
        if self.mode == Mode::Ordered {
            table::add_order(self.backend, url)?;
        }
        if self.mode == Mode::Reported {
            table::add_reports(self.backend, url)?;
        }
        if self.mode == Mode::Counted {
            table::add_minutes(self.backend, url)?;
        }
        Ok(())
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        table::fill(self.backend, url, fill)
    }

    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
        table::enqueue(self.backend, url, enqueue, committed)
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        // For the workers, the scout, and the heartbeat of leases or the thread that writes minutes.
        let size = u32::try_from(work.workers + 2)?;
        let runtime = runtime()?;
        let inside = runtime.enter();
        let handle = match self.backend {
            Backend::Postgres if self.mode == Mode::Async => on_async_postgres::start(pool(url, size)?, work, meter)?,
            Backend::Postgres => on_postgres::start(self.mode, pool(url, size)?, work, meter)?,
            Backend::Mariadb => on_mariadb::start(self.mode, pool(url, size)?, work, meter)?,
            Backend::SqliteFull | Backend::SqliteNormal => {
                let level = if self.backend == Backend::SqliteFull { "FULL" } else { "NORMAL" };
                let pool = Pool::builder()
                    .max_size(size)
                    .connection_customizer(Box::new(Synchronous(level)))
                    .build(ConnectionManager::new(url))?;
                on_sqlite::start(self.mode, pool, work, meter)?
            }
        };
        drop(inside);
        Ok(Box::new(Polling { handle, _runtime: runtime }))
    }
}

fn pool<C: r2d2::R2D2Connection + 'static>(url: &str, size: u32) -> Result<Pool<ConnectionManager<C>>> {
    Ok(Pool::builder().max_size(size).build(ConnectionManager::new(url))?)
}

/// How safely SQLite commits, as an application sets it on its pool.
#[derive(Debug)]
struct Synchronous(&'static str);

impl CustomizeConnection<SqliteConnection, r2d2::Error> for Synchronous {
    fn on_acquire(&self, connection: &mut SqliteConnection) -> Result<(), r2d2::Error> {
        let settings = format!("PRAGMA busy_timeout = 10000; PRAGMA synchronous = {}", self.0);
        connection.batch_execute(&settings).map_err(r2d2::Error::QueryError)
    }
}

struct Polling {
    handle: PollerHandle,
    /// On which async calls run.
    _runtime: Runtime,
}

impl Running for Polling {
    fn stop(self: Box<Self>) -> Result<()> {
        self.handle.shutdown(Duration::from_secs(30));
        Ok(())
    }
}

/// The handlers on a type of connection: what an application writes, once for each database.
macro_rules! handlers {
    ($module:ident, $Connection:ty) => {
        mod $module {
            use super::*;

            type Pooled = Pool<ConnectionManager<$Connection>>;

            pub(super) fn start(mode: Mode, pool: Pooled, work: &Work, meter: &Arc<Meter>) -> Result<PollerHandle> {
                let (meter, does) = (meter.clone(), work.handler);
                let poller = Poller::new(pool).workers(work.workers);
                let poller = match mode {
                    Mode::LeaseBatch => poller.claim_batch(32),
                    Mode::Counted => poller.minutes(),
                    _ => poller,
                };
                let mut poller = match mode {
                    Mode::Transaction | Mode::Async | Mode::Counted => {
                        poller.serve::<Single>(move |payment: &Single, message: &mut Message<'_, $Connection>| {
                            meter.handled(payment.number);
                            book(does, payment.id, payment.amount_cents, message.connection())
                        })
                    }
                    Mode::Group => {
                        poller.serve::<Grouped>(move |payment: &Grouped, message: &mut Message<'_, $Connection>| {
                            meter.handled(payment.number);
                            book(does, payment.id, payment.amount_cents, message.connection())
                        })
                    }
                    Mode::Optimistic => poller.serve::<Optimistic>(
                        move |payment: &Optimistic, message: &mut Message<'_, $Connection>| {
                            meter.handled(payment.number);
                            book(does, payment.id, payment.amount_cents, message.connection())
                        },
                    ),
                    Mode::Notify => {
                        poller.serve::<Notified>(move |payment: &Notified, message: &mut Message<'_, $Connection>| {
                            meter.handled(payment.number);
                            book(does, payment.id, payment.amount_cents, message.connection())
                        })
                    }
                    Mode::Serial => {
                        poller.serve::<Serial>(move |payment: &Serial, message: &mut Message<'_, $Connection>| {
                            meter.handled(payment.number);
                            book(does, payment.id, payment.amount_cents, message.connection())
                        })
                    }
                    Mode::Ordered => {
                        poller.serve::<Ordered>(move |payment: &Ordered, message: &mut Message<'_, $Connection>| {
                            meter.handled(payment.number);
                            book(does, payment.id, payment.amount_cents, message.connection())
                        })
                    }
                    Mode::Reported => {
                        poller.serve::<Reported>(move |payment: &Reported, message: &mut Message<'_, $Connection>| {
                            meter.handled(payment.number);
                            book(does, payment.id, payment.amount_cents, message.connection())
                        })
                    }
                    Mode::Fair => {
                        poller.serve::<Fair>(move |payment: &Fair, message: &mut Message<'_, $Connection>| {
                            meter.handled(payment.number);
                            book(does, payment.id, payment.amount_cents, message.connection())
                        })
                    }
                    Mode::AtOnce => poller.serve::<Grouped>(AtOnce { does, meter }),
                    Mode::Lease | Mode::LeaseBatch => poller.serve::<Leased>((
                        move |payment: &Leased, _: &Lease| -> Result<(), Failure> {
                            meter.handled(payment.number);
                            Ok(())
                        },
                        move |payment: &Leased, (): &(), message: &mut Message<'_, $Connection>| {
                            book(does, payment.id, payment.amount_cents, message.connection())
                        },
                    )),
                    Mode::Calls => poller.serve::<Leased>(calls(work, &meter)?),
                };
                if work.entities > 1 {
                    macro_rules! serve {
                        ($entity:ident) => {
                            poller = poller
                                .serve::<$entity>(|_: &$entity, _: &mut Message<'_, $Connection>| Ok(Outcome::Done));
                        };
                    }
                    each_further!(serve);
                }
                Ok(poller.start()?)
            }

            fn calls(work: &Work, meter: &Arc<Meter>) -> Result<impl LeaseHandler<Leased, $Connection> + 'static> {
                let Does::Call { port } = work.handler else { bail!("it only calls") };
                let (client, meter) = (Arc::new(Client::new(port)), meter.clone());
                let calls = AsyncCalls::of(
                    move |payment: &Leased, _: &Lease| {
                        let client = client.clone();
                        Box::pin(async move { Ok(client.post(payment.number).await?) })
                    },
                    move |payment: &Leased, (): &(), message: &mut Message<'_, $Connection>| {
                        meter.handled(payment.number);
                        book(Does::Ledger, payment.id, payment.amount_cents, message.connection())
                    },
                );
                Ok(calls.in_flight(IN_FLIGHT))
            }

            fn book(does: Does, payment: i64, amount: i64, connection: &mut $Connection) -> HandlerResult {
                if does == Does::Ledger {
                    diesel::insert_into(ledger::table)
                        .values((ledger::payment_id.eq(payment), ledger::amount_cents.eq(amount)))
                        .execute(connection)?;
                }
                Ok(Outcome::Done)
            }

            struct AtOnce {
                does: Does,
                meter: Arc<Meter>,
            }

            impl Handler<Grouped, $Connection> for AtOnce {
                fn handle(&self, payment: &Grouped, message: &mut Message<'_, $Connection>) -> HandlerResult {
                    self.meter.handled(payment.number);
                    book(self.does, payment.id, payment.amount_cents, message.connection())
                }

                fn handle_group(
                    &self,
                    payments: &[Grouped],
                    group: &mut Group<'_, $Connection>,
                ) -> Option<Vec<HandlerResult>> {
                    self.meter.handled_all(payments.iter().map(|payment| payment.number));
                    if self.does == Does::Ledger {
                        let rows: Vec<_> = payments
                            .iter()
                            .map(|payment| {
                                (ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents))
                            })
                            .collect();
                        if let Err(error) = diesel::insert_into(ledger::table).values(&rows).execute(group.connection())
                        {
                            return Some(vec![Err(error.into())]);
                        }
                    }
                    Some(payments.iter().map(|_| Ok(Outcome::Done)).collect())
                }
            }
        }
    };
}

handlers!(on_postgres, PgConnection);
handlers!(on_mariadb, MysqlConnection);
handlers!(on_sqlite, SqliteConnection);
