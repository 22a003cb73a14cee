//! The value of a primary key.

use std::fmt::Debug;

/// A value of a primary key: every type that [`Entity::Key`](super::entity::Entity::Key) can be.
pub trait Key: Clone + Debug + Send + Sync + 'static {}

impl<K: Clone + Debug + Send + Sync + 'static> Key for K {}
