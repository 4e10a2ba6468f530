//! The line that a sidecar prints when it takes calls, and its answer to `GET /health`.
//!
//! Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Maximum length of the path of a unix socket, in bytes: `sockaddr_un` without its final zero.
pub const SOCKET_PATH_MAX: usize = 107;

/// The first line on the sidecar's stdout, as one JSON object. A reader needs the run id only; the other members are
/// for operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyLine<'a> {
    /// Public key of the signature at the end of the audit file, as 64 hex digits; `None` if the file is not signed.
    #[serde(default)]
    pub audit_public_key: Option<Cow<'a, str>>,
    /// Commit that the program was built from.
    #[serde(default)]
    pub build: Cow<'a, str>,
    /// The event that this line reports.
    pub event: ReadyEvent,
    /// Measures in force.
    #[serde(default)]
    pub hardening: Option<Hardening>,
    /// Memory limit in bytes; `None` is unlimited.
    #[serde(default)]
    pub max_memory: Option<u64>,
    /// Process id.
    #[serde(default)]
    pub pid: u32,
    /// Digest of the policy.
    #[serde(default)]
    pub policy: Cow<'a, str>,
    /// Run of the accepted calls.
    pub run_id: Cow<'a, str>,
    /// Path of the socket.
    #[serde(default)]
    pub socket: Cow<'a, str>,
    /// User that the process has become.
    #[serde(default)]
    pub uid: u32,
    /// Version of the program.
    #[serde(default)]
    pub version: Cow<'a, str>,
}

/// The word of a [`ReadyLine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyEvent {
    /// Calls are taken.
    Ready,
}

/// Measures of the sidecar against its own compromise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like the measures")]
pub struct Hardening {
    pub capabilities: Measure,
    pub landlock: Measure,
    pub no_core: Measure,
    pub no_new_privileges: Measure,
    pub non_dumpable: Measure,
    pub seccomp: Measure,
}

/// Extent to which a measure is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Fully.
    Applied,
    /// Partly: the kernel supports only a part, or an unprivileged process may not change the rest.
    Partial,
    /// Not at all: the kernel does not have it.
    NotSupported,
}

/// Body of the answer to `GET /health`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health<'a> {
    /// The run of the sidecar.
    #[serde(rename = "runId")]
    pub run_id: Cow<'a, str>,
    /// `ok`, or the reason word of the refusals that every call gets.
    #[serde(default)]
    pub status: Cow<'a, str>,
}

impl ReadyLine<'_> {
    /// Returns the line, without a newline.
    #[must_use]
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// Parses the first line of a sidecar; `None` if it is another line, or one without a run id.
    #[must_use]
    pub fn parse(line: &str) -> Option<ReadyLine<'static>> {
        serde_json::from_str(line).ok()
    }
}

impl Health<'_> {
    /// Returns the body.
    #[must_use]
    pub fn to_body(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// Parses a body; `None` if it is another answer.
    #[must_use]
    pub fn parse(body: &str) -> Option<Health<'static>> {
        serde_json::from_str(body).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_line_is_read_as_written() {
        let hardening = Hardening {
            capabilities: Measure::Applied,
            landlock: Measure::Partial,
            no_core: Measure::Applied,
            no_new_privileges: Measure::Applied,
            non_dumpable: Measure::Applied,
            seccomp: Measure::NotSupported,
        };
        let ready = ReadyLine {
            audit_public_key: Some("d75a".into()),
            build: "b".into(),
            event: ReadyEvent::Ready,
            hardening: Some(hardening),
            max_memory: None,
            pid: 7,
            policy: "sha256:0".into(),
            run_id: "r1".into(),
            socket: "/run/x.sock".into(),
            uid: 5,
            version: "0.1.0".into(),
        };
        let line = r#"{"audit_public_key":"d75a","build":"b","event":"ready","hardening":{"capabilities":"applied","landlock":"partial","no_core":"applied","no_new_privileges":"applied","non_dumpable":"applied","seccomp":"not_supported"},"max_memory":null,"pid":7,"policy":"sha256:0","run_id":"r1","socket":"/run/x.sock","uid":5,"version":"0.1.0"}"#;
        assert_eq!((ready.to_line(), ReadyLine::parse(line)), (line.to_owned(), Some(ready)));
    }

    #[test]
    fn other_lines_are_not_ready_lines() {
        let short = ReadyLine::parse(r#"{"event":"ready","run_id":"r1","new":1}"#);
        assert_eq!(short.map(|ready| ready.run_id), Some("r1".into()));
        for line in ["", "{}", r#"{"event":"checked","run_id":"r1"}"#, r#"{"event":"ready"}"#, r#"{"run_id":"r1"}"#] {
            assert_eq!(ReadyLine::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_health_answer_is_read_as_written() {
        let health = Health { run_id: "r1".into(), status: "ok".into() };
        let body = r#"{"runId":"r1","status":"ok"}"#;
        assert_eq!((health.to_body(), Health::parse(body)), (body.to_owned(), Some(health)));
        assert_eq!(Health::parse("{}"), None);
    }
}
