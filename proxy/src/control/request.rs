//! The requests of the control socket: routes, and bodies with their rules.
//!
//! Pure.

use http::{Method, StatusCode};
use sluice_contract::Usd;
use sluice_contract::control::{
    CAPS_PATH, CLOCK_PATH, DecideHold, HELD_PATH, INJECT_PATH, INJECTED_PATH, INTERRUPT_PATH, PAUSE_PATH, RaiseCaps,
    STATE_PATH, SetClock, SetPause,
};
use sluice_contract::record::INTEGER_MAX;

use super::error::ControlRefusal;

/// Maximum length of the name of who asks, in bytes.
const BY_MAX: usize = 128;
/// Maximum length of a reason, in bytes.
const REASON_MAX: usize = 1000;
/// Maximum length of the id of a hold, in bytes.
const HOLD_ID_MAX: usize = 64;
/// Longest deadline, the same as for the flag.
const DEADLINE_MAX_S: u64 = 365 * 24 * 3600;

/// A path of the control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlRoute {
    State,
    Caps,
    Clock,
    Inject,
    Injected(u64),
    Interrupt,
    Pause,
    Held,
    Decide,
}

/// A change that is asked for, with all its members valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AskedChange {
    Caps(RaiseCaps, Option<i64>),
    Clock(SetClock),
    Pause(SetPause),
    Decide(DecideHold, String),
}

/// Finds the path, byte for byte; a query is not allowed, except for the number after which entries are asked for.
pub(super) fn route(method: &Method, path: &str) -> Result<ControlRoute, ControlRefusal> {
    let (route, allowed) = match path {
        STATE_PATH => (ControlRoute::State, Method::GET),
        CAPS_PATH => (ControlRoute::Caps, Method::POST),
        CLOCK_PATH => (ControlRoute::Clock, Method::POST),
        INJECT_PATH => (ControlRoute::Inject, Method::PUT),
        INTERRUPT_PATH => (ControlRoute::Interrupt, Method::POST),
        _ if let Some(after) = after(path) => (ControlRoute::Injected(after), Method::GET),
        PAUSE_PATH => (ControlRoute::Pause, Method::POST),
        HELD_PATH => (ControlRoute::Held, Method::GET),
        path if hold_id(path).is_some() => (ControlRoute::Decide, Method::POST),
        _ => {
            let message = "the control socket has GET /state, POST /caps, POST /clock, POST /pause, GET /held, POST /held/ID, \
                           PUT /inject, GET /injected and POST /interrupt";
            return Err(ControlRefusal::new(StatusCode::NOT_FOUND, "not_found", message));
        }
    };
    if *method == allowed {
        return Ok(route);
    }
    let message = format!("use {allowed}");
    Err(ControlRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message))
}

/// Returns the number in the path of the entries; 0 if it has none.
fn after(path: &str) -> Option<u64> {
    match path.strip_prefix(INJECTED_PATH)? {
        "" => Some(0),
        query => query.strip_prefix("?after=")?.parse().ok(),
    }
}

/// Returns the id of the hold in `/held/ID`.
pub(super) fn hold_id(path: &str) -> Option<&str> {
    let id = path.strip_prefix(HELD_PATH)?.strip_prefix('/')?;
    let is_plain = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    (is_plain && (1..=HOLD_ID_MAX).contains(&id.len())).then_some(id)
}

impl AskedChange {
    /// Parses the body of a request to raise caps.
    pub(super) fn caps(body: &[u8]) -> Result<Self, ControlRefusal> {
        let asked = RaiseCaps::from_json(body).map_err(|error| unreadable(&error))?;
        needed_names(&asked.by, &asked.reason)?;
        let nanos = asked.max_cost_usd.as_deref().map(nanos).transpose()?;
        for (name, value, most) in [
            ("max_calls", asked.max_calls, INTEGER_MAX),
            ("max_tokens", asked.max_tokens, INTEGER_MAX),
            ("deadline_s", asked.deadline_s, DEADLINE_MAX_S),
        ] {
            if value.is_some_and(|value| value > most) {
                return Err(ControlRefusal::invalid(format!("{name} is over {most}")));
            }
        }
        if nanos.is_none() && [asked.max_calls, asked.max_tokens, asked.deadline_s] == [None; 3] {
            return Err(ControlRefusal::invalid(
                "give one of max_calls, max_tokens, max_cost_usd and deadline_s at least",
            ));
        }
        Ok(Self::Caps(asked, nanos))
    }

