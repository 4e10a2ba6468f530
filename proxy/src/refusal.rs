//! Refusals: one reason word, its status, its text.
//!
//! Pure. The same word is in the body's `code`, in the header `x-sluice-reason` and in the audit log. Only this file
//! turns a reason into a status, and a refusal into JSON.

use std::borrow::Cow;

use http::StatusCode;
use sluice_contract::reason::{APPROVAL_PENDING, AUDIT_UNAVAILABLE, BUDGET_EXCEEDED, DRAINING, PAUSED};

/// Error format that a caller expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `{"error":{"message","type","code","param"}}`
    OpenAi,
    /// `{"type":"error","error":{"type","message"}}`
    Anthropic,
    /// The message as plain text, which git shows to its user.
    Git,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:tt $status:ident),* $(,)?) => {
        /// Reason of a refusal. The words are stable: scripts, dashboards and agents match on them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $name),* }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the word.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }

            /// Returns the HTTP status.
            #[must_use]
            pub fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status),* }
            }
        }
    };
}

reasons! {
    /// The request head does not parse, or its framing can be read in two ways.
    BadRequest = "bad_request" BAD_REQUEST,
    /// The request line and headers are larger than 64 KiB, or there are more than 100 headers.
    HeadTooLarge = "head_too_large" REQUEST_HEADER_FIELDS_TOO_LARGE,
    /// The request did not arrive in time.
    RequestTimeout = "request_timeout" REQUEST_TIMEOUT,
    /// The caller is another user on the host.
    PeerNotAllowed = "peer_not_allowed" FORBIDDEN,
    /// The path is not allowed, though the upstream may have it.
    RouteNotAllowed = "route_not_allowed" NOT_FOUND,
    /// A model was asked for by its id, and this run may not use it or the upstream does not have it.
    ModelNotFound = "model_not_found" NOT_FOUND,
    /// This run has not received the id of a stored object in a response.
    UnknownId = "unknown_id" NOT_FOUND,
    /// The path exists, but not with this method.
    MethodNotAllowed = "method_not_allowed" METHOD_NOT_ALLOWED,
    /// An upgrade, such as a WebSocket. Clients that can do without one, such as Codex, use plain HTTP after a 426
    /// only.
    UpgradeNotAllowed = "upgrade_not_allowed" UPGRADE_REQUIRED,
    /// The relayed path belongs to another run.
    NotOwnRun = "not_own_run" FORBIDDEN,
    /// A fetch from the run's repository, which takes only a push.
    PushOnly = "push_only" FORBIDDEN,
    /// The request body is compressed.
    EncodingNotAllowed = "content_encoding_not_allowed" UNSUPPORTED_MEDIA_TYPE,
    /// The body is larger than `--max-body`.
    BodyTooLarge = "body_too_large" PAYLOAD_TOO_LARGE,
    /// The body is not one JSON object.
    InvalidJson = "invalid_json" BAD_REQUEST,
    /// The same member is there twice: parsers disagree on which one counts.
    DuplicateMember = "duplicate_member" BAD_REQUEST,
    /// A member that redirects, re-keys, re-prices, amplifies or hides a call.
    ParamNotAllowed = "param_not_allowed" BAD_REQUEST,
    /// A public member has a value that is not valid.
    InvalidParam = "invalid_param" BAD_REQUEST,
    /// The model is not one that this run may use, or there are several.
    ModelNotAllowed = "model_not_allowed" BAD_REQUEST,
    /// A tool that the provider or the gateway would run.
    ToolNotAllowed = "tool_not_allowed" BAD_REQUEST,
    /// A URL that the provider or the gateway would fetch.
    RemoteMediaNotAllowed = "remote_media_not_allowed" BAD_REQUEST,
    /// The run's calls, tokens or dollars are spent or reserved.
    BudgetExceeded = BUDGET_EXCEEDED PAYMENT_REQUIRED,
    /// The operator ended the call. A client that repeats the same request within a minute gets the same answer.
    Interrupted = "interrupted" BAD_REQUEST,
    /// The run is at a cap, and a person was asked to raise it; the client is to try again.
    ApprovalPending = APPROVAL_PENDING SERVICE_UNAVAILABLE,
    /// The run is paused; the client is to try again.
    Paused = PAUSED SERVICE_UNAVAILABLE,
    /// The calls come faster than `--rate`.
    RateLimited = "rate_limited" TOO_MANY_REQUESTS,
    /// There are more calls at once than `--max-concurrency`, or more body bytes at once than the budget.
    TooManyCalls = "too_many_calls" TOO_MANY_REQUESTS,
    /// The requests to the controller are too many at once, or too fast.
    RelayBusy = "relay_busy" TOO_MANY_REQUESTS,
    /// The controller does not answer. Calls of models are not affected.
    ControllerUnavailable = "controller_unavailable" SERVICE_UNAVAILABLE,
    /// The sidecar is stopping.
    Draining = DRAINING SERVICE_UNAVAILABLE,
    /// The audit log cannot be written, so nothing may be sent.
    AuditUnavailable = AUDIT_UNAVAILABLE SERVICE_UNAVAILABLE,
    /// There is no connection to the upstream.
    UpstreamUnreachable = "upstream_unreachable" BAD_GATEWAY,
    /// The upstream broke off before its response.
    UpstreamClosed = "upstream_closed" BAD_GATEWAY,
    /// The upstream was silent for too long.
    UpstreamTimeout = "upstream_timeout" GATEWAY_TIMEOUT,
    /// The upstream refused the sidecar's key with status 401, or the key, the model or the route with status 403.
    UpstreamAuth = "upstream_auth" BAD_GATEWAY,
    /// The upstream answered with a redirect, which is not followed.
    UpstreamRedirect = "upstream_redirect" BAD_GATEWAY,
    /// The response of the upstream has a form that cannot be checked.
    UpstreamUnreadable = "upstream_unreadable" BAD_GATEWAY,
}

