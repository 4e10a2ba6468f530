//! Ends a run when its workspace takes more than its limit on disk.
//!
//! The workspace is measured at intervals, so a fast program can exceed its limit for some seconds before its end. Only
//! files with a name are measured: a file that was removed and is still open does not count.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_contract::text::error_chain;
use sluice_runs::exchange::ExchangeError;
use sluice_runs::exchange::disk_usage::{DiskUsage, disk_usage};
use sluice_state::sandboxes::{Sandbox, SandboxState, SandboxStep, SandboxVerdict};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::steps::take_step;
use crate::context::ApiContext;
use crate::live_run::LiveRun;

/// Shortest time between two measurements.
const EVERY: Duration = Duration::from_secs(3);
/// Rest after a measurement, as a multiple of the time that it took.
const REST: u32 = 30;
/// Maximum number of measurements that a program evades, minus the measurements that succeed.
const EVASIONS_MAX: u32 = 10;
/// Limits the measurements at the same time. Each may keep a thousand directories open.
static MEASUREMENTS: Semaphore = Semaphore::const_new(8);
/// Failure code.
const CODE: &str = "disk_exceeded";

/// Checks the size of one attempt's workspace until it is dropped.
pub(super) async fn keep(context: &Arc<ApiContext>, run: &Sandbox, live: &Arc<LiveRun>) -> Infallible {
    let workspace = context.layout.run(&run.key).work;
    let (mut logged, mut evasions) = (None, 0_u32);
    loop {
        let mut rest = EVERY;
        if let Some(limit) = live.workspace_max() {
            let (measured, time) = measure(workspace.clone(), limit).await;
            rest = rest.max(time * REST);
            match measured {
                Some(Ok(DiskUsage::Within(_))) | None => {
                    logged = None;
                    evasions = evasions.saturating_sub(1);
                }
                Some(Ok(DiskUsage::Evasive)) if evasions < EVASIONS_MAX => {
                    evasions += 1;
                    rest = EVERY;
                }
                Some(Ok(usage)) => fail(context, run, &message(usage, limit)).await,
                Some(Err(error)) => {
                    let new = fault(&error).filter(|text| logged.as_ref() != Some(text));
                    if let Some(text) = new {
                        (context.log)(&format!("run {}: the size of its workspace is not known: {text}", run.key));
                        logged = Some(text);
                    }
                }
            }
        }
        sleep(rest).await;
    }
}

/// Measures a workspace when it is its turn. Returns the time that it took; no result if the measurement panicked.
pub(super) async fn measure(workspace: PathBuf, limit: u64) -> (Option<Result<DiskUsage, ExchangeError>>, Duration) {
    let _permit = MEASUREMENTS.acquire().await;
    let begun = Instant::now();
    let measured = spawn_blocking(move || disk_usage(&workspace, limit)).await;
    (measured.ok(), begun.elapsed())
}

/// Returns the reason why the size of a workspace is not known; none for one that does not exist. The controller makes
/// it when the run is prepared, and removes it at the end: the run itself cannot remove it.
fn fault(error: &ExchangeError) -> Option<String> {
    match error {
        ExchangeError::NoWorkspace(_) => None,
        error => Some(error_chain(error)),
    }
}

fn message(usage: DiskUsage, limit: u64) -> String {
    match usage {
        DiskUsage::Uncountable => {
            "the workspace has more names or deeper directories than can be counted, or one that cannot be read: its \
             size is not known; remove what the run does not need while it works"
                .to_owned()
        }
        DiskUsage::Evasive => {
            "the workspace has directories that are renamed all the time, so its size is not known; give directories names \
             that stay"
                .to_owned()
        }
        DiskUsage::Within(_) | DiskUsage::Over => format!(
            "the workspace takes more than {limit} bytes on disk, the limit of the run; ask for more with \
             limits.workspace, or remove what the run does not need while it works"
        ),
    }
}

async fn fail(context: &ApiContext, run: &Sandbox, message: &str) {
    let verdict = SandboxVerdict::Failed { code: CODE.to_owned(), message: Some(message.to_owned()) };
    let decide = |now: &Sandbox| {
        let works = matches!(now.state, SandboxState::Creating | SandboxState::Running | SandboxState::Completing);
        (now.key == run.key && works && now.verdict.is_none()).then(|| SandboxStep::Decide(verdict.clone()))
    };
    if let Err(error) = take_step(&context.store, &run.key.run_id, CODE, decide).await {
        // The next measurement tries again.
        (context.log)(&format!("run {}: it is not ended: {}", run.key, error_chain(&error)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_workspace_not_made_yet_is_no_fault() {
        let scratch = tempfile::tempdir().expect("there is room");
        let work = scratch.path().join("work");
        let measured = measure(work.clone(), u64::MAX).await.0.expect("it does not panic");
        let absent = measured.expect_err("it does not exist");
        // It is made before the result is read.
        fs::create_dir(&work).expect("there is room");
        assert_eq!(fault(&absent), None);
        let file = work.join("file");
        fs::write(&file, "").expect("there is room");
        let measured = measure(file, u64::MAX).await.0.expect("it does not panic");
        let other = measured.expect_err("it is not a directory");
        assert!(fault(&other).is_some_and(|text| text.contains("file")), "{other}");
    }
}
