//! The operator's log. It is not the audit log: it may lose lines, and says nothing of content.

use std::fs::OpenOptions;
use std::path::Path;

use sluice_proxy::settings::{Exit, StartError};
use tracing::Level;
use tracing_appender::non_blocking::WorkerGuard;

/// Begins it. The guard writes what is left when it is dropped.
pub(crate) fn begin(file: Option<&Path>, level: Level) -> Result<Option<WorkerGuard>, StartError> {
    let format = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_target(false);
    let Some(path) = file else {
        format.with_writer(std::io::stderr).init();
        return Ok(None);
    };
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let file = opened.map_err(|error| StartError::new("--log", Exit::CannotCreate, format!("cannot open {}: {error}", path.display())))?;
    // A slow disk under a log must not slow a stream: the writer has a thread of its own.
    let (writer, guard) = tracing_appender::non_blocking(file);
    format.with_writer(writer).init();
    Ok(Some(guard))
}
