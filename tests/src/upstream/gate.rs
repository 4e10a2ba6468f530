//! A point at which a script waits for the test.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::board::SharedState;

/// A gate in a script: the upstream waits at it until the test opens it.
#[derive(Clone)]
pub struct Gate {
    passes: Arc<Semaphore>,
    arrivals: Arc<SharedState<usize>>,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self { passes: Arc::new(Semaphore::new(0)), arrivals: Arc::new(SharedState::new(0)) }
    }

    /// Opens the gate permanently.
    pub fn open(&self) {
        self.passes.close();
    }

    /// Lets one script pass, now or when it arrives.
    pub fn step(&self) {
        self.passes.add_permits(1);
    }

    /// Waits until scripts have arrived at the gate `count` times in total.
    pub async fn reached(&self, count: usize) {
        self.arrivals.until("the upstream to wait at a gate", |seen| (*seen >= count).then_some(())).await;
    }

    pub(crate) async fn pass(&self) {
        self.arrivals.update(|seen| *seen += 1);
        // A closed semaphore is an open gate.
        if let Ok(permit) = self.passes.acquire().await {
            permit.forget();
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.passes.is_closed() { "Gate(open)" } else { "Gate(closed)" })
    }
}
