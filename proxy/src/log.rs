//! The operator's log, which is not the audit log: it may lose lines, and holds no content of calls.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

use sluice_proxy::start_error::{SidecarExit, StartError};
use tracing::Level;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

/// Maximum number of queued lines. The queue is allocated whole: by default it would take 4 MB of every sidecar.
const LINES: usize = 1024;

/// Opens the log file; `None` is stderr.
pub(crate) fn open(path: Option<&Path>) -> Result<Option<File>, StartError> {
    let Some(path) = path else { return Ok(None) };
    OpenOptions::new().create(true).append(true).open(path).map(Some).map_err(|error| {
        let exit = if error.kind() == ErrorKind::PermissionDenied {
            SidecarExit::Permission
        } else {
            SidecarExit::CannotCreate
        };
        let cause = format!("cannot open {}: {error}; its directory must exist and be writable", path.display());
        StartError::new("--log", exit, cause)
    })
}

/// Begins the log. The guard writes the queued lines when it is dropped.
pub(crate) fn begin(file: Option<File>, level: Level) -> WorkerGuard {
    // A slow disk, or a launcher that does not read stderr, must not slow a stream: the writer has a thread of its
    // own, and drops lines when it falls behind.
    let queue = NonBlockingBuilder::default().buffered_lines_limit(LINES);
    let (writer, guard) = match file {
        Some(file) => queue.finish(file),
        None => queue.finish(std::io::stderr()),
    };
    // The log's own errors would go to stderr by a macro that panics when stderr is closed.
    let format =
        tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_target(false).log_internal_errors(false);
    format.with_writer(writer).init();
    guard
}
