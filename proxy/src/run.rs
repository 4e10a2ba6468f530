//! The context that all calls of a run share: the policies, the caps, the audit log, the upstream, and the state of
//! the shutdown.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderName;
use sluice_contract::RunId;
use sluice_upstream::Address;
use tokio::task::JoinSet;

use crate::abort::AbortMode;
use crate::audit::Journal;
use crate::body::BodyPolicy;
use crate::caps::Caps;
use crate::deadline::Deadline;
use crate::headers::Injector;
use crate::hold::Holds;
use crate::ids::CallIds;
use crate::injection::Injections;
use crate::intake::BodyLimits;
use crate::interrupts::Interrupts;
use crate::key_refusals::KeyRefusals;
use crate::known_ids::KnownIds;
use crate::policy::Policy;
use crate::prices::PriceTable;
use crate::relay::Relay;
use crate::secret::Secret;
use crate::upstream::Upstream;

/// Context of one run.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are their types")]
pub struct RunContext {
    pub run_id: RunId,
    pub policy: Policy,
    pub body: BodyPolicy,
    pub limits: BodyLimits,
    pub injector: Injector,
    pub pass_response_headers: Vec<HeaderName>,
    pub caps: Arc<Caps>,
    pub deadline: Deadline,
    /// Time that a call waits for its share of a cap.
    pub cap_wait: Duration,
    /// Calls that wait for a person.
    pub holds: Holds,
    pub prices: Option<PriceTable>,
    pub journal: Arc<Journal>,
    pub key: Secret,
    pub address: Address,
    pub upstream: Arc<Upstream>,
    pub relay: Option<Relay>,
    pub abort: AbortMode,
    /// Users that may connect; if empty, every user whom the socket's mode lets in.
    pub peer_uids: Vec<u32>,
    pub call_ids: CallIds,
    /// Objects that the provider stores for this run.
    pub known_ids: Mutex<KnownIds>,
    pub shutdown: ShutdownState,
    /// Messages of the operator for the agent.
    pub injections: Injections,
    /// Interruptions of the calls under way.
    pub interrupts: Interrupts,
    /// Calls for which the upstream refused the key.
    pub key_refusals: KeyRefusals,
    /// Held from the decision on a change by the control socket to its effect.
    pub changing: tokio::sync::Mutex<()>,
}

/// State of the run's shutdown.
#[derive(Debug, Default)]
pub struct ShutdownState {
    draining: AtomicBool,
    drains: Mutex<JoinSet<()>>,
}

impl ShutdownState {
    /// Refuses new calls from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Returns true if new calls are refused.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Runs what goes on after its client has left, such as the reading of a response.
    pub fn spawn_drain(&self, drain: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let mut drains = self.drains.lock().unwrap_or_else(PoisonError::into_inner);
        while drains.try_join_next().is_some() {}
        drains.spawn(drain);
    }

    /// Returns the open drains, so that the caller can wait for them or end them.
    #[must_use]
    pub fn take_drains(&self) -> JoinSet<()> {
        std::mem::take(&mut self.drains.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Maximum time for which a response is read on after its client has left.
pub const DRAIN_TIME: Duration = Duration::from_secs(30);
/// Maximum number of bytes that are then read.
pub const DRAIN_BYTES: u64 = 4 * 1024 * 1024;
