//! The number of open connections, of a listener and of each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts open connections.
#[derive(Debug)]
pub(crate) struct ConnectionCount {
    max: usize,
    max_per_address: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A counted connection; dropping it ends it.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    count: Arc<ConnectionCount>,
    address: Option<IpAddr>,
}

impl ConnectionCount {
    /// Returns a count with these limits.
    #[must_use]
    pub(crate) fn new(max: usize, max_per_address: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_address, open: Mutex::default() })
    }

    /// Counts a connection; `None` if there are too many. Without an address, only the total counts.
    #[must_use]
    pub(crate) fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Option<CountedConnection> {
        let mut open = self.lock();
        if open.total >= self.max {
            return None;
        }
        let address = address.map(|address| address.to_canonical());
        if let Some(address) = address {
            let of_address = open.by_address.entry(address).or_default();
            if *of_address >= self.max_per_address {
                return None;
            }
            *of_address += 1;
        }
        open.total += 1;
        Some(CountedConnection { count: Arc::clone(self), address })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Nothing panics while it is held.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.count.lock();
        open.total -= 1;
        if let Some(address) = self.address {
            let rest = open.by_address.get(&address).map_or(0, |count| count - 1);
            if rest == 0 {
                open.by_address.remove(&address);
            } else {
                open.by_address.insert(address, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_bounded_in_total_and_per_address() {
        let count = ConnectionCount::new(3, 2);
        let address = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
        let first = count.admit(address("10.0.0.1")).expect("there is room");
        let _second = count.admit(address("::ffff:10.0.0.1")).expect("there is room");
        assert!(count.admit(address("10.0.0.1")).is_none(), "the same address in another form");
        let _third = count.admit(address("10.0.0.2")).expect("there is room");
        assert!(count.admit(None).is_none());
        drop(first);
        drop(count.admit(address("10.0.0.1")).expect("one has ended"));
        assert_eq!(count.lock().by_address.len(), 2, "addresses without connections are forgotten");
    }
}
