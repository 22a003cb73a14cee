//! What was read a moment ago, for all who look at the same thing.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::future::Cache;

use super::trouble::{Told, Trouble};

/// How many answers are kept at most.
const MOST: u64 = 200;

/// An answer that took long is kept so many times as long: then it takes a tenth of one connection's time, however many people look.
const REST: u32 = 10;

/// The longest time for which an answer is kept because it took long.
const LONGEST: Duration = Duration::from_secs(30);

/// What is kept for so long is not forgotten when somebody changes something.
const LASTS: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Kept {
    /// What was read, or that it takes too long.
    value: Result<Arc<dyn Any + Send + Sync>, Trouble>,
    fresh: Duration,
}

struct FreshFor;

impl Expiry<String, Kept> for FreshFor {
    fn expire_after_create(&self, _: &String, kept: &Kept, _: Instant) -> Option<Duration> {
        Some(kept.fresh)
    }
}

pub(super) struct Answers(Cache<String, Kept>);

impl Answers {
    pub(super) fn new() -> Self {
        Answers(Cache::builder().max_capacity(MOST).expire_after(FreshFor).support_invalidation_closures().build())
    }

    /// Returns what was read a moment ago, or reads it. Who comes while it is read waits for the same answer.
    pub(super) async fn or_read<T: Send + Sync + 'static>(
        &self,
        what: String,
        fresh: Duration,
        read: impl Future<Output = Told<T>>,
    ) -> Told<Arc<T>> {
        let begun = Instant::now();
        let read = async {
            let value = match read.await {
                Ok(value) => Ok(Arc::new(value) as Arc<dyn Any + Send + Sync>),
                // The next who asks would only make the database work as long again.
                Err(Trouble::Slow) => Err(Trouble::Slow),
                Err(trouble) => return Err(trouble),
            };
            Ok::<_, Trouble>(Kept { value, fresh: fresh.max((begun.elapsed() * REST).min(LONGEST)) })
        };
        let kept = self.0.try_get_with(what, read).await.map_err(|trouble: Arc<Trouble>| (*trouble).clone())?;
        kept.value?.downcast().map_err(|_| Trouble::Refused("two answers have one name".to_owned()))
    }

    /// Forgets what was read, because somebody has changed something; but for what takes long, such as an examination.
    pub(super) fn forget(&self) {
        let is_quick = |_: &String, kept: &Kept| kept.fresh < LASTS;
        // It is refused only by a cache that was not built for it.
        let _ = self.0.invalidate_entries_if(is_quick);
    }
}
