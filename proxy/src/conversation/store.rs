//! The messages of one run: those that wait, those that stay in the conversation, and what became of them.
//!
//! Pure.

use std::collections::VecDeque;

use sluice_contract::Hash;
use sluice_contract::control::{
    Anchor, INJECTED_BYTES_MAX, INJECTED_MAX, InjectedMessage, InjectedMessages, InjectionStatus, KEPT_BYTES_MAX,
    KEPT_MAX,
};
use sluice_contract::record::{MessageDigest, MessageDigests};

use super::anchor::PlacedAnchor;
use super::facts::Conversation;
use super::message::{CallInjection, InjectionPlan, ListChange, NewMessage};
use super::splice::{Place, splices};
use crate::policy::ApiFormat;

/// Number of entries that are kept for the controller.
const ENTRIES_MAX: usize = 2 * INJECTED_MAX;
/// Number of anchors of one message: it has several if it was placed again before it was acknowledged.
const ANCHORS_MAX: usize = 4;
/// Number of calls after which a run without tools is known to have none.
const CALLS_WITHOUT_TOOLS: u32 = 8;

/// A message, and what became of it.
#[derive(Debug)]
struct Message {
    id: Box<str>,
    content: Box<str>,
    /// Places in the conversation; empty while it waits.
    anchors: Vec<PlacedAnchor>,
    is_acknowledged: bool,
    /// True if an earlier sidecar added it, so that it may have been acknowledged.
    is_restored: bool,
    /// True if the controller knows that a call has it.
    is_reported: bool,
    is_lost: bool,
}

/// The conversation of the agent itself, as opposed to those of its helpers.
#[derive(Debug)]
struct MainConversation {
    first_user: Option<Hash>,
    system: Option<Hash>,
    has_tools: bool,
}

/// Messages of a run.
#[derive(Debug, Default)]
pub struct MessageStore {
    kept: Vec<Message>,
    pending: Vec<Message>,
    main: Option<MainConversation>,
    calls: u32,
    entries: VecDeque<InjectedMessage>,
    numbered: u64,
}

