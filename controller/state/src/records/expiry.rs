//! Removal of expired records.
//!
//! Only files that a record has are removed, by their names. Nothing here descends into a directory of a record.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, SystemTime};

use sluice_contract::RunKey;

use super::artifacts::is_artifact;
use super::segments::offset_of;
use super::{
    ARTIFACTS, COMMITS, CONTROLLER_LOG, MESSAGES, OUTPUT_INDEX, REQUEST, RESULT, RecordedStream, Records, RunRecord,
    SIDECAR_LOG, TRANSCRIPT, TRANSCRIPT_FACTS, UNFINISHED,
};

/// Names of the files that a record has once.
const PARTS: [&str; 10] = [
    REQUEST, MESSAGES, RESULT, COMMITS, SIDECAR_LOG, CONTROLLER_LOG, OUTPUT_INDEX, ARTIFACTS, TRANSCRIPT,
    TRANSCRIPT_FACTS,
];

/// File whose modification time is the time of the last removal.
const STAMP: &str = ".removed";

/// Result of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RemovedRecords {
    /// Runs whose record was removed.
    pub removed: Vec<RunKey>,
    /// Runs whose record cannot be removed, and the reasons.
    pub remaining: Vec<(RunKey, String)>,
}

/// Returns true if records have to be checked again: an hour after the last check, or a 24th of their retention time if
/// that is shorter.
#[must_use]
pub fn is_due(last: Option<SystemTime>, now: SystemTime, keep: Duration) -> bool {
    const HOUR: Duration = Duration::from_secs(3600);
    let every = HOUR.min(keep / 24);
    // A time in the future comes from a clock that was wrong.
    last.is_none_or(|last| now.duration_since(last).map_or(true, |ago| ago >= every))
}

impl Records {
    /// Removes the records that have not changed for this time, except for those that `stays` selects.
    ///
    /// # Errors
    /// When the records cannot be listed.
    pub fn remove_old(
        &self,
        now: SystemTime,
        keep: Duration,
        stays: impl Fn(&RunKey) -> bool,
    ) -> io::Result<RemovedRecords> {
        let mut result = RemovedRecords::default();
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(result),
            entries => entries?,
        };
        for entry in entries {
            let Some(key) = entry?.file_name().to_str().and_then(|name| name.parse::<RunKey>().ok()) else { continue };
            let record = self.of(&key);
            let is_old = record.changed().is_some_and(|then| now.duration_since(then).is_ok_and(|age| age >= keep));
            if !is_old || stays(&key) {
                continue;
            }
            match record.remove() {
                Ok(()) => result.removed.push(key),
                Err(error) => result.remaining.push((key, error.to_string())),
            }
        }
        self.stamp(now)?;
        Ok(result)
    }

    /// Returns the time of the last removal.
    #[must_use]
    pub fn last_removal(&self) -> Option<SystemTime> {
        fs::metadata(self.root.join(STAMP)).ok()?.modified().ok()
    }

    fn stamp(&self, now: SystemTime) -> io::Result<()> {
        let options = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).to_owned();
        let file: File = options.open(self.root.join(STAMP))?;
        file.set_times(FileTimes::new().set_modified(now))
    }
}

impl RunRecord {
    /// Returns the time of the result, or of the request if there is no result.
    fn changed(&self) -> Option<SystemTime> {
        let changed = |path| fs::symlink_metadata(path).ok()?.modified().ok();
        let file = changed(self.path(RESULT)).or_else(|| changed(self.path(REQUEST)));
        file.or_else(|| changed(self.directory.clone()))
    }

    /// Removes the record. A file with a name that is not known here stays, and so does the directory.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn remove(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(is_part) && !entry.file_type()?.is_dir() {
                fs::remove_file(entry.path())?;
            }
        }
        fs::remove_dir(&self.directory)
    }
}

/// Returns true for a name that a file of a record has.
fn is_part(name: &str) -> bool {
    let name = name.strip_suffix(UNFINISHED).unwrap_or(name);
    let streams = [RecordedStream::Stdout, RecordedStream::Stderr];
    PARTS.contains(&name)
        || is_artifact(name)
        || streams.iter().any(|stream| offset_of(stream.as_str(), name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn key(text: &str) -> RunKey {
        text.parse().expect("it is a key")
    }

    #[test]
    fn only_old_records_of_ended_runs_are_removed() {
        let directory = tempfile::tempdir().expect("there is room");
        let records = Records::at(directory.path().join("records"));
        assert_eq!(
            records.remove_old(SystemTime::now(), DAY, |_| false).expect("no record is no work"),
            Default::default()
        );
        for name in ["old.0", "open.0"] {
            let record = records.create(&key(name)).expect("there is room");
            for file in [
                REQUEST, MESSAGES, COMMITS, SIDECAR_LOG, CONTROLLER_LOG, OUTPUT_INDEX, "stdout.00000000000000000000",
                "result.json.new", ARTIFACTS, "artifact.12", TRANSCRIPT, TRANSCRIPT_FACTS, "transcript.jsonl.new",
            ] {
                record.write(file, b"{}").expect("there is room");
            }
        }
        let now = SystemTime::now();
        let open = |one: &RunKey| *one == key("open.0");

        let early = records.remove_old(now + DAY / 2, DAY, open).expect("it is ours");
        let late = records.remove_old(now + 2 * DAY, DAY, open).expect("it is ours");

        assert_eq!((early.removed, late.removed), (vec![], vec![key("old.0")]));
        assert!(records.of(&key("open.0")).path(REQUEST).exists());
        assert!(!records.of(&key("old.0")).exists());
    }

    #[test]
    fn foreign_files_and_directories_stay() {
        let directory = tempfile::tempdir().expect("there is room");
        let records = Records::at(directory.path().join("records"));
        let record = records.create(&key("r.0")).expect("there is room");
        record.write(REQUEST, b"{}").expect("there is room");
        let inside = record.path(MESSAGES);
        fs::create_dir(&inside).expect("there is room");
        fs::write(inside.join(REQUEST), "kept").expect("there is room");
        let outside = directory.path().join("outside");
        fs::write(&outside, "kept").expect("there is room");
        std::os::unix::fs::symlink(&outside, record.path(RESULT)).expect("there is room");
        fs::create_dir(directory.path().join("records/not-a-run")).expect("there is room");

        let done = records.remove_old(SystemTime::now() + 2 * DAY, DAY, |_| false).expect("it is ours");

        assert_eq!((done.removed.len(), done.remaining.len()), (0, 1));
        assert!(inside.join(REQUEST).exists() && outside.exists() && !record.path(REQUEST).exists());
        assert!(directory.path().join("records/not-a-run").exists());
    }

    #[test]
    fn records_are_looked_through_now_and_then() {
        let now = SystemTime::now();
        for (ago, keep, expected) in [
            (Duration::from_secs(60), DAY * 14, false),
            (Duration::from_secs(3600), DAY * 14, true),
            (Duration::from_secs(60), Duration::from_secs(60), true),
            (Duration::ZERO, Duration::ZERO, true),
        ] {
            assert_eq!(is_due(Some(now - ago), now, keep), expected, "{ago:?} {keep:?}");
        }
        assert!(is_due(None, now, DAY) && is_due(Some(now + DAY), now, DAY));
    }
}
