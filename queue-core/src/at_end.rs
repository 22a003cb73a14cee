//! What is done at the end of a block, also after an error or a panic.

struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Does this when the returned value is dropped.
pub(crate) fn at_end(act: impl FnMut()) -> impl Drop {
    AtEnd(act)
}