/// Methods of a path, one bit each: a refusal takes memory in every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Methods(u8);

impl Methods {
    const NAMES: [&str; 4] = ["GET", "HEAD", "POST", "DELETE"];

    /// Adds a method that a route can have.
    #[must_use]
    pub fn with(self, method: &str) -> Self {
        Self(Self::NAMES.iter().position(|name| *name == method).map_or(self.0, |place| self.0 | 1 << place))
    }

    /// Returns true if there is no method.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl std::fmt::Display for Methods {
    /// Writes the value of the header `Allow`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut separator = "";
        for (_, name) in Self::NAMES.iter().enumerate().filter(|(place, _)| self.0 & 1 << place != 0) {
            write!(f, "{separator}{name}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// A request that is refused, at the start or later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Reason of the refusal.
    pub reason: Reason,
    /// Message for the person who reads the agent's log: what happened, and what to do.
    pub message: Cow<'static, str>,
    /// Name of the body member at fault, if there is one.
    pub param: Option<Box<str>>,
    /// Type or name of the tool at fault.
    pub tool: Option<Box<str>>,
    /// Name of the requested model, if it was read before the refusal.
    pub model: Option<Box<str>>,
    /// Seconds after which to try again, if that can help.
    pub retry_after: Option<u32>,
    /// Methods that the path takes, if the requested one is not among them.
    pub allow: Methods,
    /// Denial of the call by a person, if there is one.
    pub denial: Denial,
}

/// Denial of a call that waited for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Denial {
    /// The call was not denied.
    #[default]
    None,
    /// The call is denied now.
    First,
    /// The call repeats a denied one: it counts nowhere.
    Repeated,
}

impl Refusal {
    /// Creates a refusal with its message.
    pub fn new(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason,
            message: message.into(),
            param: None,
            tool: None,
            model: None,
            retry_after: None,
            allow: Methods::default(),
            denial: Denial::None,
        }
    }

    /// Makes the refusal the denial of a held call. Its status is 400, the only one that all clients treat as final.
    #[must_use]
    pub fn denied(mut self, denial: Denial) -> Self {
        self.denial = denial;
        self
    }

