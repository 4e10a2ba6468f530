//! The recorded request of a run: everything that is needed to repeat it, without secrets.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::admission::RunRequest;
use crate::blueprint::Volume;
use crate::input::Stdin;
use crate::verdict::Contract;

/// Version of the recorded members.
pub const SCHEMA: u32 = 1;

/// Request of a run. It has the names of the variables that the user set, and never their values, nor a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Version of the members.
    pub schema: u32,
    /// Version of `sluice`.
    pub sluice: String,
    /// Run.
    pub run_id: String,
    /// Attempt.
    pub attempt: u32,
    /// Time of the request (RFC 3339).
    pub time: String,
    /// Agent; for a program, the agent on behalf of which it runs.
    pub agent: String,
    /// Billing account.
    pub account: String,
    /// Meaning of stdout.
    pub contract: Contract,
    /// Models that calls may name.
    pub models: Vec<String>,
    /// Image.
    pub image: String,
    /// Arguments of the container.
    pub argv: Vec<String>,
    /// The program after `--`; empty if the agent was asked.
    pub program: Vec<String>,
    /// The message to the agent, if it was one text.
    pub message: Option<String>,
    /// True if the run has messages, which are in a file of their own.
    pub has_messages: bool,
    /// Names of the environment variables that the user set.
    pub variables: Vec<String>,
    /// Mounts.
    pub volumes: Vec<Volume>,
    /// Files that go into the run and come out of it.
    #[serde(default)]
    pub files: FileFlags,
    /// True if the program got our stdin.
    pub stdin: bool,
    /// True if stdin was passed whatever it was.
    pub interactive: bool,
    /// True if the program got our terminal.
    pub tty: bool,
    /// The upstream, without credentials.
    pub upstream: String,
    /// Settings of the run by name, as text.
    pub settings: BTreeMap<String, String>,
}

impl RequestRecord {
    /// Returns the record of a request made at this time, without the members that only its front end knows: program,
    /// message, variables, files, flags and settings.
    #[must_use]
    pub fn of(request: &RunRequest, time: SystemTime) -> Self {
        let RunRequest { key, agent, contract, spec } = request;
        Self {
            schema: SCHEMA,
            sluice: env!("CARGO_PKG_VERSION").to_owned(),
            run_id: key.run_id.to_string(),
            attempt: key.attempt,
            time: humantime::format_rfc3339_millis(time).to_string(),
            agent: agent.clone(),
            account: spec.account.clone(),
            contract: *contract,
            models: spec.models.clone(),
            image: spec.image.clone(),
            argv: spec.argv.clone(),
            program: Vec::new(),
            message: None,
            has_messages: spec.messages.is_some(),
            variables: Vec::new(),
            volumes: spec.volumes.clone(),
            files: FileFlags::default(),
            stdin: spec.stdin == Stdin::Ours,
            interactive: false,
            tty: spec.tty,
            upstream: sluice_upstream::redact(&spec.upstream.url),
            settings: BTreeMap::new(),
        }
    }
}

/// The flags for files in and out, with absolute paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileFlags {
    /// `--repo`, if the run worked on a copy.
    pub repo: Option<String>,
    /// `--file`
    pub file: Vec<String>,
    /// `--patch`
    pub patch: Option<String>,
    /// `--out`
    pub out: Option<String>,
    /// `--keep-workspace`
    pub keep_workspace: bool,
}
