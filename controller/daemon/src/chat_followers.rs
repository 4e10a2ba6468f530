//! Clients that follow chats. The list is in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_contract::RunId;
use tokio::time::Instant;

/// Minimum time that a run which has just been created or adopted waits for its client.
pub(crate) const FIRST_TIME: Duration = Duration::from_secs(10);

/// A turn of a chat: a run, and the number of the turn in it, from 1. A client of an earlier turn, which reads slowly, does
/// not follow a later one.
pub(crate) type FollowedTurn = (RunId, u32);

/// The clients of all chats.
#[derive(Debug, Default)]
pub(crate) struct ChatFollowers {
    turns: Mutex<HashMap<FollowedTurn, Presence>>,
}

#[derive(Debug)]
struct Presence {
    clients: usize,
    /// Time from which a turn without clients is ended.
    cancel_at: Instant,
}

/// A client of a chat; dropping it hangs up.
#[derive(Debug)]
pub(crate) struct ChatPresence {
    followers: Arc<ChatFollowers>,
    turn: FollowedTurn,
    /// Time in which the client may reconnect.
    resume: Duration,
}

impl ChatFollowers {
    /// Counts a client of a turn, which may reconnect within this time.
    pub(crate) fn follow(self: &Arc<Self>, turn: FollowedTurn, resume: Duration) -> ChatPresence {
        let mut turns = self.lock();
        let presence = turns.entry(turn.clone()).or_insert(Presence { clients: 0, cancel_at: Instant::now() });
        presence.clients += 1;
        ChatPresence { followers: Arc::clone(self), turn, resume }
    }

    /// Returns the live turns that had no follower for too long, and forgets turns that have ended.
    pub(crate) fn left(&self, live: &[FollowedTurn], first_time: Duration) -> Vec<FollowedTurn> {
        let now = Instant::now();
        let mut turns = self.lock();
        turns.retain(|turn, presence| presence.clients > 0 || live.contains(turn));
        let mut left = Vec::new();
        for turn in live {
            let new = || Presence { clients: 0, cancel_at: now + first_time };
            let presence = turns.entry(turn.clone()).or_insert_with(new);
            if presence.clients == 0 && now >= presence.cancel_at {
                left.push(turn.clone());
                // The end of the turn takes a moment. The turn is returned again only if it has not ended by this time.
                presence.cancel_at = now + FIRST_TIME;
            }
        }
        left
    }

    /// Ends the waiting time of a chat that has no client, because its client has begun something else. A chat that was
    /// just created may not be in the list yet; then it keeps its time.
    pub(crate) fn expect_none(&self, run_id: &RunId) {
        let mut turns = self.lock();
        for (_, presence) in turns.iter_mut().filter(|((of, _), presence)| of == run_id && presence.clients == 0) {
            presence.cancel_at = presence.cancel_at.min(Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FollowedTurn, Presence>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChatPresence {
    fn drop(&mut self) {
        let mut turns = self.followers.lock();
        if let Some(presence) = turns.get_mut(&self.turn) {
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

        let live = [(run.clone(), 1)];
        let client = followers.follow((run.clone(), 1), minute);
        followers.expect_none(&run);
        assert_eq!(followers.left(&live, minute), [], "it has a client");
        drop(client);
        assert_eq!(followers.left(&live, minute), [], "it may come back");
        followers.expect_none(&run);
        assert_eq!(followers.left(&live, minute), live);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_of_an_earlier_turn_follows_no_later_one() {
        let followers = Arc::new(ChatFollowers::default());
        let run: RunId = "r_1".parse().expect("an id");
        let second = [(run.clone(), 2)];

        let stalled = followers.follow((run.clone(), 1), Duration::ZERO);
        let client = followers.follow((run.clone(), 2), Duration::ZERO);
        assert_eq!(followers.left(&second, FIRST_TIME), []);
        drop(client);
        assert_eq!(followers.left(&second, FIRST_TIME), second);
        followers.expect_none(&run);
        drop(stalled);
        assert_eq!(followers.left(&[], FIRST_TIME), []);
        assert!(followers.lock().is_empty(), "what has ended is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_chat_without_clients_is_left_after_its_time() {
        let followers = Arc::new(ChatFollowers::default());
        let (one, other): (RunId, RunId) = ("r_1".parse().expect("an id"), "r_2".parse().expect("an id"));
        let live = [(one.clone(), 1), (other.clone(), 1)];
        let first_time = Duration::from_secs(10);

        let follow = |resume| followers.follow((one.clone(), 1), resume);
        let (first, second) = (follow(Duration::ZERO), follow(Duration::from_secs(5)));
        assert_eq!(followers.left(&live, first_time), []);
        drop(first);
        assert_eq!(followers.left(&live, first_time), [], "one client is left");
        drop(second);
        assert_eq!(followers.left(&live, first_time), [], "it may come back");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(followers.left(&live, first_time), [(one.clone(), 1)]);
        assert_eq!(followers.left(&live, first_time), [], "once");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(
            followers.left(&live, first_time),
            [(other.clone(), 1)],
            "an adopted one, which nobody came back to"
        );
        assert_eq!(followers.left(&[], first_time), []);
        assert!(followers.lock().is_empty(), "what has ended is forgotten");
    }
}
