//! Reports of the thread to its reader, in parts of a bounded size.

use std::time::SystemTime;

use tokio::sync::mpsc;

use super::change::FileChange;

/// Maximum number of changes in one report.
const CHANGES: usize = 256;
/// Maximum number of bytes in one report.
const BYTES: usize = 2 << 20;

/// Changes since the last report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchReport {
    /// Changes, in the order in which they were found.
    pub changes: Vec<FileChange>,
    /// Reports about the watch itself.
    pub notices: Vec<WatchNotice>,
    /// All changes before this time have been reported; `None` if that is not known.
    pub seen_until: Option<SystemTime>,
}

/// Something that an owner should know of the watch. Each is reported once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchNotice {
    /// The kernel has no queue of notices: the workspace is walked through.
    NoNotices,
    /// Not each directory has a watch: the workspace is walked through.
    WatchLimit,
    /// Notices were lost: the workspace was walked through.
    LostNotices,
    /// The workspace has more files than are watched.
    TooManyFiles,
    /// The last check took too long, and was cut.
    LastLookCut,
}

impl WatchNotice {
    /// Returns the word that events use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoNotices => "no_notices",
            Self::WatchLimit => "watch_limit",
            Self::LostNotices => "lost_notices",
            Self::TooManyFiles => "too_many_files",
            Self::LastLookCut => "last_look_cut",
        }
    }
}

/// Collects changes, and passes them on in parts.
#[derive(Debug)]
pub(super) struct Sink {
    reports: mpsc::Sender<WatchReport>,
    pending: WatchReport,
    bytes: usize,
    reported: Vec<WatchNotice>,
}

impl Sink {
    pub(super) fn new(reports: mpsc::Sender<WatchReport>) -> Self {
        Self { reports, pending: WatchReport::default(), bytes: 0, reported: Vec::new() }
    }

    /// Adds a change. The call waits while the queue of reports is full.
    pub(super) fn change(&mut self, change: FileChange) {
        self.bytes += change.path.len() + change.diff.as_ref().map_or(0, |diff| diff.text.len());
        self.pending.changes.push(change);
        if self.pending.changes.len() >= CHANGES || self.bytes >= BYTES {
            self.flush(None);
        }
    }

    /// Adds a notice, if it is the first of its kind.
    pub(super) fn notice(&mut self, notice: WatchNotice) {
        if !self.reported.contains(&notice) {
            self.reported.push(notice);
            self.pending.notices.push(notice);
        }
    }

    /// Passes on the collected changes.
    pub(super) fn flush(&mut self, seen_until: Option<SystemTime>) {
        self.bytes = 0;
        let report = WatchReport { seen_until, ..std::mem::take(&mut self.pending) };
        if report != WatchReport::default() {
            // Without a reader, the thread ends at its next check.
            let _ = self.reports.blocking_send(report);
        }
    }

    /// Returns true if the reader of the reports is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.reports.is_closed()
    }
}
