//! The connection of a group, before whose first use something may have to be done.

/// Gives a group its connection.
pub(crate) trait GroupConnection<C> {
    /// Returns the connection for the handler's use.
    fn to_use(&mut self) -> &mut C;

    /// Returns the connection to look at it: the handler has not used it by that.
    fn to_look_at(&mut self) -> &mut C;
}

/// A connection, and what runs once before its first use.
pub(crate) struct BeforeUse<'a, C> {
    connection: &'a mut C,
    before: Option<&'a mut (dyn FnMut(&mut C) + Send)>,
}

impl<'a, C> BeforeUse<'a, C> {
    pub(crate) fn new(connection: &'a mut C, before: &'a mut (dyn FnMut(&mut C) + Send)) -> Self {
        BeforeUse { connection, before: Some(before) }
    }
}

impl<C> GroupConnection<C> for BeforeUse<'_, C> {
    fn to_use(&mut self) -> &mut C {
        if let Some(before) = self.before.take() {
            before(self.connection);
        }
        self.connection
    }

    fn to_look_at(&mut self) -> &mut C {
        self.connection
    }
}
