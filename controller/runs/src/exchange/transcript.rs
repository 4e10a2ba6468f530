//! The transcript that a worker writes into the workspace of its run, kept in the record of the run at every end.
//!
//! The sandbox can put any file in its place. So only a regular file with one name is read, through no link.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::fstat;
use rustix::io::Errno;
use sluice_state::layout::RunPaths;
use sluice_state::records::{RunRecord, TranscriptFacts};

use super::interrupt::CancelFlag;
use super::tree::Tree;
use super::{ExchangeError, InputFile, is_gone};

/// Path in the workspace.
pub const TRANSCRIPT_PATH: &str = ".sluice/transcript.jsonl";
/// Maximum number of stored bytes.
const BYTES_MAX: u64 = 64 << 20;
/// Number of bytes in one copy step.
const CHUNK: usize = 256 << 10;

/// Keeps the transcript of a run in its record, if it has left one. No process of the run is left. Returns a remark for the
/// operator if it cannot be kept.
///
/// # Errors
/// Errors of the file system of the record.
pub(crate) fn keep(paths: &RunPaths, record: &RunRecord, interrupt: &CancelFlag) -> io::Result<Option<String>> {
    if !record.exists() {
        return Ok(None);
    }
    let refused = |reason: &dyn std::fmt::Display| Ok(Some(format!("the transcript is not kept: {reason}")));
    let tree = match Tree::open(&paths.work, interrupt) {
        Err(ExchangeError::File { source, .. }) if is_gone(&source) => return Ok(None),
        Err(error) => return refused(&error),
        Ok(tree) => tree,
    };
    let file = match tree.file(TRANSCRIPT_PATH.as_bytes()) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(None),
        Err(error) => return refused(&error),
    };
    if fstat(&file)?.st_nlink != 1 {
        return refused(&"it has several names");
    }
    copy(&file, record, interrupt).map(|()| None)
}

/// Copies the file. If it is too long, it is cut at the end of a line.
fn copy(mut from: &File, record: &RunRecord, interrupt: &CancelFlag) -> io::Result<()> {
    let (mut to, mut buffer) = (record.create_transcript()?, vec![0; CHUNK]);
    let (mut size, mut line_end, mut truncated) = (0, 0, false);
    loop {
        interrupt.check()?;
        let len = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            len => len?,
        };
        if len == 0 {
            break;
        }
        let kept = usize::try_from(BYTES_MAX - size).unwrap_or(CHUNK).min(len);
        to.write_all(&buffer[..kept])?;
        if let Some(end) = buffer[..kept].iter().rposition(|byte| *byte == b'\n') {
            line_end = size + end as u64 + 1;
        }
        size += kept as u64;
        if kept < len {
            truncated = true;
            break;
        }
    }
    if truncated && line_end > 0 {
        to.set_len(line_end)?;
        size = line_end;
    }
    record.complete_transcript(&to, TranscriptFacts { size, truncated })
}

/// Returns the transcript of a record as a file for the workspace of another run.
///
/// # Errors
/// Errors of the file system, also if the record has none.
pub fn as_input(record: &RunRecord) -> io::Result<InputFile> {
    record.transcript()?.ok_or(io::ErrorKind::NotFound)?;
    let file = record.open_transcript()?.into();
    Ok(InputFile { path: record.directory().to_owned(), file, name: TRANSCRIPT_PATH.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use sluice_contract::RunKey;
    use sluice_state::records::Records;

    use super::*;

    struct Scratch {
        directory: tempfile::TempDir,
        paths: RunPaths,
        record: RunRecord,
    }

    impl Scratch {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("there is room");
            let key: RunKey = "r1.0".parse().expect("a key");
            let layout = sluice_state::layout::Layout::open(directory.path()).expect("there is room");
            let paths = layout.run(&key);
            fs::create_dir_all(paths.work.join(".sluice")).expect("there is room");
            let record = Records::at(directory.path().join("own-records")).create(&key).expect("there is room");
            Self { directory, paths, record }
        }

        fn file(&self) -> std::path::PathBuf {
            self.paths.work.join(TRANSCRIPT_PATH)
        }

        fn keep(&self) -> Option<String> {
            keep(&self.paths, &self.record, &CancelFlag::default()).expect("the record takes it")
        }
    }

    #[test]
    fn a_transcript_is_kept_and_given_to_another_run() {
        let scratch = Scratch::new();
        assert_eq!((scratch.keep(), scratch.record.transcript().expect("readable")), (None, None));
        fs::write(scratch.file(), "{\"a\":1}\n").expect("there is room");
        // A controller that was killed in between does it again.
        assert_eq!((scratch.keep(), scratch.keep()), (None, None));
        let facts = scratch.record.transcript().expect("readable");
        assert_eq!(facts, Some(TranscriptFacts { size: 8, truncated: false }));
        let mut text = String::new();
        let input = as_input(&scratch.record).expect("it is there");
        (&*input.file).read_to_string(&mut text).expect("readable");
        assert_eq!((text.as_str(), input.name.as_str()), ("{\"a\":1}\n", ".sluice/transcript.jsonl"));
    }

    #[test]
    fn only_a_regular_file_with_one_name_is_kept() {
        let scratch = Scratch::new();
        let outside = scratch.directory.path().join("outside");
        fs::write(&outside, "secret").expect("there is room");
        let (file, inner) = (scratch.file(), scratch.paths.work.join(".sluice"));
        let mut remarks = Vec::new();
        symlink(&outside, &file).expect("it is ours");
        remarks.push(scratch.keep());
        fs::remove_file(&file).expect("it is ours");
        fs::hard_link(&outside, &file).expect("it is ours");
        remarks.push(scratch.keep());
        fs::remove_file(&file).expect("it is ours");
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).expect("it is ours");
        remarks.push(scratch.keep());
        fs::remove_dir_all(&inner).expect("it is ours");
        symlink(scratch.directory.path(), &inner).expect("it is ours");
        remarks.push(scratch.keep());
        let known = remarks.iter().flatten().filter(|remark| remark.starts_with("the transcript is not kept: "));
        assert_eq!((known.count(), scratch.record.transcript().expect("readable")), (4, None), "{remarks:?}");
    }

    #[test]
    fn a_long_transcript_is_cut_after_a_line() {
        let scratch = Scratch::new();
        let line = format!("{}\n", "x".repeat(999_999));
        fs::write(scratch.file(), line.repeat(68)).expect("there is room");
        assert_eq!(scratch.keep(), None);
        let facts = scratch.record.transcript().expect("readable").expect("it is there");
        assert_eq!(facts, TranscriptFacts { size: 67_000_000, truncated: true });
        assert_eq!(
            scratch.record.open_transcript().expect("it is there").metadata().expect("it has").len(),
            facts.size
        );
    }
}