impl MessageStore {
    /// Returns true if a call may have to carry a message.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        !self.kept.is_empty() || !self.pending.is_empty()
    }

    /// Returns true if the conversation of the agent is known, so that no call need be read for that.
    #[must_use]
    pub fn knows_main(&self) -> bool {
        self.calls >= CALLS_WITHOUT_TOOLS || self.main.as_ref().is_some_and(|main| main.has_tools)
    }

    /// Returns the anchors of all messages, in the order in which [`super::scan`] takes them.
    #[must_use]
    pub fn anchors(&self) -> Vec<&PlacedAnchor> {
        self.kept.iter().flat_map(|message| &message.anchors).collect()
    }

    /// Counts a call that was read, whatever its content: an agent must not be able to make the sidecar read every
    /// call.
    pub fn count_call(&mut self) {
        self.calls = self.calls.saturating_add(1);
    }

    /// Returns true for a call of the agent's own conversation: the first one with tools, or, if the run has none, the
    /// first one in which the model has answered before. Calls that make titles or test the account, and calls of
    /// subagents, do not belong to it.
    pub fn observe(&mut self, call: &Conversation) -> bool {
        self.count_call();
        if call.is_structured || call.first_user.is_none() && call.system.is_none() {
            return false;
        }
        if self.main.is_none() && !call.has_tools && !call.has_answer {
            return false;
        }
        let is_same = |known: Option<Hash>, seen: Option<Hash>| known.is_some() && known == seen;
        let is_main = self.main.as_ref().is_none_or(|main| {
            let is_first_with_tools = call.has_tools && !main.has_tools;
            let is_known = is_same(main.first_user, call.first_user)
                || is_same(main.system, call.system)
                || call.held.iter().flatten().any(|(rank, _)| *rank != 1);
            is_first_with_tools || call.has_tools == main.has_tools && is_known
        });
        if is_main {
            let main = self.main.get_or_insert(MainConversation { first_user: None, system: None, has_tools: false });
            main.first_user = call.first_user.or(main.first_user);
            main.system = call.system.or(main.system);
            main.has_tools |= call.has_tools;
        }
        is_main
    }

    /// Decides on the messages of a call. `room` is the number of bytes that its body may grow by; new messages wait
    /// where there is not enough.
    pub fn plan(&mut self, format: ApiFormat, call: &Conversation, room: u64) -> InjectionPlan {
        let mut plan = InjectionPlan::default();
        if !self.observe(call) {
            return plan;
        }
        let mut places: Vec<(Place, Vec<usize>)> = Vec::new();
        let last = call.last.as_ref().filter(|_| format != ApiFormat::Compact && !call.has_open_call);
        let end = last.and_then(|last| Some((&last.anchor, last.place?)));
        let mut again = Vec::new();
        let mut held = call.held.iter();
        for (at, message) in self.kept.iter_mut().enumerate() {
            let of_message = held.by_ref().take(message.anchors.len()).zip(&message.anchors).enumerate();
            let found = of_message
                .filter_map(|(nth, (held, anchor))| {
                    held.filter(|held| counts(*held, anchor, call)).map(|held| (nth, held))
                })
                .min_by_key(|(_, (rank, _))| *rank);
            let is_new = !message.is_acknowledged && !message.is_restored;
            match found {
                // No call with the message was answered, and the agent went on: the message moves to the end.
                Some((nth, (_, place))) if is_new && end.is_some_and(|(_, end)| end != place) => {
                    message.anchors.remove(nth);
                    again.push(at);
                }
                Some((_, (_, place))) => add(&mut places, place, at),
                None if is_new => again.push(at),
                // The provider holds the conversation, and the messages in it.
                None if call.continues.is_some() || message.is_lost => {}
                None => plan.injection.lost.push(message.id.clone()),
            }
        }
        if let Some((anchor, place)) = end {
            let anchor = PlacedAnchor { continues: call.continues, ..anchor.clone() };
            self.place_new(&mut places, place, &anchor, again, room, &mut plan.injection.placed);
        }
        for (place, messages) in &places {
            let texts: Vec<&str> = messages.iter().map(|at| &*self.kept[*at].content).collect();
            plan.splices.extend(splices(format, *place, &texts));
            plan.injection.ids.extend(messages.iter().map(|at| self.kept[*at].id.clone()));
        }
        plan.splices.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Gives messages their place at the end of the conversation: first the messages that were sent without an answer,
    /// then the messages that wait.
    fn place_new(
        &mut self,
        places: &mut Vec<(Place, Vec<usize>)>,
        place: Place,
        anchor: &PlacedAnchor,
        again: Vec<usize>,
        room: u64,
        placed: &mut Vec<Box<str>>,
    ) {
        let planned: usize = places.iter().flat_map(|(_, messages)| messages).map(|at| cost(&self.kept[*at])).sum();
        let (mut bytes, mut left) = (0, room.saturating_sub(planned as u64));
        let mut fits = |message: &Message| {
            let (len, cost) = (message.content.len(), cost(message) as u64);
            let fits = cost <= left && (bytes == 0 || bytes + len <= INJECTED_BYTES_MAX);
            if fits {
                bytes += len;
                left -= cost;
            }
            fits
        };
        for at in again {
            let message = &mut self.kept[at];
            if fits(message) {
                if message.anchors.len() == ANCHORS_MAX {
                    message.anchors.remove(0);
                }
                message.anchors.push(anchor.clone());
                placed.push(message.id.clone());
                add(places, place, at);
            }
        }
        let space = KEPT_MAX.saturating_sub(self.kept.len());
        let count = self.pending.iter().take(space).take_while(|message| fits(message)).count();
        for mut message in self.pending.drain(..count) {
            message.anchors.push(anchor.clone());
            placed.push(message.id.clone());
            add(places, place, self.kept.len());
            self.kept.push(message);
        }
    }

    /// Returns what a new list would change.
    #[must_use]
    pub fn compare(&self, list: &[NewMessage]) -> ListChange {
        let waits = |new: &NewMessage| {
            let same = |old: &&Message| old.id == new.id && old.content == new.content;
            new.anchor.is_none() && self.pending.iter().any(|old| same(&old))
        };
        let is_kept = |id: &str| self.kept.iter().any(|old| &*old.id == id);
        let added = list.iter().filter(|new| !is_kept(&new.id) && !waits(new));
        let stays = |old: &Message| list.iter().any(|new| new.id == old.id && new.content == old.content && waits(new));
        let withdrawn = self.pending.iter().filter(|old| !stays(old));
        ListChange {
            added: digests(added.map(|new| (&*new.id, &*new.content))),
            withdrawn: digests(withdrawn.map(|old| (&*old.id, &*old.content))),
        }
    }

    /// Returns true if there is room for the messages of this list beside those that stay in the conversation.
    #[must_use]
    pub fn has_room(&self, list: &[NewMessage]) -> bool {
        let is_kept = |id: &str| self.kept.iter().any(|old| &*old.id == id);
        let new = list.iter().filter(|new| !is_kept(&new.id)).map(|new| new.content.len());
        let sizes = self.kept.iter().map(|old| old.content.len()).chain(new);
        let (count, bytes) = sizes.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len));
        count <= KEPT_MAX && bytes <= KEPT_BYTES_MAX
    }

    /// Replaces the previous list. A message that the new list withdraws, and that a call already has, is reported as
    /// sent: the call may wait, and still carries the message.
    pub fn replace(&mut self, list: Vec<NewMessage>) {
        self.pending.clear();
        let is_withdrawn = |old: &Message| !old.is_reported && list.iter().all(|new| new.id != old.id);
        let carried: Vec<_> = self.kept.iter().filter(|old| is_withdrawn(old)).map(|old| old.id.clone()).collect();
        carried.iter().for_each(|id| self.report_sent(id, None));
        for new in list {
            if self.kept.iter().any(|old| old.id == new.id) {
                continue;
            }
            let is_restored = new.anchor.is_some();
            let anchors = new.anchor.into_iter().collect();
            let message = Message {
                id: new.id,
                content: new.content,
                anchors,
                is_acknowledged: false,
                is_restored,
                is_reported: is_restored,
                is_lost: false,
            };
            if is_restored { self.kept.push(message) } else { self.pending.push(message) }
        }
    }

    /// Notes that a call was sent with its messages.
    pub fn sent(&mut self, injection: &CallInjection, call_id: &str) {
        // An earlier call that had the other messages may have been refused before it was sent.
        let is_new =
            |old: &&Message| injection.placed.contains(&old.id) || !old.is_reported && injection.ids.contains(&old.id);
        let new: Vec<_> = self.kept.iter().filter(is_new).map(|old| old.id.clone()).collect();
        new.iter().for_each(|id| self.report_sent(id, Some(call_id)));
        for id in &injection.lost {
            let message = self.kept.iter_mut().find(|message| message.id == *id && !message.is_lost);
            let Some(message) = message else { continue };
            message.is_lost = true;
            self.enter(id, InjectionStatus::Lost, Some(call_id), None);
        }
    }

    fn report_sent(&mut self, id: &str, call_id: Option<&str>) {
        let Some(message) = self.kept.iter_mut().find(|message| &*message.id == id) else { return };
        message.is_reported = true;
        let anchor = message.anchors.last().map(PlacedAnchor::report);
        self.enter(id, InjectionStatus::Sent, call_id, anchor);
    }

    /// Notes that a call was answered with success.
    pub fn acknowledged(&mut self, injection: &CallInjection, call_id: &str) {
        for id in &injection.ids {
            let message = self.kept.iter_mut().find(|message| message.id == *id && !message.is_acknowledged);
            let Some(message) = message else { continue };
            message.is_acknowledged = true;
            let anchor = message.anchors.last().map(PlacedAnchor::report);
            self.enter(id, InjectionStatus::Acknowledged, Some(call_id), anchor);
        }
    }

    fn enter(&mut self, id: &str, status: InjectionStatus, call_id: Option<&str>, anchor: Option<Anchor>) {
        self.numbered += 1;
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(InjectedMessage {
            number: self.numbered,
            message_id: id.to_owned(),
            status,
            call_id: call_id.map(str::to_owned),
            anchor,
        });
    }

    /// Returns the entries after a number.
    #[must_use]
    pub fn entries_after(&self, number: u64) -> InjectedMessages {
        let entries = self.entries.iter().filter(|entry| entry.number > number).take(INJECTED_MAX);
        InjectedMessages { entries: entries.cloned().collect() }
    }
}

