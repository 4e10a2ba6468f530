//! The limits of a requested run: those of a profile, replaced by what the request names, within what admins allow.
//!
//! Pure.

use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use sluice_contract::units::{UnitError, cpus, size, time};
use utoipa::ToSchema;

use crate::api::quantity::{Quantity, whole};
use crate::api_error::ApiError;
use crate::run_policy::RunPolicy;
use crate::stored_request::RunLimits;

/// Limits of a run, in the grammar of settings.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct RequestedLimits {
    /// Longest time of an attempt, such as `10m`; a number counts seconds.
    timeout: Option<Quantity>,
    /// Memory, such as `512m`; a number counts bytes.
    memory: Option<Quantity>,
    /// Processors, such as `0.5`.
    cpus: Option<Quantity>,
    /// Processes and threads.
    pids: Option<Quantity>,
    /// Calls.
    max_calls: Option<Quantity>,
    /// Tokens.
    max_tokens: Option<Quantity>,
    /// Concurrent calls.
    max_concurrency: Option<Quantity>,
    /// Rate of calls, such as `5/s`.
    rate: Option<Quantity>,
}

/// Sizes of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::api) enum Profile {
    /// Half of the memory, processors and processes of `standard`.
    Strict,
    /// The default of the host.
    #[default]
    Standard,
    /// The most that the host allows.
    Permissive,
}

/// Least memory of a container.
const MEMORY_MIN: u64 = 16 << 20;

/// Returns the limits of a run.
///
/// # Errors
/// 422: a value that is none, or one that exceeds what is allowed.
pub(super) fn limits(requested: &RequestedLimits, profile: Profile, policy: &RunPolicy) -> Result<RunLimits, ApiError> {
    let RunPolicy { limits: standard, limits_max: most, .. } = policy;
    let (memory, cpu_millis, pids) = match profile {
        Profile::Strict => (standard.memory / 2, standard.cpu_millis / 2, standard.pids / 2),
        Profile::Standard => (standard.memory, standard.cpu_millis, standard.pids),
        Profile::Permissive => (most.memory, most.cpu_millis, most.pids),
    };
    let of = |field, asked: &Option<Quantity>, parse, default, (least, most)| {
        let given = asked.as_ref().map(|asked| asked.read(field, parse)).transpose()?;
        given.map_or(Ok(default), |given| within(field, given, least, most))
    };
    let optional = |field, asked: &Option<Quantity>, default: Option<u64>, most: Option<u64>| {
        let given = asked.as_ref().map(|asked| asked.read(field, whole)).transpose()?;
        match given {
            None => Ok(default.or(most)),
            Some(given) => within(field, given, 1, most.unwrap_or(u64::MAX)).map(Some),
        }
    };
    Ok(RunLimits {
        timeout_s: of("limits.timeout", &requested.timeout, seconds, standard.timeout_s, (1, most.timeout_s))?,
        memory: of("limits.memory", &requested.memory, size, memory.max(MEMORY_MIN), (MEMORY_MIN, most.memory))?,
        cpu_millis: of("limits.cpus", &requested.cpus, cpus, cpu_millis.max(10), (10, most.cpu_millis))?,
        pids: of("limits.pids", &requested.pids, whole, pids.max(1), (1, most.pids))?,
        max_calls: optional("limits.max_calls", &requested.max_calls, standard.max_calls, most.max_calls)?,
        max_tokens: optional("limits.max_tokens", &requested.max_tokens, standard.max_tokens, most.max_tokens)?,
        max_concurrency: optional(
            "limits.max_concurrency", &requested.max_concurrency, standard.max_concurrency, most.max_concurrency,
        )?,
        rate: call_rate(requested.rate.as_ref(), standard.rate.as_deref(), most.rate.as_deref())?,
    })
}

fn call_rate(asked: Option<&Quantity>, standard: Option<&str>, most: Option<&str>) -> Result<Option<String>, ApiError> {
    let Some(asked) = asked else { return Ok(standard.or(most).map(str::to_owned)) };
    let most = most.and_then(|most| rate(most).ok()).unwrap_or(u64::MAX);
    let given = within("limits.rate", asked.read("limits.rate", rate)?, 1, most)?;
    Ok(Some(format!("{given}/s")))
}

/// Parses calls per second, as the sidecar does.
fn rate(text: &str) -> Result<u64, UnitError> {
    let number = whole(text.strip_suffix("/s").unwrap_or(text)).ok().filter(|rate| (1..=1_000_000).contains(rate));
    number.ok_or_else(|| UnitError::new("want calls a second, such as 5/s"))
}

fn seconds(text: &str) -> Result<u64, UnitError> {
    time(text).map(|time| time.as_secs())
}

fn within(field: &str, given: u64, least: u64, most: u64) -> Result<u64, ApiError> {
    if (least..=most).contains(&given) {
        return Ok(given);
    }
    let message = format!("{field} is out of its bounds here; ask for a value from details.min to details.max");
    let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "limit_exceeded", message);
    Err(error.with_details(json!({ "field": field, "min": least, "max": most })))
}
