//! Progress of a run as lines on a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sluice_contract::text::{error_chain, truncate};
use sluice_runs::observer::{NoObserver, Observation, Observer};
use sluice_state::run::{RunStep, RunVerdict};

use super::style::{Style, Styles};

mod status_line;

pub(super) use status_line::StatusLine;

/// Writes one line per observation to stderr.
#[derive(Debug)]
pub(super) struct TerminalProgress {
    since: Instant,
    /// Time that a program has to end after the request.
    grace: Duration,
    state: Mutex<ProgressState>,
}

/// Activity of the run, and length of the line on the terminal.
#[derive(Debug, Default)]
struct ProgressState {
    activity: RunActivity,
    /// Number of characters of the status line that is on the terminal.
    status: usize,
}

/// Present activity of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RunActivity {
    /// The resources are created.
    #[default]
    Starting,
    /// The program runs.
    Running,
    /// The resources are removed.
    Stopping,
}

/// Returns whether progress can be seen: stderr is a terminal.
pub(super) fn is_visible() -> bool {
    io::stderr().is_terminal()
}

/// Returns an observer that writes lines, if stderr is a terminal.
pub(super) fn on_terminal() -> Arc<dyn Observer> {
    if is_visible() { Arc::new(TerminalProgress::start(Duration::ZERO)) } else { silent() }
}

/// Returns an observer that writes nothing.
pub(super) fn silent() -> Arc<dyn Observer> {
    Arc::new(NoObserver)
}

impl TerminalProgress {
    /// Starts the progress of a run whose program has this grace period to end.
    pub(super) fn start(grace: Duration) -> Self {
        Self { since: Instant::now(), grace, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timed(&self, text: &str) -> String {
        format!("{:7.2} s  {}", self.since.elapsed().as_secs_f64(), truncate(text))
    }

    fn write(&self, text: &str) {
        let mut state = self.state();
        let line = styled(&self.timed(text));
        let _ = writeln!(io::stderr(), "{}{line}", cleared(&mut state));
    }

    /// Writes the line for a cancelled run. It is left out if a closed pipe was the cause.
    fn write_cancel(&self, signal: i32, before: RunActivity) {
        if signal == Signal::SIGPIPE as i32 {
            return;
        }
        if before == RunActivity::Running && !self.grace.is_zero() {
            let grace = humantime::format_duration(self.grace);
            self.write(&format!("stopping; the program has {grace} to end; press Ctrl-C again to kill it at once"));
        } else {
            self.write("stopping");
        }
    }
}

/// Returns a line with its time in bold, as far as the terminal shows it.
fn styled(line: &str) -> String {
    let Some(at) = line.find(" s  ").map(|at| at + " s".len()) else { return line.to_owned() };
    Styles::of(&io::stderr()).paint(Style::Bold, &line[..at]) + &line[at..]
}

/// Returns the characters that remove the status line from the terminal. No control sequence is needed.
fn cleared(state: &mut ProgressState) -> String {
    match std::mem::take(&mut state.status) {
        0 => String::new(),
        width => format!("\r{}\r", " ".repeat(width)),
    }
}

impl Observer for TerminalProgress {
    fn observe(&self, observation: Observation<'_>) {
        let before = self.state().activity;
        match observation {
            Observation::StepDone { step: RunStep::StartContainer, .. } => self.state().activity = RunActivity::Running,
            Observation::Decided(_) => self.state().activity = RunActivity::Stopping,
            _ => {}
        }
        if let Observation::Decided(RunVerdict::Cancelled(cancel)) = observation {
            self.write_cancel(cancel.signal, before);
        }
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
        Observation::StepBegun(_) | Observation::Entered { .. } | Observation::Waiting(_) | Observation::Decided(_) => {
            None
        }
    }
}

fn done(step: RunStep, took: Duration) -> Option<String> {
    let text = match step {
        RunStep::StartSidecar => "sidecar ready",
        RunStep::CreateContainer => "sandbox created",
        RunStep::StartContainer => "program started",
        RunStep::StopContainer => "program stopped",
        RunStep::DrainSidecar => "sidecar ended, audit file sealed",
        RunStep::RemoveContainer => "sandbox removed",
        RunStep::Prepare | RunStep::Tally | RunStep::RemoveDirectories | RunStep::Close => return None,
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
            (Observation::StepDone { step: RunStep::StartSidecar, took }, Some("sidecar ready (41 ms)")),
            (Observation::StepDone { step: RunStep::Prepare, took }, None),
            (Observation::StepBegun(RunStep::StartSidecar), None),
            (Observation::Waiting(took), None),
            (Observation::Note("run r1.0: cat"), Some("run r1.0: cat")),
        ] {
            assert_eq!(line(observation).as_deref(), expected, "{observation:?}");
        }
    }

    #[test]
    fn a_line_replaces_the_status() {
        let mut state = ProgressState { status: 3, ..ProgressState::default() };
        assert_eq!([cleared(&mut state), cleared(&mut state)], ["\r   \r", ""]);
    }
}
