//! What is happening now, for somebody at a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use sluice_contract::text::truncate;
use sluice_state::run::{RunEvent, Step};

/// Where progress goes: lines on stderr, or nowhere.
#[derive(Debug)]
pub struct Progress {
    since: Option<Instant>,
}

impl Progress {
    /// Lines, where stderr is a terminal.
    #[must_use]
    pub fn on_terminal() -> Self {
        Self { since: std::io::stderr().is_terminal().then(Instant::now) }
    }

    /// Nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self { since: None }
    }

    /// Says something now.
    pub fn say(&self, text: &str) {
        if let Some(since) = self.since {
            let _ = writeln!(std::io::stderr(), "{:7.2} s  {}", since.elapsed().as_secs_f64(), truncate(text));
        }
    }

    /// Says what came of some steps.
    pub fn performed(&self, events: &[RunEvent], took: Duration) {
        for event in events {
            match event {
                RunEvent::Done(step) => {
                    if let Some(text) = done(*step) {
                        self.say(&format!("{text} ({} ms)", took.as_millis()));
                    }
                }
                RunEvent::Failed(failure) => {
                    self.say(&format!("cannot {}: {}", failure.step.as_str(), failure.message));
                }
                _ => {}
            }
        }
    }
}

fn done(step: Step) -> Option<&'static str> {
    match step {
        Step::StartSidecar => Some("sidecar ready"),
        Step::CreateContainer => Some("sandbox created"),
        Step::StartContainer => Some("program started"),
        Step::StopContainer => Some("program stopped"),
        Step::DrainSidecar => Some("sidecar ended, audit file sealed"),
        Step::RemoveContainer => Some("sandbox removed"),
        Step::Prepare | Step::Tally | Step::RemoveDirectories | Step::Close => None,
    }
}
