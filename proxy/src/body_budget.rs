//! The memory that request bodies may take, over all open calls of the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of body bytes in memory at once, over all calls.
#[derive(Debug)]
pub struct BodyBudget {
    max: u64,
    used: AtomicU64,
}

/// Body bytes in memory, counted against the budget until this value is dropped.
#[derive(Debug)]
pub struct HeldBytes {
    budget: Arc<BodyBudget>,
    bytes: u64,
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request bodies in memory have reached their limit")]
pub struct BudgetFull;

impl BodyBudget {
    /// Creates a budget of `max` bytes.
    #[must_use]
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicU64::new(0) })
    }

    /// Starts the count of one body, at no bytes.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> HeldBytes {
        HeldBytes { budget: Arc::clone(self), bytes: 0 }
    }
}

impl HeldBytes {
    /// Counts `by` more bytes.
    ///
    /// # Errors
    /// [`BudgetFull`], if all bodies together are now over the budget. The bytes are counted either way.
    pub fn grow(&mut self, by: u64) -> Result<(), BudgetFull> {
        let used = self.budget.used.fetch_add(by, Ordering::Relaxed) + by;
        self.bytes += by;
        if used <= self.budget.max { Ok(()) } else { Err(BudgetFull) }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_body_frees_its_bytes() {
        let budget = BodyBudget::new(10);
        let mut one = budget.hold();
        one.grow(8).expect("fits");
        assert_eq!(budget.hold().grow(3), Err(BudgetFull));
        drop(one);
        assert_eq!(budget.hold().grow(10), Ok(()));
    }
}