/// Returns true if a place counts. A request that continues a stored object repeats none of its items, so an item that
/// looks like the anchor is another one; and a stored conversation keeps what is acknowledged.
fn counts((rank, _): (u8, Place), anchor: &PlacedAnchor, call: &Conversation) -> bool {
    if call.continues.is_some() {
        rank == 0 && anchor.continues == call.continues
    } else {
        rank > 0 || anchor.continues.is_none()
    }
}

/// Adds a message to those at a place.
fn add(places: &mut Vec<(Place, Vec<usize>)>, place: Place, message: usize) {
    match places.iter_mut().find(|(known, _)| *known == place) {
        Some((_, messages)) => messages.push(message),
        None => places.push((place, vec![message])),
    }
}

/// Returns an upper bound of the bytes that a message adds to a body.
fn cost(message: &Message) -> usize {
    let escaped: usize =
        message.content.bytes().map(|b| if b < 0x20 { 6 } else { 1 + usize::from(matches!(b, b'"' | b'\\')) }).sum();
    128 + escaped
}

fn digests<'m>(messages: impl Iterator<Item = (&'m str, &'m str)>) -> Option<MessageDigests<'static>> {
    let digest = |(id, content): (&str, &str)| MessageDigest {
        message_id: id.to_owned().into(),
        sha256: Hash::of(content.as_bytes()).to_hex().into(),
    };
    let digests: Vec<_> = messages.map(digest).collect();
    (!digests.is_empty()).then_some(MessageDigests(digests))
}
