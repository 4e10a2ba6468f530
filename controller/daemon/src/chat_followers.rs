//! Clients that follow chats. The list is in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_contract::RunId;
use tokio::time::Instant;

/// Shortest time for the client of a run that has just been created, or adopted.
pub(crate) const FIRST_TIME: Duration = Duration::from_secs(10);

/// The clients of all chats.
#[derive(Debug, Default)]
pub(crate) struct ChatFollowers {
    chats: Mutex<HashMap<RunId, Presence>>,
}

#[derive(Debug)]
struct Presence {
    clients: usize,
    /// Time from which a chat without clients is cancelled.
    cancel_at: Instant,
}

/// A client of a chat; dropping it hangs up.
#[derive(Debug)]
pub(crate) struct ChatPresence {
    followers: Arc<ChatFollowers>,
    run_id: RunId,
    /// Time in which the client may reconnect.
    resume: Duration,
}

impl ChatFollowers {
    /// Counts a client of a chat, which may reconnect within this time.
    pub(crate) fn follow(self: &Arc<Self>, run_id: &RunId, resume: Duration) -> ChatPresence {
        let mut chats = self.lock();
        let presence = chats.entry(run_id.clone()).or_insert(Presence { clients: 0, cancel_at: Instant::now() });
        presence.clients += 1;
        ChatPresence { followers: Arc::clone(self), run_id: run_id.clone(), resume }
    }

    /// Returns the live chats that had no follower for too long, and forgets chats that have ended.
    pub(crate) fn left(&self, live: &[RunId], first_time: Duration) -> Vec<RunId> {
        let now = Instant::now();
        let mut chats = self.lock();
        chats.retain(|run_id, presence| presence.clients > 0 || live.contains(run_id));
        let mut left = Vec::new();
        for run_id in live {
            let new = || Presence { clients: 0, cancel_at: now + first_time };
            let presence = chats.entry(run_id.clone()).or_insert_with(new);
            if presence.clients == 0 && now >= presence.cancel_at {
                left.push(run_id.clone());
                // Its end takes a moment; it is checked again only if it does not end.
                presence.cancel_at = now + FIRST_TIME;
            }
        }
        left
    }

    /// Ends the waiting time of a chat whose clients have left: a client has begun something else. The client of a chat
    /// that was just created is not known yet.
    pub(crate) fn expect_none(&self, run_id: &RunId) {
        if let Some(presence) = self.lock().get_mut(run_id).filter(|presence| presence.clients == 0) {
            presence.cancel_at = presence.cancel_at.min(Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Presence>> {
        self.chats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChatPresence {
    fn drop(&mut self) {
        let mut chats = self.followers.lock();
        if let Some(presence) = chats.get_mut(&self.run_id) {
            presence.clients -= 1;
            presence.cancel_at = Instant::now() + self.resume;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_chat_waits_no_longer_for_no_client() {
        let followers = Arc::new(ChatFollowers::default());
        let run: RunId = "r_1".parse().expect("an id");
        let minute = Duration::from_secs(60);

        let client = followers.follow(&run, minute);
        followers.expect_none(&run);
        assert_eq!(followers.left(std::slice::from_ref(&run), minute), [], "it has a client");
        drop(client);
        assert_eq!(followers.left(std::slice::from_ref(&run), minute), [], "it may come back");
        followers.expect_none(&run);
        assert_eq!(followers.left(std::slice::from_ref(&run), minute), [run]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_chat_without_clients_is_left_after_its_time() {
        let followers = Arc::new(ChatFollowers::default());
        let (one, other): (RunId, RunId) = ("r_1".parse().expect("an id"), "r_2".parse().expect("an id"));
        let live = [one.clone(), other.clone()];
        let first_time = Duration::from_secs(10);

        let (first, second) = (followers.follow(&one, Duration::ZERO), followers.follow(&one, Duration::from_secs(5)));
        assert_eq!(followers.left(&live, first_time), []);
        drop(first);
        assert_eq!(followers.left(&live, first_time), [], "one client is left");
        drop(second);
        assert_eq!(followers.left(&live, first_time), [], "it may come back");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(followers.left(&live, first_time), std::slice::from_ref(&one));
        assert_eq!(followers.left(&live, first_time), [], "once");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(followers.left(&live, first_time), [other], "an adopted one, which nobody came back to");
        assert_eq!(followers.left(&[], first_time), []);
        assert!(followers.lock().is_empty(), "what has ended is forgotten");
    }
}
