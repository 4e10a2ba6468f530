//! Reads the messages of a sidecar that is about to end, for the last time.
//!
//! A program can end a moment after the call that carried a message. The sidecar ends with it, and afterwards the state of
//! the message could not be determined.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::control::{INJECTED_MAX, InjectedMessage};
use sluice_runs::observer::{Observation, Observer, Observers};
use sluice_runs::sidecar_control::SidecarControl;
use sluice_state::run::RunStep;

use crate::context::ApiContext;

/// Time that the run waits for the answers. The sidecar has them in memory, but the machine may be busy.
const WITHIN: Duration = Duration::from_secs(3);
/// Pages of entries that are read.
const PAGES_MAX: usize = 4;

/// Reads the messages of a sidecar before it is ended, and keeps the answer.
#[derive(Debug)]
struct LastLook {
    context: Arc<ApiContext>,
    key: RunKey,
}

/// Adds the last read to an observer of an attempt.
pub(super) fn with_last_look(
    observer: Arc<dyn Observer>,
    context: &Arc<ApiContext>,
    key: &RunKey,
) -> Arc<dyn Observer> {
    let look = LastLook { context: Arc::clone(context), key: key.clone() };
    Arc::new(Observers(vec![observer, Arc::new(look)]))
}

impl Observer for LastLook {
    fn observe(&self, observation: Observation<'_>) {
        if let Observation::StepBegun(RunStep::DrainSidecar) = observation
            && self.context.conversations.has_injected(&self.key)
        {
            let control = SidecarControl::of(&self.context.layout, &self.key);
            let (sender, receiver) = mpsc::channel();
            // A sidecar that does not accept connections blocks this thread, and not the run.
            thread::spawn(move || drop(sender.send(entries(&control))));
            if let Ok(entries) = receiver.recv_timeout(WITHIN) {
                self.context.conversations.keep_last(&self.key, entries);
            }
        }
    }
}

fn entries(control: &SidecarControl) -> Vec<InjectedMessage> {
    let mut all: Vec<InjectedMessage> = Vec::new();
    for _ in 0..PAGES_MAX {
        let after = all.last().map_or(0, |last| last.number);
        // Messages whose state cannot be read keep their recorded state.
        let Ok(page) = control.injected_now(after, WITHIN) else { break };
        let is_last = page.entries.len() < INJECTED_MAX;
        all.extend(page.entries);
        if is_last {
            break;
        }
    }
    all
}
