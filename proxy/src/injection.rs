//! Messages of the operator that calls carry: the store of the run, and the reading of a body that gets some.
//!
//! What a message is and where it goes: [`crate::conversation`]. A body gets its messages once the policy has admitted
//! it, so that a refused body decides nothing about them; then the policy reads the body with its messages, so that
//! everything after sees the body that is sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::body::Incoming;
use uuid::Uuid;

use crate::body::{BodyPolicy, BodyReader, ParsedBody};
use crate::conversation::{CallInjection, InjectionPlan, MessageStore, scan};
use crate::intake::{self, BodyLimits, BufferedBody};
use crate::interrupts::{self, Interrupts};
use crate::policy::ApiFormat;
use crate::refusal::Refusal;

/// Messages of a run.
#[derive(Debug)]
pub struct Injections {
    /// True if calls are read for their conversation: there are messages, or the agent's own one is not known yet.
    is_reading: AtomicBool,
    store: Mutex<MessageStore>,
}

impl Injections {
    /// Creates the store of a run. Without a control socket no message comes.
    #[must_use]
    pub fn new(has_control: bool) -> Self {
        Self { is_reading: AtomicBool::new(has_control), store: Mutex::default() }
    }

    /// Returns true if a body of this format is read for its conversation.
    #[must_use]
    pub fn reads(&self, format: ApiFormat) -> bool {
        self.is_reading.load(Ordering::Relaxed)
            && matches!(format, ApiFormat::Chat | ApiFormat::Messages | ApiFormat::Responses | ApiFormat::Compact)
    }

    /// Returns the store. After a change, [`Self::update`] is due.
    pub fn lock(&self) -> MutexGuard<'_, MessageStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether bodies have to be read for their conversation.
    pub fn update(&self, store: &MessageStore) {
        self.is_reading.store(store.has_messages() || !store.knows_main(), Ordering::Relaxed);
    }

    /// Notes that a call was sent with its messages.
    pub fn sent(&self, injection: &CallInjection, call: Uuid) {
        self.lock().sent(injection, &call.to_string());
    }

    /// Notes that a call was answered with success.
    pub fn acknowledged(&self, injection: &CallInjection, call: Uuid) {
        self.lock().acknowledged(injection, &call.to_string());
    }

    /// Decides on the messages of a call.
    fn plan(&self, format: ApiFormat, body: &BufferedBody, room: u64, interrupts: &Interrupts) -> InjectionPlan {
        let pieces: Vec<&[u8]> = body.pieces().collect();
        let mut store = self.lock();
        let Some(call) = scan(format, &pieces, &store.anchors()) else {
            store.count_call();
            self.update(&store);
            return InjectionPlan::default();
        };
        let fingerprint = interrupts::fingerprint(body, call.end);
        if interrupts.remembers() && interrupts.knows(fingerprint) {
            // The body is not sent. Its messages go to the next call.
            return InjectionPlan::default();
        }
        let mut plan = store.plan(format, &call, room);
        plan.injection.fingerprint = fingerprint;
        self.update(&store);
        plan
    }

    /// Reads a body to its end, adds the messages of the run, and reads what is sent. Without messages, the call may
    /// still show which conversation is the agent's own.
    ///
    /// # Errors
    /// The refusals of [`intake::read`], for the body with its messages.
    pub async fn read(
        &self,
        body: &mut Incoming,
        format: ApiFormat,
        policy: &BodyPolicy,
        limits: &BodyLimits,
        interrupts: &Interrupts,
    ) -> Result<(ParsedBody, BufferedBody), Refusal> {
        let (mut parsed, mut text) = intake::read(body, format, policy, limits).await?;
        let room = limits.max.saturating_sub(text.len());
        let InjectionPlan { splices, mut injection } = self.plan(format, &text, room, interrupts);
        if !splices.is_empty() {
            injection.added = added(&splices);
            text = text.spliced(splices, limits)?;
            let mut reader = BodyReader::new(format, policy);
            for piece in text.pieces() {
                reader.feed(piece)?;
            }
            parsed = reader.finish()?;
        }
        if !injection.is_empty() {
            parsed.rare.get_or_insert_default().injection = Some(injection);
        }
        Ok((parsed, text))
    }
}

/// Returns the ranges that texts have in the body that they are added to, each at its offset; the offsets are in order.
fn added(splices: &[(u64, String)]) -> Vec<(u64, u64)> {
    let mut before = 0;
    let range = |(at, text): &(u64, String)| {
        let from = at + before;
        before += text.len() as u64;
        (from, from + text.len() as u64)
    };
    splices.iter().map(range).collect()
}
