//! Ids of the objects that a provider stores for this run: responses and conversations.
//!
//! Pure. All runs under one provider key share its store, so an id is good only in the run that received it in a
//! response. Ids are kept as digests, whole and in the bytes that the agent saw: a prefix or another spelling is
//! another id.

use std::collections::{HashMap, VecDeque};

use sha2::{Digest as _, Sha256};

use crate::policy::is_id;

/// Maximum number of ids of one run; the oldest is forgotten first. They take less than 512 KB.
pub const IDS_MAX: usize = 4096;

type Digest = [u8; 16];

/// Ids that a run has received, each with the tokens of its object.
#[derive(Debug, Default)]
pub struct KnownIds {
    tokens: HashMap<Digest, u64>,
    order: VecDeque<Digest>,
}

impl KnownIds {
    /// Adds the id of an object, with the tokens of its context: a call that continues from the object is billed for
    /// them again. Text that could not be in a path is not an id, and is left out.
    pub fn add(&mut self, id: &str, tokens: u64) {
        if !is_id(id) {
            return;
        }
        let digest = digest(id);
        if self.tokens.insert(digest, tokens).is_some() {
            return;
        }
        self.order.push_back(digest);
        if self.order.len() > IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.tokens.remove(&oldest);
        }
    }

    /// Returns the tokens of the object's context; `None` for an id that this run has not received, or received too
    /// long ago.
    #[must_use]
    pub fn tokens(&self, id: &str) -> Option<u64> {
        self.tokens.get(&digest(id)).copied()
    }
}

fn digest(id: &str) -> Digest {
    let mut digest = Digest::default();
    digest.copy_from_slice(&Sha256::digest(id)[..16]);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_whole_or_not_at_all() {
        let mut ids = KnownIds::default();
        ids.add("resp_bGl0ZWxsbQ==", 7);
        assert_eq!(ids.tokens("resp_bGl0ZWxsbQ=="), Some(7));
        for other in ["", "resp_", "resp_bGl0ZWxsbQ", "resp_bGl0ZWxsbQ=", "RESP_bGl0ZWxsbQ==", "resp_bGl0ZWxsbQ==x"] {
            assert_eq!(ids.tokens(other), None, "{other}");
        }
        ids.add("resp_bGl0ZWxsbQ==", 9);
        assert_eq!((ids.tokens("resp_bGl0ZWxsbQ=="), ids.order.len()), (Some(9), 1));
    }

    #[test]
    fn an_answer_cannot_make_an_id_of_anything() {
        let mut ids = KnownIds::default();
        for id in ["", "..", "a/b", "a%2fb", "a b", "a\u{fffd}", "a?b", "a;b", &"x".repeat(769)] {
            ids.add(id, 1);
            assert_eq!(ids.tokens(id), None, "{id}");
        }
    }

    #[test]
    fn the_oldest_id_is_forgotten_first() {
        let mut ids = KnownIds::default();
        (0..IDS_MAX as u64 + 2).for_each(|n| ids.add(&format!("resp_{n}"), n));
        assert_eq!((ids.tokens("resp_0"), ids.tokens("resp_1"), ids.tokens("resp_2")), (None, None, Some(2)));
        assert_eq!((ids.tokens.len(), ids.order.len()), (IDS_MAX, IDS_MAX));
    }
}
