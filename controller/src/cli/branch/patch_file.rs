//! The patch of a one-shot run that worked on a copy of a directory: the file of `sluice run --repo DIR --patch FILE`.

use std::io::{self, Read};
use std::path::Path;

use serde_json::{Value, json};
use sluice_contract::{Hash, RunKey, exit};
use sluice_runs::exchange::{ExchangeReport, PatchReport};
use sluice_runs::record::ResultRecord;
use sluice_state::layout::Layout;
use sluice_state::records::RESULT;

use crate::cli::error::CommandError;
use crate::cli::regular_file;

/// A run with a patch, and without a branch.
pub(super) struct PatchFile {
    run: String,
    report: PatchReport,
}

impl PatchFile {
    /// Finds the patch in the record of the run; `None` if the run wrote none.
    pub(super) fn find(layout: &Layout, key: &RunKey) -> Result<Option<Self>, CommandError> {
        let result: Option<ResultRecord> =
            layout.records().of(key).read_json(RESULT).map_err(|error| CommandError::failed(&error))?;
        let report = result.and_then(|result| result.patch);
        Ok(report.map(|report| Self { run: key.run_id.to_string(), report }))
    }

    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// Returns the object of `--json`.
    pub(super) fn json(&self) -> Value {
        json!({ "run_id": self.run, "patch": self.report })
    }

    /// Returns the lines for a terminal.
    pub(super) fn text(&self) -> String {
        let report = ExchangeReport { patch: Some(self.report.clone()), ..ExchangeReport::default() };
        report.lines().iter().map(|line| format!("{line}\n")).collect()
    }

    /// Reads the patch that the run wrote, and no other content: the file is in a directory of its user.
    pub(super) fn read(&self) -> Result<Vec<u8>, CommandError> {
        let path = &self.report.path;
        let failed = |reason: &str| {
            let message = format!("the patch of run {} cannot be read from {path}: {reason}", self.run);
            CommandError { code: exit::FAILED, message }
        };
        let content = self.content().map_err(|error| failed(&error.to_string()))?;
        if Hash::of(&content).to_string() != self.report.sha256 {
            return Err(failed("the file is not what the run wrote; look at it, and use git apply --index"));
        }
        Ok(content)
    }

    fn content(&self) -> io::Result<Vec<u8>> {
        let file = regular_file::open(Path::new(&self.report.path))?;
        let mut content = Vec::new();
        file.take(self.report.bytes + 1).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Returns the error of a command that needs a branch.
    pub(super) fn no_branch(&self) -> CommandError {
        let message = format!(
            "run {} worked on a copy of a directory and has no branch; a run with --repo URL, such as \
             file:///srv/app.git, works on a clone and has one",
            self.run
        );
        CommandError::wrong_usage(message)
    }
}
