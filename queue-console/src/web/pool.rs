//! The page's own connections: few, with time-outs, so that nobody who looks harms the workers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diesel::r2d2::{ConnectionManager, CustomizeConnection, Error as PoolError, Pool, PooledConnection};
use queue_core::internals::by_name::limit_session;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::trouble::{Told, Trouble};
use crate::database::{Database, check};
use crate::failure::Failure;

/// How many requests ask the database at the same time. A guess: a page needs some milliseconds.
const AT_ONCE: usize = 4;

/// How many requests may be stuck on a connection that is silent. Their places go to others.
const STUCK: u32 = 8;

/// How long a statement takes at most, and how long a request waits in all. Other consoles have from 2 to 60 s.
const STATEMENT: Duration = Duration::from_secs(2);
const REQUEST: Duration = Duration::from_secs(10);

/// The same of what picks the rows of an operation.
const LONG_AT_ONCE: usize = 4;
const LONG_STATEMENT: Duration = Duration::from_secs(60);
const LONG_REQUEST: Duration = Duration::from_secs(90);

/// How long a connection is made, kept without use, and kept at all.
const CONNECT: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(30);
const LIFETIME: Duration = Duration::from_secs(300);

/// How long a request waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Connections<C: Database> {
    address: Result<String, String>,
    pool: Pool<ConnectionManager<C>>,
    turns: Arc<Semaphore>,
    long_turns: Arc<Semaphore>,
}

/// Sets up each new connection.
#[derive(Debug)]
struct SetUp;

impl<C: Database> CustomizeConnection<C, PoolError> for SetUp {
    fn on_acquire(&self, connection: &mut C) -> Result<(), PoolError> {
        connection.set_up().map_err(PoolError::QueryError)?;
        limit_session(connection, STATEMENT, STATEMENT).map_err(|error| match error {
            queueable::Error::Database(error) => PoolError::QueryError(error),
            other => PoolError::QueryError(diesel::result::Error::QueryBuilderError(other.into())),
        })
    }
}

/// Makes a connection whose statements may take their time.
fn patient<C: Database>(address: &str) -> Told<C> {
    let mut connection = crate::database::connect(address, CONNECT)?;
    let limited = limit_session(&mut connection, LONG_STATEMENT, STATEMENT);
    limited.map_err(|error| Trouble::from(error).seen::<C>())?;
    Ok(connection)
}

/// A place among those who ask. The thread that asks holds it, because a browser that goes away ends no statement.
#[derive(Clone)]
struct Turn(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Turn {
    async fn of(turns: &Arc<Semaphore>) -> Told<Self> {
        let turn = timeout(PATIENCE, turns.clone().acquire_owned());
        let turn = turn.await.map_err(|_| Trouble::Busy)?.map_err(|_| Trouble::Busy)?;
        Ok(Turn(Arc::new(Mutex::new(Some(turn)))))
    }

    fn give_up(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl<C: Database> Connections<C> {
    pub(super) fn new(address: Result<String, String>) -> Self {
        let manager = ConnectionManager::new(address.clone().unwrap_or_default());
        let pool = Pool::builder()
            .max_size(u32::try_from(AT_ONCE).unwrap_or(4) + STUCK)
            .min_idle(Some(0))
            .connection_timeout(CONNECT)
            .idle_timeout(Some(IDLE))
            .max_lifetime(Some(LIFETIME))
            .connection_customizer(Box::new(SetUp))
            .error_handler(Box::new(diesel::r2d2::NopErrorHandler))
            .build_unchecked(manager);
        let [turns, long_turns] = [AT_ONCE, LONG_AT_ONCE].map(|turns| Arc::new(Semaphore::new(turns)));
        Connections { address, pool, turns, long_turns }
    }

    /// Makes a connection for an operation: it may take its time.
    pub(super) fn connect(&self) -> Told<C> {
        patient(self.checked()?)
    }

    /// Does something that may take its time, on a connection of its own.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut C) -> Told<T> + Send + 'static,
    ) -> Told<T> {
        let turn = Turn::of(&self.long_turns).await?;
        let address = self.checked()?.to_owned();
        let worked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let mut connection = patient(&address)?;
            work(&mut connection).map_err(Trouble::seen::<C>)
        });
        match timeout(LONG_REQUEST, worked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panicked)) => Err(Trouble::logged(&panicked)),
            Err(_) => Err(Trouble::Slow),
        }
    }

    fn checked(&self) -> Told<&str> {
        let address = self.address.as_deref().map_err(|text| Trouble::Refused(text.to_owned()))?;
        // SQLite would create the file.
        match check::<C>(address) {
            Err(Failure::NoConnection(text)) => Err(Trouble::away(&text)),
            Err(failure) => Err(Trouble::logged(&failure)),
            Ok(()) => Ok(address),
        }
    }

    /// Asks the database something.
    pub(super) async fn ask<T: Send + 'static>(&self, ask: impl FnOnce(&mut C) -> Told<T> + Send + 'static) -> Told<T> {
        self.checked()?;
        let turn = Turn::of(&self.turns).await?;
        let (pool, kept) = (self.pool.clone(), turn.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let _kept = kept;
            let mut connection: PooledConnection<ConnectionManager<C>> =
                pool.get().map_err(|error| Trouble::away(&error))?;
            ask(&mut connection).map_err(Trouble::seen::<C>)
        });
        match timeout(REQUEST, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panicked)) => Err(Trouble::logged(&panicked)),
            Err(_) => {
                // A thread that hangs on a silent network keeps its connection, and gives its turn to others.
                turn.give_up();
                Err(Trouble::Slow)
            }
        }
    }
}
