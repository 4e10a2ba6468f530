//! The changes of a run's files as events, seen from the host.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sluice_contract::text::error_chain;
use sluice_runs::exchange::watch::{
    OwnerShare, WatchLimits, WatchNotice, WatchReport, WatchShare, WatchSpec, WorkspaceWatch,
};
use sluice_state::events::{EventQuota, NewLoggedEvent};
use sluice_state::layout::RunPaths;
use sluice_state::sandboxes::{Sandbox, SandboxActivity};
use sluice_state::store::now_us;
use tokio::time::{sleep, timeout_at};

use super::file_event::{bounded, changes_left_out, file_edited, watch_event};
use super::file_limits::{FileEventLimits, LeftOutChanges};
use crate::context::ApiContext;

/// Time after which events that could not be written are written again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);
/// Maximum time that the end of a run waits for the last changes.
const LAST_REPORTS: Duration = Duration::from_secs(30);
/// Shortest time between two events about changes that have none of their own.
const LEFT_OUT_EVERY: Duration = Duration::from_secs(10);

/// Reports the changed files of one attempt.
#[derive(Debug)]
pub(super) struct FileReporter {
    context: Arc<ApiContext>,
    run: Sandbox,
    paths: RunPaths,
    share: OwnerShare,
    watch: Option<WorkspaceWatch>,
    limits: FileEventLimits,
    left_out: LeftOutChanges,
    left_out_at: Option<Instant>,
    /// Events that are not known to be in the log.
    pending: Vec<NewLoggedEvent>,
    /// Time of the last changes that are not recorded as work yet.
    worked_us: Option<i64>,
    /// All changes before this time are in the log once the pending events are.
    seen_until: Option<SystemTime>,
}

impl FileReporter {
    /// Makes a reporter that watches nothing yet.
    pub(super) fn new(context: Arc<ApiContext>, run: Sandbox, share: &Arc<WatchShare>) -> Self {
        let share = share.of_owner(&run.owner);
        let paths = context.layout.run(&run.key);
        Self {
            context,
            run,
            paths,
            share,
            watch: None,
            limits: FileEventLimits::new(Instant::now()),
            left_out: LeftOutChanges::default(),
            left_out_at: None,
            pending: Vec::new(),
            worked_us: None,
            seen_until: None,
        }
    }

    /// Watches the workspace of a run before its program starts.
    pub(super) fn begin(&mut self, prepared: SystemTime) {
        self.start(Some(prepared));
        self.seen_until = Some(prepared);
        self.mark();
    }

    /// Watches the workspace of a run that an earlier daemon began. Earlier content of files changed meanwhile is unknown.
    pub(super) fn adopt(&mut self) {
        if !self.paths.work.exists() {
            return;
        }
        let since = std::fs::metadata(self.marker()).and_then(|marker| marker.modified()).ok();
        self.start(since);
        let text = since.map(|since| humantime::format_rfc3339_micros(since).to_string());
        self.pending.push(watch_event(&self.run, "adopted", text, now_us()));
    }

    /// Asks the watch for a last check: no process of the run is left.
    pub(super) fn stop(&mut self) {
        self.watch.iter_mut().for_each(WorkspaceWatch::finish);
    }

    /// Reports changes until it is dropped. Cancel-safe: a change stays until it is in the log, under its id.
    pub(super) async fn follow(&mut self) -> std::convert::Infallible {
        loop {
            self.write().await;
            let next = match &mut self.watch {
                Some(watch) => watch.next().await,
                None => None,
            };
            match next {
                Some(report) => self.take(report),
                None => return std::future::pending().await,
            }
        }
    }

    /// Reports the remaining changes of a run that is over.
    pub(super) async fn finish(mut self) {
        self.stop();
        self.write().await;
        if let Some(mut watch) = self.watch.take() {
            let until = tokio::time::Instant::now() + LAST_REPORTS;
            loop {
                match timeout_at(until, watch.next()).await {
                    Ok(Some(report)) => {
                        self.take(report);
                        self.write().await;
                    }
                    Ok(None) => break,
                    Err(_) => {
                        let cut = WatchNotice::LastLookCut.as_str();
                        self.pending.push(watch_event(&self.run, cut, None, now_us()));
                        break;
                    }
                }
            }
        }
        self.report_left_out();
        self.write().await;
    }

