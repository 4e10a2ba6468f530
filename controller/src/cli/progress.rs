//! Progress of a run as lines on a terminal.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_contract::text::{error_chain, truncate};
use sluice_runs::observer::{NoObserver, Observation, Observer};
use sluice_state::run::Step;

use super::style::{Style, Styles};

/// Writes one line per observation to stderr.
#[derive(Debug)]
pub(super) struct TerminalProgress {
    since: Instant,
}

/// Returns an observer that writes lines, if stderr is a terminal.
pub(super) fn on_terminal() -> Arc<dyn Observer> {
    if std::io::stderr().is_terminal() { Arc::new(TerminalProgress { since: Instant::now() }) } else { silent() }
}

/// Returns an observer that writes nothing.
pub(super) fn silent() -> Arc<dyn Observer> {
    Arc::new(NoObserver)
}

impl TerminalProgress {
    fn write(&self, text: &str) {
        let time = format!("{:7.2} s", self.since.elapsed().as_secs_f64());
        let time = Styles::of(&std::io::stderr()).paint(Style::Bold, &time);
        let _ = writeln!(std::io::stderr(), "{time}  {}", truncate(text));
    }
}

impl Observer for TerminalProgress {
    fn observe(&self, observation: Observation<'_>) {
        if let Some(text) = line(observation) {
            self.write(&text);
        }
    }
}

/// Returns the line of an observation; `None` if it has none.
fn line(observation: Observation<'_>) -> Option<String> {
    match observation {
        Observation::StepDone { step, took } => done(step, took),
        Observation::StepFailed { step, error, .. } => {
            Some(format!("cannot {}: {}", step.as_str(), error_chain(error)))
        }
        Observation::Note(text) => Some(text.to_owned()),
        Observation::StepBegun(_) | Observation::Waiting(_) | Observation::Decided(_) => None,
    }
}

fn done(step: Step, took: Duration) -> Option<String> {
    let text = match step {
        Step::StartSidecar => "sidecar ready",
        Step::CreateContainer => "sandbox created",
        Step::StartContainer => "program started",
        Step::StopContainer => "program stopped",
        Step::DrainSidecar => "sidecar ended, audit file sealed",
        Step::RemoveContainer => "sandbox removed",
        Step::Prepare | Step::Tally | Step::RemoveDirectories | Step::Close => return None,
    };
    Some(format!("{text} ({} ms)", took.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_run_have_a_line_each() {
        let took = Duration::from_millis(41);
        for (observation, expected) in [
            (Observation::StepDone { step: Step::StartSidecar, took }, Some("sidecar ready (41 ms)")),
            (Observation::StepDone { step: Step::Prepare, took }, None),
            (Observation::StepBegun(Step::StartSidecar), None),
            (Observation::Waiting(took), None),
            (Observation::Note("run r1.0: cat"), Some("run r1.0: cat")),
        ] {
            assert_eq!(line(observation).as_deref(), expected, "{observation:?}");
        }
    }
}