    /// Returns the HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        if self.denial == Denial::None { self.reason.status() } else { StatusCode::BAD_REQUEST }
    }

    /// Creates the refusal of a run that takes no more calls.
    #[must_use]
    pub fn draining() -> Self {
        Self::new(Reason::Draining, "the run is ending; no new calls")
    }

    /// Creates the refusal of a call that the operator ended.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(Reason::Interrupted, "the operator interrupted this call; do not repeat it, go on with the next step")
    }

    /// Creates the refusal of a run whose audit log cannot be written.
    #[must_use]
    pub fn audit_unavailable() -> Self {
        Self::new(
            Reason::AuditUnavailable,
            "the audit log cannot be written, so no call may be made; the operator has to act",
        )
    }

    /// Replaces the message.
    #[must_use]
    pub fn with_message(mut self, message: String) -> Self {
        self.message = message.into();
        self
    }

    /// Names the body member at fault.
    #[must_use]
    pub fn param(mut self, name: &str) -> Self {
        self.param = bounded(name);
        self
    }

    /// Names the tool at fault, by its type or its name.
    #[must_use]
    pub fn tool(mut self, name: &str) -> Self {
        self.tool = bounded(name);
        self
    }

    /// Names the requested model, unless the refusal names one already.
    #[must_use]
    pub fn for_model(mut self, name: Option<&str>) -> Self {
        self.model = self.model.or_else(|| bounded(name?));
        self
    }

    /// Names the methods that the path takes.
    #[must_use]
    pub fn allow(mut self, methods: Methods) -> Self {
        self.allow = methods;
        self
    }

    /// Sets the seconds after which to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    /// Returns the body, in the caller's dialect.
    #[must_use]
    pub fn body(&self, dialect: Dialect) -> String {
        let status = self.status();
        let (code, message, param) = (self.reason.as_str(), &self.message, &self.param);
        match dialect {
            Dialect::Git => return format!("{message}\n"),
            Dialect::OpenAi => serde_json::json!({
                "error": { "message": message, "type": openai_type(status), "param": param, "code": code },
            }),
            Dialect::Anthropic => serde_json::json!({
                "type": "error",
                "error": { "type": anthropic_type(status), "message": format!("{message} [{code}]"), "code": code, "param": param },
            }),
        }
        .to_string()
    }

    /// Returns `Some(false)` if a repeated request can never succeed, `Some(true)` if the client is to repeat it, and
    /// `None` to leave it to the SDK.
    #[must_use]
    pub fn should_retry(&self) -> Option<bool> {
        match self.reason {
            _ if self.denial != Denial::None => Some(false),
            Reason::Draining
            | Reason::AuditUnavailable
            | Reason::UpstreamAuth
            | Reason::UpstreamRedirect
            | Reason::Interrupted => Some(false),
            Reason::ApprovalPending | Reason::Paused => Some(true),
            _ => None,
        }
    }
}

/// Maximum length of a name in a refusal, in bytes.
const NAME_MAX: usize = 64;

/// Returns a name from a body, fit for a line of the log: without control characters, and cut. `None` if nothing is
/// left.
fn bounded(name: &str) -> Option<Box<str>> {
    let printable = name.chars().filter(|c| !c.is_control());
    let mut bounded = String::new();
    for c in printable {
        if bounded.len() + c.len_utf8() > NAME_MAX {
            break;
        }
        bounded.push(c);
    }
    (!bounded.is_empty()).then(|| bounded.into())
}

fn openai_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        402 => "insufficient_quota",
        403 => "permission_error",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    }
}

fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        let words: HashSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        assert!(words.iter().all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
        assert!(Reason::ALL.iter().all(|reason| reason.status().as_u16() >= 400));
    }

    #[test]
    fn each_caller_gets_its_own_shape() {
        let refusal = Refusal::new(Reason::ParamNotAllowed, "leave it out").param("api_base");
        assert_eq!(
            refusal.body(Dialect::OpenAi),
            r#"{"error":{"code":"param_not_allowed","message":"leave it out","param":"api_base","type":"invalid_request_error"}}"#
        );
        assert_eq!(
            refusal.body(Dialect::Anthropic),
            r#"{"error":{"code":"param_not_allowed","message":"leave it out [param_not_allowed]","param":"api_base","type":"invalid_request_error"},"type":"error"}"#
        );
    }

    #[test]
    fn names_are_bounded_and_have_no_control_characters() {
        let long = "x".repeat(65);
        for (name, expected) in [
            ("web_search", Some("web_search")),
            ("a\u{1b}[31m\nb\u{9b}\0", Some("a[31mb")),
            ("\r\n", None),
            ("", None),
            (&long, Some(&long[..64])),
            (&"é".repeat(40), Some(&*"é".repeat(32))),
        ] {
            let refusal = Refusal::new(Reason::ToolNotAllowed, "").param(name).tool(name).for_model(Some(name));
            for found in [refusal.param, refusal.tool, refusal.model] {
                assert_eq!(found.as_deref(), expected, "{name:?}");
            }
        }
        let refusal = Refusal::new(Reason::ModelNotAllowed, "").for_model(Some("a")).for_model(Some("b"));
        assert_eq!(refusal.for_model(None).model.as_deref(), Some("a"));
    }
}