    /// Parses the body of a request to stop the clock, or to let it go on.
    pub(super) fn clock(body: &[u8]) -> Result<Self, ControlRefusal> {
        let asked = SetClock::from_json(body).map_err(|error| unreadable(&error))?;
        names(asked.by.as_deref(), asked.reason.as_deref())?;
        Ok(Self::Clock(asked))
    }

    /// Parses the body of a request to pause the run, or to let it go on.
    pub(super) fn pause(body: &[u8]) -> Result<Self, ControlRefusal> {
        let asked = SetPause::from_json(body).map_err(|error| unreadable(&error))?;
        needed_names(&asked.by, &asked.reason)?;
        Ok(Self::Pause(asked))
    }

    /// Parses the body of a decision on the hold that the path names.
    pub(super) fn decide(body: &[u8], path: &str) -> Result<Self, ControlRefusal> {
        let asked = DecideHold::from_json(body).map_err(|error| unreadable(&error))?;
        needed_names(&asked.by, &asked.reason)?;
        Ok(Self::Decide(asked, hold_id(path).unwrap_or_default().to_owned()))
    }

    /// Returns who asks, and why.
    pub(super) fn names(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Caps(asked, _) => (Some(&asked.by), Some(&asked.reason)),
            Self::Clock(asked) => (asked.by.as_deref(), asked.reason.as_deref()),
            Self::Pause(asked) => (Some(&asked.by), Some(&asked.reason)),
            Self::Decide(asked, _) => (Some(&asked.by), Some(&asked.reason)),
        }
    }
}

/// Returns the answer to a body that cannot be read.
pub(super) fn unreadable(error: &serde_json::Error) -> ControlRefusal {
    if error.is_data() {
        ControlRefusal::invalid(error.to_string())
    } else {
        ControlRefusal::new(StatusCode::BAD_REQUEST, "invalid_json", format!("want one JSON object: {error}"))
    }
}

/// Refuses texts that [`names`] refuses, and empty texts.
fn needed_names(by: &str, reason: &str) -> Result<(), ControlRefusal> {
    names(Some(by), Some(reason))?;
    if by.is_empty() || reason.is_empty() {
        return Err(ControlRefusal::invalid("by and reason must not be empty"));
    }
    Ok(())
}

/// Refuses texts that would make a record long: escapes of control characters take six bytes each.
pub(super) fn names(by: Option<&str>, reason: Option<&str>) -> Result<(), ControlRefusal> {
    for (name, text, most) in [("by", by, BY_MAX), ("reason", reason, REASON_MAX)] {
        let text = text.unwrap_or_default();
        if text.len() > most {
            return Err(ControlRefusal::invalid(format!("{name} has more than {most} bytes")));
        }
        if text.chars().any(char::is_control) {
            return Err(ControlRefusal::invalid(format!("{name} has control characters")));
        }
    }
    Ok(())
}

