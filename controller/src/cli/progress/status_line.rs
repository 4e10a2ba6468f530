//! Status line on the terminal: the usage of a run so far, and the thing that it waits for.
//!
//! The line is rewritten every second. A terminal that does not support that gets a new line at intervals.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_state::ledger::usd;
use sluice_state::live_usage::{LiveUsage, LiveUsageReader};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{RunActivity, TerminalProgress, cleared, styled};

/// Interval of a line that is rewritten.
const REWRITE_EVERY: Duration = Duration::from_secs(1);
/// Interval of lines on a terminal that cannot rewrite them.
const WRITE_EVERY: Duration = Duration::from_secs(30);
/// Width of a terminal that does not report its own.
const WIDTH: usize = 80;

/// The status line of a run; dropping it removes the line.
#[derive(Debug)]
pub(in crate::cli) struct StatusLine {
    progress: Arc<TerminalProgress>,
    writer: JoinHandle<()>,
}

impl StatusLine {
    /// Starts to show the use of the run with this audit file.
    pub(in crate::cli) fn start(progress: &Arc<TerminalProgress>, audit: PathBuf) -> Self {
        let is_rewritten = std::env::var_os("TERM").is_some_and(|name| name != "dumb");
        let writer = tokio::spawn(write(Arc::clone(progress), audit, is_rewritten));
        Self { progress: Arc::clone(progress), writer }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.writer.abort();
        let mut state = self.progress.state();
        let _ = write!(io::stderr(), "{}", cleared(&mut state));
    }
}

async fn write(progress: Arc<TerminalProgress>, audit: PathBuf, is_rewritten: bool) {
    let every = if is_rewritten { REWRITE_EVERY } else { WRITE_EVERY };
    let mut look = interval_at(Instant::now() + every, every);
    look.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut reader = LiveUsageReader::default();
    loop {
        look.tick().await;
        // A file that cannot be read is reported at the end of the run.
        let Ok(usage) = reader.read_new(&audit) else { continue };
        if is_rewritten {
            progress.rewrite(usage);
        } else {
            let activity = progress.state().activity;
            progress.write(&status(usage, activity));
        }
    }
}

impl TerminalProgress {
    fn rewrite(&self, usage: &LiveUsage) {
        let mut state = self.state();
        let text = self.timed(&status(usage, state.activity));
        let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        // Some terminals begin a new line after a character in the last column.
        let width = if columns == 0 { WIDTH } else { columns } - 1;
        let text: String = text.chars().take(width).collect();
        let _ = write!(io::stderr(), "{}{}", cleared(&mut state), styled(&text));
        let _ = io::stderr().flush();
        state.status = text.chars().count();
    }
}

fn status(usage: &LiveUsage, activity: RunActivity) -> String {
    let LiveUsage { calls, open_calls, refused, usage: tokens, nano_usd, unknown_costs } = usage;
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let mut text = format!("{calls} call{}", plural(*calls));
    if *refused > 0 {
        text += &format!(", {refused} refused");
    }
    if tokens.all() > 0 {
        text += &format!(", {} tokens", tokens.all());
    }
    if let Some(nanos) = nano_usd {
        text += &format!(", ${}", usd(*nanos));
    }
    if *unknown_costs > 0 {
        text += &format!(", {unknown_costs} of unknown cost");
    }
    let waits = match (activity, open_calls) {
        (RunActivity::Starting, _) => "starting".to_owned(),
        (RunActivity::Stopping, _) => "stopping".to_owned(),
        (RunActivity::Running, 0) => "the program works".to_owned(),
        (RunActivity::Running, 1) => "waiting for the model".to_owned(),
        (RunActivity::Running, open) => format!("waiting for {open} answers of models"),
    };
    format!("{text}; {waits}")
}

#[cfg(test)]
mod tests {
    use sluice_contract::record::Usage;

    use super::*;

    #[test]
    fn the_status_says_use_and_wait() {
        let usage = LiveUsage {
            calls: 3,
            open_calls: 1,
            refused: 2,
            usage: Usage { input: Some(10), output: Some(5), total: Some(15), ..Usage::default() },
            nano_usd: Some(1_500_000),
            unknown_costs: 1,
        };
        for (usage, activity, expected) in [
            (LiveUsage::default(), RunActivity::Starting, "0 calls; starting"),
            (LiveUsage { calls: 1, ..LiveUsage::default() }, RunActivity::Running, "1 call; the program works"),
            (
                usage.clone(),
                RunActivity::Running,
                "3 calls, 2 refused, 15 tokens, $0.0015, 1 of unknown cost; waiting for the model",
            ),
            (
                LiveUsage { open_calls: 2, ..LiveUsage::default() },
                RunActivity::Running,
                "0 calls; waiting for 2 answers of models",
            ),
            (LiveUsage::default(), RunActivity::Stopping, "0 calls; stopping"),
        ] {
            assert_eq!(status(&usage, activity), expected);
        }
    }
}
