//! The calls that a process has seen, in a file that survives its kill.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use crate::fault::ChaosFault;

/// The ids of calls.
pub(crate) type Ids = BTreeSet<String>;

/// The record as its process writes it: one line in each write.
#[derive(Debug)]
pub(crate) struct CallRecord(File);

impl CallRecord {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    /// Records a call of a run.
    pub(crate) fn call(&self, id: &str, run: &str) -> io::Result<()> {
        (&self.0).write_all(format!("{id} {run}\n").as_bytes())
    }

    /// Records something that must not happen.
    pub(crate) fn fault(&self, what: &str) {
        // There is no other place to report a failure.
        let _ = (&self.0).write_all(format!("fault: {}\n", what.escape_default()).as_bytes());
    }
}

/// Returns the ids of a run's calls in a record; none if nothing was recorded yet.
pub(crate) fn calls_of(path: &Path, run: &str) -> Result<Ids, ChaosFault> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let mut ids = Ids::new();
    // The last line may not be complete yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        match line.split_once(' ') {
            // A UUID; nothing else is written.
            Some((id, of)) if id.len() == 36 => {
                if of == run {
                    ids.insert(id.to_owned());
                }
            }
            _ => return Err(ChaosFault::new(format!("{}: {line}", path.display()))),
        }
    }
    Ok(ids)
}
