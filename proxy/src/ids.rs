//! Random ids of calls.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

const ID: usize = 16;
/// Number of ids that are made at once: with a static glibc, each request to the system is a read of `/dev/urandom`.
const IDS: usize = 32;

/// Source of random UUIDs for calls.
pub struct CallIds(Mutex<IdPool>);

struct IdPool {
    bytes: [u8; ID * IDS],
    left: usize,
}

impl fmt::Debug for CallIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallIds").finish_non_exhaustive()
    }
}

impl Default for CallIds {
    fn default() -> Self {
        Self(Mutex::new(IdPool { bytes: [0; ID * IDS], left: 0 }))
    }
}

impl CallIds {
    /// Returns a new id.
    #[must_use]
    pub fn next(&self) -> Uuid {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.left == 0 {
            getrandom::fill(&mut pool.bytes).expect("the system has random numbers");
            pool.left = IDS;
        }
        pool.left -= 1;
        let (ids, _) = pool.bytes.as_chunks::<ID>();
        uuid::Builder::from_random_bytes(ids[pool.left]).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_id_is_random_and_unique() {
        let ids = CallIds::default();
        let given: HashSet<_> = (0..IDS * 3 + 1).map(|_| ids.next()).collect();
        assert_eq!(given.len(), IDS * 3 + 1);
        assert!(given.iter().all(|id| id.get_version_num() == 4));
    }
}
