//! Reader of the new lines of a growing audit file, in constant memory.

use std::io::{self, BufReader, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::Path;

use sluice_contract::Fault;
use sluice_contract::audit_line::AuditLine;
use sluice_contract::reader::{self, Cursor, LINE_MAX};

use crate::witness;

/// New lines of an audit file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The file cannot be read.
    #[error("cannot read the audit file")]
    Io(#[from] io::Error),
    /// A line is not a record.
    #[error("the audit file is not one of a sidecar: {0}")]
    Line(Fault),
}

/// Passes each complete line from the cursor on, and advances the cursor, until the function breaks. A file that does not
/// exist has no lines.
///
/// # Errors
/// [`TailError`]; the cursor is before the line.
pub fn read_lines(
    path: &Path,
    cursor: &mut Cursor,
    mut take: impl FnMut(&AuditLine<'_>) -> ControlFlow<()>,
) -> Result<(), TailError> {
    let mut file = match witness::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    file.seek(SeekFrom::Start(cursor.offset))?;
    let (mut file, mut line) = (BufReader::new(file), Vec::new());
    loop {
        reader::read_line(&mut file, &mut line)?;
        if line.last() != Some(&b'\n') && line.len() <= LINE_MAX {
            return Ok(());
        }
        let parsed = AuditLine::parse(*cursor, &line).map_err(TailError::Line)?;
        *cursor = Cursor { line: cursor.line + 1, offset: cursor.offset + line.len() as u64 };
        if take(&parsed).is_break() {
            return Ok(());
        }
    }
}
