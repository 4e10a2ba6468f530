//! The client of a sidecar's control socket: the state of a sidecar that runs, and changes to it.
//!
//! The sidecars of daemon runs have a control socket. The socket outlives the daemon, so the next daemon reaches the
//! sidecar of an adopted run.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_contract::RunKey;
use sluice_contract::control::{
    CAPS_PATH, CLOCK_PATH, ControlFailure, DecideHold, HELD_PATH, HeldCall, LAST_ATTEMPT, NOT_LIMITED, NOT_RAISED,
    PAUSE_PATH, RaiseCaps, STATE_PATH, STOPPED_TOO_LONG, SetClock, SetPause, SidecarState, UNKNOWN_HOLD,
};
use sluice_state::layout::Layout;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

mod conversation;

/// Time within which a sidecar answers. It first syncs the record of a change.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Maximum length of an answer.
const ANSWER_MAX: u64 = 1 << 20;

/// The control socket of one sidecar. Each request has a connection of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarControl {
    socket: PathBuf,
}

/// Reason why a request to a sidecar failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The sidecar has ended, or was started without a control socket.
    #[error("its sidecar cannot be reached")]
    Unreachable(#[source] io::Error),
    /// The sidecar did not answer in time. A change may take effect even so.
    #[error("its sidecar did not answer within {} s", ANSWER_WITHIN.as_secs())]
    Silent,
    /// The sidecar refused, and nothing has changed. A compromised sidecar chooses these texts.
    #[error("its sidecar refused: {message}")]
    Refused {
        /// Stable word, such as [`sluice_contract::control::NOT_RAISED`].
        code: String,
        /// Message with the fault and the fix.
        message: String,
    },
    /// The answer is not one of a sidecar.
    #[error("its sidecar gave an answer that cannot be read")]
    Unreadable,
}

impl ControlError {
    /// Returns whether this was the client's last attempt, so that an answer to retry later would be useless.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == LAST_ATTEMPT)
    }

    /// Returns whether the change is unnecessary: the cap in force is higher, there is no such limit, or the clock was
    /// stopped for the maximum time.
    #[must_use]
    pub fn is_moot(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if [NOT_RAISED, NOT_LIMITED, STOPPED_TOO_LONG].contains(&code.as_str()))
    }

    /// Returns whether no sidecar listens.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        let absent = |cause: &io::Error| matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused);
        matches!(self, Self::Unreachable(cause) if absent(cause))
    }

    /// Returns whether the sidecar does not know the path: it has an older version, or no call of that name waits.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "not_found" || code == UNKNOWN_HOLD)
    }
}

impl SidecarControl {
    /// Returns the control socket of a run.
    #[must_use]
    pub fn of(layout: &Layout, key: &RunKey) -> Self {
        Self { socket: layout.run(key).control }
    }

    /// Returns the caps in force, what counts against them, and the deadline.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn state(&self) -> Result<SidecarState, ControlError> {
        self.request(&format!("GET {STATE_PATH}"), "").await
    }

    /// Raises caps. A repeated request changes nothing, and succeeds.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn raise_caps(&self, raise: &RaiseCaps) -> Result<SidecarState, ControlError> {
        self.request(&format!("POST {CAPS_PATH}"), &json(raise)).await
    }

    /// Stops or restarts the clock of the deadline. A repeated request changes nothing, and succeeds.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn set_clock(&self, clock: &SetClock) -> Result<SidecarState, ControlError> {
        self.request(&format!("POST {CLOCK_PATH}"), &json(clock)).await
    }

    /// Returns the calls that wait for a decision.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn held(&self) -> Result<Vec<HeldCall>, ControlError> {
        self.request(&format!("GET {HELD_PATH}"), "").await
    }

    /// Decides about a call that waits.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::is_unknown`] if it no longer waits.
    pub async fn decide_hold(&self, hold_id: &str, decision: &DecideHold) -> Result<SidecarState, ControlError> {
        // The id is a word, so it cannot end the line of the request.
        let is_word =
            !hold_id.is_empty() && hold_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if !is_word {
            return Err(ControlError::Unreadable);
        }
        self.request(&format!("POST {HELD_PATH}/{hold_id}"), &json(decision)).await
    }

    /// Stops new calls, or lets them through again. A repeated request changes nothing, and succeeds.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::is_unknown`] of a sidecar that was started by an older version.
    pub async fn set_pause(&self, pause: &SetPause) -> Result<SidecarState, ControlError> {
        self.request(&format!("POST {PAUSE_PATH}"), &json(pause)).await
    }

    async fn request<T: DeserializeOwned>(&self, line: &str, body: &str) -> Result<T, ControlError> {
        let answered = timeout(ANSWER_WITHIN, self.exchange(line, body)).await;
        let answer = answered.map_err(|_| ControlError::Silent)?.map_err(ControlError::Unreachable)?;
        read(&answer)
    }

    async fn exchange(&self, line: &str, body: &str) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}", body.len());
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