    fn start(&mut self, since: Option<SystemTime>) {
        let (directory, limits) = (self.paths.work.clone(), WatchLimits::default());
        match WorkspaceWatch::start(WatchSpec { directory, since, limits, share: self.share.clone() }) {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => {
                self.log(&format!("changes of its files are not seen: {}", error_chain(&error)));
                self.pending.push(watch_event(&self.run, "not_watched", None, now_us()));
            }
        }
    }

    /// Makes events of a report, within the limits.
    fn take(&mut self, report: WatchReport) {
        let (now, now_us) = (Instant::now(), now_us());
        for notice in report.notices {
            self.pending.push(watch_event(&self.run, notice.as_str(), None, now_us));
        }
        if !report.changes.is_empty() {
            self.worked_us = Some(now_us);
        }
        for change in report.changes {
            let event = file_edited(&self.run, &change, now_us);
            // A full event log keeps the events of the daemon, but a sandbox causes these.
            let event = match self.context.events.is_full() {
                true => None,
                false => {
                    let stored = self.limits.take(event.bytes(), event.diff_bytes(), now);
                    bounded(event, stored)
                }
            };
            match event {
                Some(event) => self.pending.push(event),
                None => self.left_out.count(change.change),
            }
        }
        if self.left_out_at.is_none_or(|at| now.duration_since(at) >= LEFT_OUT_EVERY) {
            self.report_left_out();
        }
        self.seen_until = report.seen_until.or(self.seen_until);
    }

    fn report_left_out(&mut self) {
        if self.left_out != LeftOutChanges::default() {
            let left = std::mem::take(&mut self.left_out);
            self.pending.push(changes_left_out(&self.run, left, now_us()));
            self.left_out_at = Some(Instant::now());
        }
    }

    /// Writes the pending events. While the disk is full, it waits for room, and no further report is read.
    async fn write(&mut self) {
        let mut is_reported = false;
        while !self.pending.is_empty() {
            let error = match self.context.store.append_events(self.pending.clone(), EventQuota::default()).await {
                Ok(appended) => {
                    let faults = appended.iter().filter_map(|event| event.as_ref().err());
                    faults.for_each(|fault| self.log(&format!("an event of a file is refused: {fault}")));
                    self.pending.clear();
                    break;
                }
                Err(error) => error,
            };
            if !is_reported {
                self.log(&format!("events of files are not in the log: {}", error_chain(&error)));
                is_reported = true;
            }
            if !error.is_retryable() {
                self.pending.clear();
                return;
            }
            sleep(WRITE_AGAIN).await;
        }
        self.record_work().await;
        self.mark();
    }

    /// Records that changed files are work: without it, the run may count as idle.
    async fn record_work(&mut self) {
        let Some(at_us) = self.worked_us.take() else { return };
        let key = self.run.key.clone();
        let seen = SandboxActivity { key, work_us: Some(at_us), observed_work_us: Some(at_us), heartbeat: None };
        if let Err(error) = self.context.store.record_activity(vec![seen]).await {
            self.log(&format!("its work is not recorded: {}", error_chain(&error)));
        }
    }

    /// Returns the path of the marker file. All changes before its modification time are in the log.
    fn marker(&self) -> PathBuf {
        self.paths.conf.join("watched")
    }

    /// Records for the next daemon the time up to which changes are in the log.
    fn mark(&mut self) {
        let Some(until) = self.seen_until.take() else { return };
        let marker = File::options().write(true).create(true).truncate(false).open(self.marker());
        // At the end of the run, its directory is gone, so the marker is not needed.
        let _ = marker.and_then(|marker| marker.set_modified(until));
    }

    fn log(&self, text: &str) {
        (self.context.log)(&format!("run {}: {text}", self.run.key));
    }
}

#[cfg(test)]
mod tests;
