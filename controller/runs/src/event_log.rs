//! A log of the controller's actions for a run, with one JSON object per line.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::{Map, Value, json};
use sluice_contract::RunKey;
use sluice_contract::text::error_chain;

use crate::observer::{Observation, Observer};

/// Level of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Something happened as planned.
    Info,
    /// Something needs attention.
    Warning,
    /// Something failed.
    Error,
}

/// A log that is written line by line. Lines that cannot be written are lost.
pub struct EventLog {
    sink: Mutex<Box<dyn Write + Send>>,
    run: Option<String>,
}

impl LogLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl EventLog {
    /// Starts a log, for a run or for none.
    #[must_use]
    pub fn to(sink: impl Write + Send + 'static, run: Option<&RunKey>) -> Self {
        Self { sink: Mutex::new(Box::new(sink)), run: run.map(RunKey::to_string) }
    }

    /// Continues the log of a run in a file.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn append(path: &Path, run: &RunKey) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self::to(file, Some(run)))
    }

    /// Writes a line: time, level, event, the run if it belongs to one, then these members.
    pub fn write(&self, level: LogLevel, event: &str, members: Value) {
        let mut line = Map::new();
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        line.insert("ts".into(), time.into());
        line.insert("level".into(), level.as_str().into());
        line.insert("event".into(), event.into());
        line.extend(self.run.iter().map(|run| ("run".to_owned(), run.as_str().into())));
        if let Value::Object(members) = members {
            line.extend(members);
        }
        let text = format!("{}\n", Value::Object(line));
        // One write, so that lines of several processes do not mix.
        let _ = self.sink.lock().unwrap_or_else(PoisonError::into_inner).write_all(text.as_bytes());
    }
}

impl std::fmt::Debug for EventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLog").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Observer for EventLog {
    fn observe(&self, observation: Observation<'_>) {
        use LogLevel::{Error, Info};
        match observation {
            Observation::StepBegun(_) | Observation::Entered { .. } => {}
            Observation::StepDone { step, took } => {
                self.write(Info, "step_done", json!({ "step": step, "took_ms": took.as_millis() }));
            }
            Observation::StepFailed { step, error, took } => {
                let members = json!({ "step": step, "took_ms": took.as_millis(), "message": error_chain(error) });
                self.write(Error, "step_failed", members);
            }
            Observation::Waiting(remaining) => {
                self.write(Info, "program_runs", json!({ "remaining_s": remaining.as_secs() }));
            }
            Observation::Decided(verdict) => self.write(Info, "decided", json!({ "verdict": verdict })),
            Observation::Note(text) => self.write(Info, "note", json!({ "message": text })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use sluice_state::run::RunStep;

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_event_is_one_line_of_json() {
        let lines = Lines::default();
        let log = EventLog::to(lines.clone(), Some(&"r.0".parse().expect("it is a key")));
        log.observe(Observation::Note("a\nb"));
        log.observe(Observation::StepDone { step: RunStep::StartSidecar, took: Duration::from_millis(41) });
        log.write(LogLevel::Warning, "warning", json!({ "message": "low" }));
        let bytes = lines.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let events: Vec<Value> = String::from_utf8_lossy(&bytes)
            .lines()
            .map(|line| serde_json::from_str(line).expect("each line is JSON"))
            .collect();
        let short: Vec<_> = events.iter().map(|event| [&event["event"], &event["level"], &event["run"]]).collect();
        assert_eq!(short, [["note", "info", "r.0"], ["step_done", "info", "r.0"], ["warning", "warning", "r.0"]]);
        assert_eq!((&events[0]["message"], &events[1]["step"]), (&json!("a\nb"), &json!("start_sidecar")));
    }
}
