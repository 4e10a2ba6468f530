//! Parsers of the settings for runs of the daemon.
//!
//! Pure.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use sluice_daemon::chat_settings::{HangUp, RemoteContent, SessionCarry};
use sluice_daemon::on_cap::CapTreatment;
use sluice_runs::sandbox_user::SandboxUsers;

use super::error::InvalidValue;
use super::values;

type Parsed<T> = Result<T, InvalidValue>;

/// Minimum bytes of a workspace.
const WORKSPACE_MIN: u64 = 1 << 20;
/// Maximum time of a daemon's run.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Maximum time for which the worker of a chat session may wait.
const IDLE_MAX: Duration = Duration::from_secs(12 * 3600);
/// Hexadecimal digits of a SHA-256.
const DIGEST_LENGTH: usize = 64;

/// The highest limits that requests may name; none where nothing is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the members")]
pub struct HighestLimits {
    pub timeout: Option<Duration>,
    pub memory: Option<u64>,
    pub cpu_millis: Option<u64>,
    pub pids: Option<u64>,
    pub max_calls: Option<u64>,
    pub max_tokens: Option<u64>,
    pub max_concurrency: Option<u64>,
    /// Calls a second, such as `5/s`.
    pub rate: Option<String>,
    /// Nano-USD.
    pub max_cost: Option<i64>,
    /// Bytes of a workspace on disk.
    pub workspace: Option<u64>,
}

/// Maximum numbers of running runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningMax {
    /// Maximum number on this host.
    pub host: u32,
    /// Maximum number of one owner.
    pub owner: u32,
    /// Maximum number of one project.
    pub project: u32,
}

impl Default for RunningMax {
    fn default() -> Self {
        Self { host: 20, owner: 20, project: 5 }
    }
}

fn invalid<T>(reason: String) -> Parsed<T> {
    Err(InvalidValue::new(reason))
}

/// Parses the treatment of images and HTML in an agent's text.
pub(super) fn chat_remote(value: &str) -> Parsed<RemoteContent> {
    match value {
        "defang" => Ok(RemoteContent::Defang),
        "keep" => Ok(RemoteContent::Keep),
        _ => invalid(format!("'{value}' is neither defang nor keep")),
    }
}

/// Parses the behaviour for a run whose chat client has hung up.
pub(super) fn chat_hang_up(value: &str) -> Parsed<HangUp> {
    match value {
        "cancel" => Ok(HangUp::Cancel),
        "keep" => Ok(HangUp::Keep),
        _ => invalid(format!("'{value}' is neither cancel nor keep")),
    }
}

/// Parses the state that a turn of a chat passes to the next one of its session.
pub(super) fn chat_session(value: &str) -> Parsed<SessionCarry> {
    match value {
        "workspace" => Ok(SessionCarry::Workspace),
        "worker" => Ok(SessionCarry::Worker),
        "none" => Ok(SessionCarry::Nothing),
        _ => invalid(format!("'{value}' is none of workspace, worker and none")),
    }
}

/// Parses the time without a turn after which the worker of a chat session ends.
pub(super) fn chat_session_idle(value: &str) -> Parsed<Duration> {
    let idle = values::positive_duration(value)?;
    if idle <= IDLE_MAX { Ok(idle) } else { invalid(format!("'{value}' is longer than 12h")) }
}

/// Parses `NAME=VALUE` words.
pub(super) fn limits_max(value: &str) -> Parsed<HighestLimits> {
    let mut highest = HighestLimits::default();
    for word in value.split_whitespace() {
        let (name, value) = member(word)?;
        set(&mut highest, name, value).map_err(|reason| InvalidValue::new(format!("{name}: {reason}")))?;
    }
    Ok(highest)
}