fn json(request: &impl Serialize) -> String {
    serde_json::to_string(request).expect("numbers and texts are JSON")
}

/// Reads the response of a sidecar: the requested value, or the error.
fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, ControlError> {
    let text = std::str::from_utf8(answer).map_err(|_| ControlError::Unreadable)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(ControlError::Unreadable)?;
    if head.starts_with("HTTP/1.1 200 ") {
        return serde_json::from_str(body).map_err(|_| ControlError::Unreadable);
    }
    let failure: ControlFailure = serde_json::from_str(body).map_err(|_| ControlError::Unreadable)?;
    Err(ControlError::Refused { code: failure.error.code, message: failure.error.message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    const STATE: &str = r#"{"caps":{"max_calls":9,"max_cost_usd":null,"max_tokens":null},"used":{"calls":1,"cost_usd":"0","reserved_cost_usd":"0","reserved_tokens":0,"tokens":7},"open_calls":0,"held_calls":0,"deadline":null,"draining":false,"later":1}"#;

    /// A sidecar that answers the next request like this, and returns the request.
    async fn answered(answer: String) -> (Result<SidecarState, ControlError>, String) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let socket = dir.path().join("control.sock");
        let listener = UnixListener::bind(&socket).expect("a fresh name");
        let raise = RaiseCaps { by: "alice".into(), reason: "more".into(), max_calls: Some(9), ..RaiseCaps::default() };
        let control = SidecarControl { socket };
        let serving = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = vec![0; 4096];
            let len = stream.read(&mut request).await.expect("a request");
            stream.write_all(answer.as_bytes()).await.expect("it reads");
            String::from_utf8_lossy(&request[..len]).into_owned()
        };
        tokio::join!(control.raise_caps(&raise), serving)
    }

    #[tokio::test]
    async fn a_raise_names_only_what_it_raises() {
        let (state, request) = answered(format!("HTTP/1.1 200 OK\r\n\r\n{STATE}")).await;
        assert_eq!(state.expect("it is granted").caps.max_calls, Some(9));
        assert!(request.starts_with("POST /caps HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\n{\"by\":\"alice\",\"reason\":\"more\",\"max_calls\":9}"), "{request}");
    }

    #[tokio::test]
    async fn a_refusal_has_its_word() {
        let body = format!(r#"{{"error":{{"code":"{NOT_RAISED}","message":"max_calls would be lowered"}}}}"#);
        let (refused, _) = answered(format!("HTTP/1.1 409 Conflict\r\n\r\n{body}")).await;
        assert!(matches!(refused, Err(ControlError::Refused { code, .. }) if code == NOT_RAISED));
    }

    #[tokio::test]
    async fn refusals_that_are_expected_are_told_apart() {
        for (code, unknown, last, moot) in [
            ("not_found", true, false, false),
            (UNKNOWN_HOLD, true, false, false),
            (LAST_ATTEMPT, false, true, false),
            (NOT_RAISED, false, false, true),
            (NOT_LIMITED, false, false, true),
            (STOPPED_TOO_LONG, false, false, true),
            ("audit_unavailable", false, false, false),
        ] {
            let body = format!(r#"{{"error":{{"code":"{code}","message":"no"}}}}"#);
            let (refused, _) = answered(format!("HTTP/1.1 409 Conflict\r\n\r\n{body}")).await;
            let refused = refused.expect_err("it is refused");
            let seen = (refused.is_unknown(), refused.is_last_attempt(), refused.is_moot());
            assert_eq!(seen, (unknown, last, moot), "{code}");
        }
    }

    #[tokio::test]
    async fn an_id_that_is_no_word_is_not_sent() {
        let control = SidecarControl { socket: "/nonexistent/control.sock".into() };
        let deny = DecideHold {
            decision: sluice_contract::control::HoldDecision::Deny,
            by: "alice".into(),
            reason: "no".into(),
        };
        for bad in ["", "a b", "a\r\nx: y", "../caps", "a/b"] {
            assert!(matches!(control.decide_hold(bad, &deny).await, Err(ControlError::Unreadable)), "{bad}");
        }
    }

    #[tokio::test]
    async fn other_answers_are_unreadable() {
        for answer in ["", "HTTP/1.1 200 OK\r\n\r\n{", "HTTP/1.1 500 Oops\r\n\r\n", "garbage"] {
            let (unreadable, _) = answered(answer.to_owned()).await;
            assert!(matches!(unreadable, Err(ControlError::Unreadable)), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_sidecar_that_has_ended_is_unreachable() {
        let control = SidecarControl { socket: "/nonexistent/control.sock".into() };
        assert!(matches!(control.state().await, Err(ControlError::Unreachable(_))));
    }
}
