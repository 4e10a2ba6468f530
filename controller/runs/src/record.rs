//! The record of one run, written while the run is driven.
//!
//! The request is on disk before the run starts, output and log follow while it runs, the result at its end. So a controller
//! that is killed leaves a record without a result, and the controller that takes the run down adds one.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use sluice_contract::RunKey;
use sluice_state::records::{
    CONTROLLER_LOG, MESSAGES, OutputContent, OutputLog, REQUEST, RESULT, Records, RunRecord, SIDECAR_LOG, SegmentLimits,
};

use crate::capture::{Capture, Captured};
use crate::event_log::EventLog;
use crate::output_record::{OutputRecorder, RecordingThread};

mod request;
mod result;

pub use request::{FileFlags, RequestRecord, SCHEMA};
pub use result::ResultRecord;

/// Number of stored bytes of the beginning of a sidecar's log, and of its end.
const LOG_END: u64 = 64 << 10;

/// Writes the record of a run.
#[derive(Debug)]
pub struct RunRecorder {
    record: RunRecord,
    /// `None` for a run whose output comes from the engine's log.
    output: Option<RecordingThread>,
    log: Arc<EventLog>,
}

impl RunRecorder {
    /// Creates the record with its request. At most `output_max` bytes of each stream are kept.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn begin(
        records: &Records,
        key: &RunKey,
        request: &RequestRecord,
        messages: Option<&[u8]>,
        output_max: usize,
    ) -> io::Result<Self> {
        let record = create(records, key, request, messages)?;
        let log = EventLog::append(&record.path(CONTROLLER_LOG), key)?;
        let output = RecordingThread::start(record.directory(), SegmentLimits::within(output_max));
        Ok(Self { record, output: Some(output), log: Arc::new(log) })
    }

    /// Creates the record of a run whose output comes from the engine's log.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn begin_logged(
        records: &Records,
        key: &RunKey,
        request: &RequestRecord,
        messages: Option<&[u8]>,
    ) -> io::Result<Self> {
        let record = create(records, key, request, messages)?;
        Self::append(record, key)
    }

    /// Continues the record of a run that another controller began; `None` if the run has no record.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn resume(records: &Records, key: &RunKey) -> io::Result<Option<Self>> {
        let record = records.of(key);
        if record.exists() { Self::append(record, key).map(Some) } else { Ok(None) }
    }

    fn append(record: RunRecord, key: &RunKey) -> io::Result<Self> {
        let log = EventLog::append(&record.path(CONTROLLER_LOG), key)?;
        Ok(Self { record, output: None, log: Arc::new(log) })
    }

    /// Opens the stored output to continue it. At most `output_max` bytes of each stream are kept.
    ///
    /// # Errors
    /// Errors of the file system, and `WouldBlock` while another writer has it.
    pub fn output_log(&self, output_max: usize) -> io::Result<OutputLog> {
        OutputLog::open(&self.record, SegmentLimits::within(output_max))
    }

    /// Returns the record.
    #[must_use]
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// Returns the recorder of attached output.
    #[must_use]
    pub fn output(&self) -> Option<OutputRecorder> {
        self.output.as_ref().map(RecordingThread::recorder)
    }

    /// Returns the log of the controller.
    #[must_use]
    pub fn log(&self) -> Arc<EventLog> {
        Arc::clone(&self.log)
    }

    /// Writes the rest of the output, and the result.
    ///
    /// # Errors
    /// The first error of the file system, including an earlier write of output.
    pub fn finish(self, result: &ResultRecord) -> io::Result<()> {
        let output = self.output.map_or(Ok(()), RecordingThread::finish);
        self.record.write_json(RESULT, result)?;
        output
    }
}

fn create(records: &Records, key: &RunKey, request: &RequestRecord, messages: Option<&[u8]>) -> io::Result<RunRecord> {
    let record = records.create(key)?;
    if let Some(messages) = messages {
        record.write(MESSAGES, messages)?;
    }
    record.write_json(REQUEST, request)?;
    Ok(record)
}

/// Adds the result of a run that another controller began, if the run has a record without one.
///
/// # Errors
/// Errors of the file system.
pub fn add_result(record: &RunRecord, result: impl FnOnce() -> ResultRecord) -> io::Result<()> {
    if !record.exists() || record.path(RESULT).exists() {
        return Ok(());
    }
    record.write_json(RESULT, &result())
}

/// Returns the recorded output of a run whose container is gone, as if it had been captured.
///
/// # Errors
/// Errors of the file system.
pub fn recorded_output(record: &RunRecord, max: usize) -> io::Result<(Captured, Captured)> {
    let mut captures = [Capture::new(max / 2), Capture::new(max / 2)];
    let mut reader = record.output(0);
    while let Some(piece) = reader.next_piece()? {
        let capture = &mut captures[piece.stream as usize];
        match piece.content {
            OutputContent::Bytes(bytes) => capture.push(&bytes),
            OutputContent::Missing(bytes) => capture.skip(bytes),
        }
    }
    let [out, err] = captures;
    Ok((out.finish(), err.finish()))
}

/// Copies the log of a sidecar that has ended into the record, if both exist. A long log loses its middle.
///
/// # Errors
/// Errors of the file system.
pub fn keep_sidecar_log(record: &RunRecord, log: &Path) -> io::Result<()> {
    if !record.exists() {
        return Ok(());
    }
    let mut file = match File::open(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let len = file.metadata()?.len();
    let mut kept = Vec::new();
    if len <= 2 * LOG_END {
        Read::take(&mut file, 2 * LOG_END).read_to_end(&mut kept)?;
    } else {
        Read::take(&mut file, LOG_END).read_to_end(&mut kept)?;
        kept.extend(format!("\n[{} bytes left out]\n", len - 2 * LOG_END).into_bytes());
        file.seek(SeekFrom::Start(len - LOG_END))?;
        Read::take(&mut file, LOG_END).read_to_end(&mut kept)?;
    }
    record.write(SIDECAR_LOG, &kept)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_long_sidecar_log_keeps_its_ends() {
        let directory = tempfile::tempdir().expect("there is room");
        let log = directory.path().join("sidecar.log");
        let records = Records::at(directory.path().join("records"));
        let key: RunKey = "r.0".parse().expect("it is a key");
        fs::write(&log, "first\n").expect("there is room");
        keep_sidecar_log(&records.of(&key), &log).expect("without a record nothing is kept");
        assert!(!records.of(&key).exists());
        let record = records.create(&key).expect("there is room");
        keep_sidecar_log(&record, &directory.path().join("none")).expect("a run may have no sidecar");
        keep_sidecar_log(&record, &log).expect("there is room");
        assert_eq!(fs::read(record.path(SIDECAR_LOG)).expect("it is there"), b"first\n");

        let long = [b"begin".to_vec(), vec![b'x'; 300_000], b"end".to_vec()].concat();
        fs::write(&log, &long).expect("there is room");
        keep_sidecar_log(&record, &log).expect("there is room");

        let kept = fs::read_to_string(record.path(SIDECAR_LOG)).expect("it is there");
        assert!(kept.starts_with("begin") && kept.ends_with("end") && kept.len() < 140_000, "{}", kept.len());
        assert!(kept.contains("[168936 bytes left out]"), "{}", kept.len());
    }
}
