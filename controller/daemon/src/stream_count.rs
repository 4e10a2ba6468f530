//! The number of open streams, of all principals and of each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts open streams.
#[derive(Debug)]
pub(crate) struct StreamCount {
    max: usize,
    max_per_principal: usize,
    open: Mutex<HashMap<String, usize>>,
}

/// A counted stream; dropping it ends it.
#[derive(Debug)]
pub(crate) struct CountedStream {
    count: Arc<StreamCount>,
    principal: String,
}

impl StreamCount {
    /// Returns a count with these limits.
    #[must_use]
    pub(crate) fn new(max: usize, max_per_principal: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_principal, open: Mutex::default() })
    }

    /// Counts a stream of a principal; `None` if there are too many.
    #[must_use]
    pub(crate) fn admit(self: &Arc<Self>, principal: &str) -> Option<CountedStream> {
        let mut open = self.lock();
        let own = open.get(principal).copied().unwrap_or_default();
        if own >= self.max_per_principal || open.values().sum::<usize>() >= self.max {
            return None;
        }
        open.insert(principal.to_owned(), own + 1);
        Some(CountedStream { count: Arc::clone(self), principal: principal.to_owned() })
    }

    /// Returns the number of streams.
    #[must_use]
    pub(crate) fn open(&self) -> usize {
        self.lock().values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        // Nothing panics while it is held.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        let mut open = self.count.lock();
        if let Some(own) = open.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_principal_and_all_have_a_limit() {
        let count = StreamCount::new(3, 2);
        let first = count.admit("a").expect("the first");
        let _second = count.admit("a").expect("the second");
        assert!(count.admit("a").is_none());
        let _third = count.admit("b").expect("another principal");
        assert!(count.admit("c").is_none());
        drop(first);
        assert!(count.admit("c").is_some());
        assert_eq!(count.lock().len(), 2);
    }
}
