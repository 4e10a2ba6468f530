//! The programs that clients have started in sandboxes, as long as they run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_contract::RunId;
use sluice_runs::exec::ExecControl;
use sluice_runs::host::Host;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Maximum number of programs at the same time in one sandbox.
const PER_RUN: usize = 4;
/// Maximum number of programs at the same time in all sandboxes: each may hold its whole output in memory.
const OF_ALL: usize = 64;

/// The programs that clients have started in sandboxes.
#[derive(Debug)]
pub(crate) struct Execs {
    host: Option<Arc<Host>>,
    table: Mutex<ExecTable>,
    /// Limits the outputs in memory: a slow client may still read one after its program has ended.
    outputs: Arc<Semaphore>,
    /// A program has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct ExecTable {
    phase: ExecPhase,
    execs: HashMap<String, ExecEntry>,
}

/// Phase of the daemon; programs start only while it is `Open`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ExecPhase {
    /// The daemon ends the programs of an earlier daemon.
    #[default]
    Starting,
    Open,
    /// The daemon ends its own programs.
    Stopping,
}

#[derive(Debug)]
struct ExecEntry {
    run_id: RunId,
    /// `None` until it is started.
    live: Option<LiveExec>,
}

/// A program that runs.
#[derive(Debug, Clone)]
pub(crate) struct LiveExec {
    /// Controls it.
    pub(crate) control: ExecControl,
    /// Held by the request that writes to its stdin.
    pub(crate) stdin: Arc<tokio::sync::Mutex<()>>,
    /// True if it has a terminal.
    pub(crate) has_terminal: bool,
}

/// Reason that a program is not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecLimit {
    /// The daemon starts, or stops.
    Closed,
    /// The sandbox has too many.
    OfRun,
    /// All sandboxes together have too many.
    OfAll,
}

/// The slot of one program; it is freed on drop.
#[derive(Debug)]
pub(crate) struct ExecSlot {
    execs: Arc<Execs>,
    /// Id of the program.
    pub(crate) exec_id: String,
}

impl Execs {
    /// Makes an empty table. Without a host no program is started.
    pub(crate) fn new(host: Option<Arc<Host>>) -> Arc<Self> {
        let outputs = Arc::new(Semaphore::new(OF_ALL));
        Arc::new(Self { host, table: Mutex::default(), outputs, ended: Notify::new() })
    }

    /// Takes a slot for the output of a program. Dropping it frees the slot.
    ///
    /// # Errors
    /// [`ExecLimit::OfAll`]
    pub(crate) fn keep_output(&self) -> Result<OwnedSemaphorePermit, ExecLimit> {
        Arc::clone(&self.outputs).try_acquire_owned().map_err(|_| ExecLimit::OfAll)
    }

    /// Returns the host of the sandboxes, if the daemon has any.
    pub(crate) fn host(&self) -> Option<&Arc<Host>> {
        self.host.as_ref()
    }

    /// Allows programs to start, once the programs of an earlier daemon have ended.
    pub(crate) fn open(&self) {
        self.lock().phase = ExecPhase::Open;
    }

    /// Takes a slot for a program in a sandbox.
    ///
    /// # Errors
    /// [`ExecLimit`]
    pub(crate) fn admit(self: &Arc<Self>, run_id: &RunId) -> Result<ExecSlot, ExecLimit> {
        let mut table = self.lock();
        if table.phase != ExecPhase::Open {
            return Err(ExecLimit::Closed);
        }
        if table.execs.values().filter(|exec| exec.run_id == *run_id).count() >= PER_RUN {
            return Err(ExecLimit::OfRun);
        }
        if table.execs.len() >= OF_ALL {
            return Err(ExecLimit::OfAll);
        }
        let exec_id = format!("x_{:020x}", uuid::Uuid::new_v4().as_u128() >> 48);
        table.execs.insert(exec_id.clone(), ExecEntry { run_id: run_id.clone(), live: None });
        Ok(ExecSlot { execs: Arc::clone(self), exec_id })
    }

    /// Returns a program of a sandbox.
    pub(crate) fn find(&self, run_id: &RunId, exec_id: &str) -> Option<LiveExec> {
        self.lock().execs.get(exec_id).filter(|exec| exec.run_id == *run_id)?.live.clone()
    }

    /// Ends all programs, refuses new ones, and waits until all have ended.
    pub(crate) async fn close(&self) {
        loop {
            let ended = self.ended.notified();
            {
                let mut table = self.lock();
                table.phase = ExecPhase::Stopping;
                if table.execs.is_empty() {
                    return;
                }
                table.execs.values().filter_map(|exec| exec.live.as_ref()).for_each(|live| live.control.cancel());
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ExecTable> {
        // Nothing panics while it is held.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExecSlot {
    /// Adds the started program. A program that starts while the daemon stops is ended.
    pub(crate) fn fill(&self, control: ExecControl, has_terminal: bool) {
        let mut table = self.execs.lock();
        if table.phase == ExecPhase::Stopping {
            control.cancel();
        }
        if let Some(exec) = table.execs.get_mut(&self.exec_id) {
            exec.live = Some(LiveExec { control, stdin: Arc::default(), has_terminal });
        }
    }
}

impl Drop for ExecSlot {
    fn drop(&mut self) {
        self.execs.lock().execs.remove(&self.exec_id);
        self.execs.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> RunId {
        text.parse().expect("an id")
    }

    #[test]
    fn each_sandbox_and_all_have_a_limit() {
        let execs = Execs::new(None);
        assert_eq!(execs.admit(&run("r1")).err(), Some(ExecLimit::Closed));
        execs.open();
        let mut own: Vec<_> = (0..PER_RUN).map(|_| execs.admit(&run("r1")).expect("there is room")).collect();
        assert_eq!(execs.admit(&run("r1")).err(), Some(ExecLimit::OfRun));
        let others: Vec<_> = (PER_RUN..OF_ALL)
            .map(|number| execs.admit(&run(&format!("other{}", number / PER_RUN))).expect("there is room"))
            .collect();
        assert_eq!(execs.admit(&run("r2")).err(), Some(ExecLimit::OfAll));
        own.pop();
        assert!(execs.admit(&run("r1")).is_ok());
        drop((own, others));
        assert!(execs.lock().execs.is_empty());
    }

    #[tokio::test]
    async fn a_daemon_that_stops_waits_for_all() {
        let execs = Execs::new(None);
        execs.open();
        let slot = execs.admit(&run("r1")).expect("there is room");
        let closing = tokio::spawn({
            let execs = Arc::clone(&execs);
            async move { execs.close().await }
        });
        while execs.lock().phase != ExecPhase::Stopping {
            tokio::task::yield_now().await;
        }
        assert!(!closing.is_finished());
        assert_eq!(execs.admit(&run("r1")).err(), Some(ExecLimit::Closed));
        drop(slot);
        closing.await.expect("it does not panic");
    }
}
