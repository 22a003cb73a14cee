//! A column that is read without an error, whatever its content: the error is kept for the row.

use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel::deserialize::FromSqlRow;

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
    pub(crate) fn new(decode: impl FnOnce() -> diesel::deserialize::Result<T>) -> Self {
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

/// Loads a [`Captured`] part from one backend's rows.
///
/// One impl per backend, because one for all would overlap with an impl of `Queryable` that another crate might write
/// for a backend of its own.
macro_rules! captured_on {
    ($backend:ty) => {
        impl<T, A, B, C, D> diesel::deserialize::FromSqlRow<(A, B, C, D), $backend>
            for $crate::backend::captured::Captured<T>
        where
            T: diesel::deserialize::FromSqlRow<(A, B, C, D), $backend>,
        {
            fn build_from_row<'a>(row: &impl diesel::row::Row<'a, $backend>) -> diesel::deserialize::Result<Self> {
                Ok(Self::new(|| T::build_from_row(row)))
            }
        }

        impl<T, A> diesel::deserialize::FromSqlRow<(A,), $backend> for $crate::backend::captured::Captured<T>
        where
            T: diesel::deserialize::FromSqlRow<(A,), $backend>,
        {
            fn build_from_row<'a>(row: &impl diesel::row::Row<'a, $backend>) -> diesel::deserialize::Result<Self> {
                Ok(Self::new(|| T::build_from_row(row)))
            }
        }

        impl<T, A> diesel::deserialize::StaticallySizedRow<(A,), $backend> for $crate::backend::captured::Captured<T>
        where
            T: diesel::deserialize::StaticallySizedRow<(A,), $backend>,
        {
            const FIELD_COUNT: usize = T::FIELD_COUNT;
        }

        impl diesel::deserialize::FromSql<diesel::sql_types::Text, $backend>
            for $crate::backend::captured::DatabaseText
        {
            fn from_sql(
                bytes: <$backend as diesel::backend::Backend>::RawValue<'_>,
            ) -> diesel::deserialize::Result<Self> {
                let bytes =
                    <Vec<u8> as diesel::deserialize::FromSql<diesel::sql_types::Binary, $backend>>::from_sql(bytes)?;
                Ok(Self(String::from_utf8_lossy(&bytes).into_owned()))
            }
        }
    };
}

pub(crate) use captured_on;