fn set(highest: &mut HighestLimits, name: &str, value: &str) -> Parsed<()> {
    match name {
        "timeout" => highest.timeout = Some(deadline(value)?),
        "memory" => highest.memory = Some(values::memory(value)?),
        "cpus" => highest.cpu_millis = Some(values::cpus(value)?),
        "pids" => highest.pids = Some(values::pids(value)?),
        "max_calls" => highest.max_calls = Some(positive(value)?),
        "max_tokens" => highest.max_tokens = Some(positive(value)?),
        "max_concurrency" => highest.max_concurrency = Some(positive(value)?),
        "rate" => highest.rate = Some(rate(value)?),
        "workspace" => highest.workspace = Some(workspace_max(value)?),
        "max_cost_usd" => match values::nano_usd(value)? {
            0 => return invalid("a run without money makes no call; leave it out".to_owned()),
            nanos => highest.max_cost = Some(nanos),
        },
        _ => {
            return invalid(
                "there is no such limit; there are timeout, memory, cpus, pids, max_calls, max_tokens, max_concurrency, \
                 rate, workspace, max_cost_usd"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// Parses the bytes that a workspace may take on disk.
pub(super) fn workspace_max(value: &str) -> Parsed<u64> {
    let bytes = values::size(value)?;
    if bytes >= WORKSPACE_MIN { Ok(bytes) } else { invalid(format!("'{value}' is less than 1m, which no run can use")) }
}

/// Parses a number for the host, or `NAME=VALUE` words.
pub(super) fn max_running(value: &str) -> Parsed<RunningMax> {
    let mut max = RunningMax::default();
    if let Ok(host) = value.trim().parse() {
        return Ok(RunningMax { host: at_least_one(host)?, ..max });
    }
    for word in value.split_whitespace() {
        let (name, value) = member(word)?;
        let place = match name {
            "host" => &mut max.host,
            "owner" => &mut max.owner,
            "project" => &mut max.project,
            _ => return invalid(format!("there is no limit of runs named {name}; there are host, owner, project")),
        };
        *place = count(value)?;
    }
    Ok(max)
}

/// Parses a number of runs.
pub(super) fn count(value: &str) -> Parsed<u32> {
    match value.parse() {
        Ok(count) => at_least_one(count),
        Err(_) => invalid(format!("'{value}' is not a number of runs")),
    }
}

fn at_least_one(count: u32) -> Parsed<u32> {
    if count == 0 { invalid("0 would let no run begin; give at least 1".to_owned()) } else { Ok(count) }
}

fn member(word: &str) -> Parsed<(&str, &str)> {
    let split = word.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    split.ok_or_else(|| InvalidValue::new(format!("'{word}' is not NAME=VALUE")))
}

fn positive(value: &str) -> Parsed<u64> {
    match values::number(value)? {
        0 => invalid("0 would allow no call; give at least 1".to_owned()),
        number => Ok(number),
    }
}

/// Parses calls a second, as the sidecar does.
fn rate(value: &str) -> Parsed<String> {
    match value.strip_suffix("/s").unwrap_or(value).parse::<u64>() {
        Ok(rate @ 1..=1_000_000) => Ok(format!("{rate}/s")),
        _ => invalid(format!("'{value}' is not a rate; write calls a second, such as 5/s")),
    }
}

/// Parses the maximum time of a run: more than zero, at most a day.
pub(super) fn deadline(value: &str) -> Parsed<Duration> {
    match values::positive_duration(value)? {
        time if time > DEADLINE_MAX => invalid(format!("'{value}' is too long; a run of the daemon has at most 24h")),
        time if time < Duration::from_secs(1) => invalid(format!("'{value}' is too short; give at least 1s")),
        time => Ok(time),
    }
}

/// Parses the time for which approvals and questions are open.
pub(super) fn ask_timeout(value: &str) -> Parsed<Duration> {
    match values::positive_duration(value)? {
        time if time > DEADLINE_MAX => {
            invalid(format!("'{value}' is too long; the clocks of a run are stopped for at most 24h"))
        }
        time => Ok(time),
    }
}

/// Parses the treatment of a call at a cap.
pub(super) fn on_cap(value: &str) -> Parsed<CapTreatment> {
    match value {
        "refuse" => Ok(CapTreatment::Refuse),
        "ask" => Ok(CapTreatment::Ask),
        _ => invalid(format!("'{value}' is neither refuse nor ask")),
    }
}

/// Returns images that are named by their digest: a name can mean another image tomorrow.
pub(super) fn images(value: &str) -> Parsed<Vec<String>> {
    value.split_whitespace().map(image).collect()
}

fn image(word: &str) -> Parsed<String> {
    let (name, digest) = match word.split_once('@') {
        Some((name, digest)) => (Some(name), digest),
        None => (None, word),
    };
    let hex = digest.strip_prefix("sha256:").unwrap_or_default();
    let is_hex = hex.len() == DIGEST_LENGTH && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex && name != Some("") {
        return Ok(word.to_owned());
    }
    invalid(format!(
        "'{word}' names no digest; write NAME@sha256:…, or the id sha256:… of a local image; docker image inspect --format \
         '{{{{.RepoDigests}}}} {{{{.Id}}}}' shows both"
    ))
}

/// Returns directories as absolute paths without `.` and `..`.
pub(super) fn grant_roots(value: &str) -> Parsed<Vec<PathBuf>> {
    value.split(':').filter(|path| !path.is_empty()).map(grant_root).collect()
}

fn grant_root(text: &str) -> Parsed<PathBuf> {
    let path = Path::new(text);
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !is_plain {
        return invalid(format!("'{text}' is not an absolute path without . and .."));
    }
    if path == Path::new("/") {
        return invalid("'/' is the whole host; name directories".to_owned());
    }
    Ok(path.components().collect())
}

pub(super) fn sandbox_users(value: &str) -> Parsed<SandboxUsers> {
    value.parse().map_err(InvalidValue::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_by_their_digest() {
        let hex = "0123456789abcdef".repeat(4);
        for good in [format!("sha256:{hex}"), format!("a/b:1@sha256:{hex}"), format!("localhost:5000/a@sha256:{hex}")] {
            assert_eq!(images(&good), Ok(vec![good]));
        }
        for bad in ["a:1".to_owned(), format!("@sha256:{hex}"), format!("a@sha256:{}", &hex[1..]), "sha256:".to_owned()]
        {
            let error = images(&bad).expect_err(&bad).to_string();
            assert!(error.contains("{{.RepoDigests}}"), "{error}");
        }
    }

    #[test]
    fn limits_are_words_with_values() {
        let all = "timeout=3h memory=4g cpus=2.5 pids=1024 max_calls=100 max_tokens=2000 max_concurrency=8 rate=5 \
                   workspace=20g max_cost_usd=1.5";
        let expected = HighestLimits {
            timeout: Some(Duration::from_secs(3 * 3600)),
            memory: Some(4 << 30),
            cpu_millis: Some(2500),
            pids: Some(1024),
            max_calls: Some(100),
            max_tokens: Some(2000),
            max_concurrency: Some(8),
            rate: Some("5/s".to_owned()),
            max_cost: Some(1_500_000_000),
            workspace: Some(20 << 30),
        };
        assert_eq!(limits_max(all), Ok(expected));
        assert_eq!(limits_max(""), Ok(HighestLimits::default()));
        for (bad, reason) in [
            ("memory", "'memory' is not NAME=VALUE"),
            ("disk=1g", "disk: there is no such limit"),
            ("timeout=25h", "timeout: '25h' is too long"),
            ("max_calls=0", "max_calls: 0 would allow no call"),
            ("workspace=1k", "workspace: '1k' is less than 1m"),
            ("max_cost_usd=0", "max_cost_usd: a run without money"),
            ("rate=fast", "rate: 'fast' is not a rate"),
        ] {
            let error = limits_max(bad).expect_err(bad).to_string();
            assert!(error.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn numbers_of_runs_have_defaults() {
        assert_eq!(max_running("4"), Ok(RunningMax { host: 4, owner: 20, project: 5 }));
        assert_eq!(max_running("owner=2 project=1"), Ok(RunningMax { host: 20, owner: 2, project: 1 }));
        for bad in ["0", "host=0", "team=1", "host", "-1"] {
            assert!(max_running(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn people_are_asked_for_a_day_at_most() {
        assert_eq!(ask_timeout("24h"), Ok(Duration::from_secs(24 * 3600)));
        assert!(ask_timeout("25h").is_err() && ask_timeout("0").is_err());
        assert_eq!((on_cap("ask"), on_cap("refuse")), (Ok(CapTreatment::Ask), Ok(CapTreatment::Refuse)));
        assert!(on_cap("Ask").is_err());
    }

    #[test]
    fn roots_of_grants_are_plain_paths() {
        assert_eq!(grant_roots("/srv/data/:/mnt//x"), Ok(vec!["/srv/data".into(), "/mnt/x".into()]));
        assert_eq!(grant_roots(""), Ok(Vec::new()));
        for bad in ["srv", "/srv/../etc", "/"] {
            assert!(grant_roots(bad).is_err(), "{bad}");
        }
    }
}