fn nanos(text: &str) -> Result<i64, ControlRefusal> {
    let amount = Usd::parse(text).ok().filter(Usd::is_countable);
    amount.map(|amount| amount.to_nanos()).ok_or_else(|| {
        ControlRefusal::invalid("max_cost_usd is not an amount of dollars; write a decimal such as \"2.50\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: Result<T, ControlRefusal>) -> (u16, &'static str) {
        result.err().map_or((200, "ok"), |refusal| (refusal.status.as_u16(), refusal.code))
    }

    #[test]
    fn each_path_has_one_method() {
        for (method, path, expected) in [
            (Method::GET, "/state", (200, "ok")),
            (Method::POST, "/caps", (200, "ok")),
            (Method::POST, "/clock", (200, "ok")),
            (Method::PUT, "/inject", (200, "ok")),
            (Method::POST, "/inject", (405, "method_not_allowed")),
            (Method::GET, "/injected", (200, "ok")),
            (Method::GET, "/injected?after=17", (200, "ok")),
            (Method::GET, "/injected?after=x", (404, "not_found")),
            (Method::GET, "/injected?before=1", (404, "not_found")),
            (Method::POST, "/interrupt", (200, "ok")),
            (Method::POST, "/state", (405, "method_not_allowed")),
            (Method::GET, "/caps", (405, "method_not_allowed")),
            (Method::POST, "/pause", (200, "ok")),
            (Method::GET, "/held", (200, "ok")),
            (Method::POST, "/held/hold-0123456789ab", (200, "ok")),
            (Method::GET, "/held/hold-0123456789ab", (405, "method_not_allowed")),
            (Method::POST, "/held/", (404, "not_found")),
            (Method::POST, "/held/a/b", (404, "not_found")),
            (Method::POST, "/held/a%2fb", (404, "not_found")),
            (Method::GET, "/state/", (404, "not_found")),
            (Method::GET, "//state", (404, "not_found")),
            (Method::GET, "/health", (404, "not_found")),
            (Method::POST, "/v1/chat/completions", (404, "not_found")),
        ] {
            assert_eq!(code(route(&method, path)), expected, "{method} {path}");
        }
    }

    #[test]
    fn bodies_are_checked_member_by_member() {
        let long = format!(r#"{{"by":"{}","reason":"r","max_calls":1}}"#, "b".repeat(129));
        for (body, expected) in [
            (r#"{"by":"b","reason":"r","max_calls":1}"#, (200, "ok")),
            (r#"{"by":"b","reason":"r","max_cost_usd":"0.1","deadline_s":9,"max_tokens":2}"#, (200, "ok")),
            (r#"{"by":"b","reason":"r"}"#, (422, "invalid_member")),
            (r#"{"by":"b","max_calls":1}"#, (422, "invalid_member")),
            (r#"{"by":"","reason":"r","max_calls":1}"#, (422, "invalid_member")),
            (r#"{"by":"b","reason":"r","max_calls":-1}"#, (422, "invalid_member")),
            (r#"{"by":"b","reason":"r","max_calls":1.5}"#, (422, "invalid_member")),
            (r#"{"by":"b","reason":"r","max_calls":9007199254740992}"#, (422, "invalid_member")),
            (r#"{"by":"b","reason":"r","deadline_s":31536001}"#, (422, "invalid_member")),
            (r#"{"by":"b","reason":"r","max_cost_usd":0.1}"#, (422, "invalid_member")),
            (r#"{"by":"b","reason":"r","max_cost_usd":"-1"}"#, (422, "invalid_member")),
            (r#"{"by":"b","reason":"r","max_cost_usd":"1e20"}"#, (422, "invalid_member")),
            (r#"{"by":"b","reason":"r","max_calls":1,"max_calls":2}"#, (422, "invalid_member")),
            (r#"{"by":"b\n","reason":"r","max_calls":1}"#, (422, "invalid_member")),
            (&long, (422, "invalid_member")),
            (r#"{"by":"b","reason":"r","max_calls":1,"rate":2}"#, (422, "invalid_member")),
            ("", (400, "invalid_json")),
            ("{", (400, "invalid_json")),
            ("\u{0}", (400, "invalid_json")),
            (r#"{"by":"b","reason":"r","max_calls":1} {}"#, (400, "invalid_json")),
            ("[]", (422, "invalid_member")),
        ] {
            assert_eq!(code(AskedChange::caps(body.as_bytes())), expected, "{body}");
        }
        assert_eq!(code(AskedChange::clock(br#"{"stopped":true}"#)), (200, "ok"));
        assert_eq!(code(AskedChange::clock(br#"{"stopped":1}"#)), (422, "invalid_member"));
        assert_eq!(code(AskedChange::clock(br#"{}"#)), (422, "invalid_member"));
        for (body, expected) in [
            (r#"{"by":"b","reason":"r","decision":"deny"}"#, (200, "ok")),
            (r#"{"by":"b","reason":"r","decision":"approve"}"#, (422, "invalid_member")),
            (r#"{"by":"b","reason":"","decision":"deny"}"#, (422, "invalid_member")),
            (r#"{"by":"b","reason":"r"}"#, (422, "invalid_member")),
        ] {
            assert_eq!(code(AskedChange::decide(body.as_bytes(), "/held/hold-1")), expected, "{body}");
        }
        assert_eq!(code(AskedChange::pause(br#"{"by":"b","reason":"r","paused":true}"#)), (200, "ok"));
        assert_eq!(code(AskedChange::pause(br#"{"paused":true}"#)), (422, "invalid_member"));
    }

    #[test]
    fn an_unknown_member_is_named() {
        let refusal = AskedChange::caps(br#"{"by":"b","reason":"r","max_calls":1,"rate":2}"#).expect_err("no such cap");
        assert!(refusal.message.contains("`rate`"), "{}", refusal.message);
    }
}
