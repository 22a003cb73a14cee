//! A column that is read without an error, whatever its content: the error is kept for the row.

use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::{Binary, Text};

use crate::error::panic_text;

/// A part of a row that may fail to decode without failing the row.
pub struct Captured<T>(pub(crate) Result<T, Box<dyn std::error::Error + Send + Sync>>);

impl<T> Captured<T> {
    /// Returns the decoded value.
    pub(crate) fn ok(self) -> Option<T> {
        self.0.ok()
    }

    /// Returns a reference to the decoded value.
    pub(crate) fn read(&self) -> Option<&T> {
        self.0.as_ref().ok()
    }

    /// Decodes. The user's conversions run here, and a panic in them is an error too.
    pub(crate) fn new(decode: impl FnOnce() -> deserialize::Result<T>) -> Self {
        Captured(
            catch_unwind(AssertUnwindSafe(decode))
                .unwrap_or_else(|panic| Err(format!("its decoding panicked: {}", panic_text(panic)).into())),
        )
    }
}

/// A key that may fail to decode without failing its row.
pub(crate) type CapturedKey<K> = Captured<(K,)>;

/// A text as the database has it. If it is not UTF-8, which only SQLite stores, the invalid parts are replaced.
#[derive(Debug, Clone, PartialEq, Eq, FromSqlRow)]
pub struct DatabaseText(pub(crate) String);

impl<DB: Backend> FromSql<Text, DB> for DatabaseText
where
    Vec<u8>: FromSql<Binary, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        let bytes = <Vec<u8> as FromSql<Binary, DB>>::from_sql(bytes)?;
        Ok(Self(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// Loads a [`Captured`] part from one backend's rows.
///
/// One impl per backend, because one for all would overlap with an impl of `Queryable` that another crate might write
/// for a backend of its own.
macro_rules! captured_on {
    ($backend:ty) => {
        const _: () = {
            use diesel::deserialize::{FromSqlRow, Result, StaticallySizedRow};
            use diesel::row::Row;
            use $crate::backend::captured::Captured;

            impl<T: FromSqlRow<(A, B, C, D), $backend>, A, B, C, D> FromSqlRow<(A, B, C, D), $backend> for Captured<T> {
                fn build_from_row<'a>(row: &impl Row<'a, $backend>) -> Result<Self> {
                    Ok(Self::new(|| T::build_from_row(row)))
                }
            }

            impl<T: FromSqlRow<(A,), $backend>, A> FromSqlRow<(A,), $backend> for Captured<T> {
                fn build_from_row<'a>(row: &impl Row<'a, $backend>) -> Result<Self> {
                    Ok(Self::new(|| T::build_from_row(row)))
                }
            }

            impl<T: StaticallySizedRow<(A,), $backend>, A> StaticallySizedRow<(A,), $backend> for Captured<T> {
                const FIELD_COUNT: usize = T::FIELD_COUNT;
            }
        };
    };
}

pub(crate) use captured_on;
