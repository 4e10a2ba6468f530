//! The limits of a requested run: taken from a profile, overridden by the request, and bounded by the admins' limits.
//!
//! Pure.

use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use sluice_contract::units::{UnitError, cpus, size, time};
use sluice_state::ledger::usd;
use utoipa::ToSchema;

use crate::api::quantity::{Quantity, whole};
use crate::api_error::ApiError;
use crate::stored_request::StoredLimits;

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
    /// Time without work after which the run ends, such as `30m`, at most 24 hours. It does not apply while the worker
    /// reports that it works; `ttl_minutes` always applies.
    idle: Option<Quantity>,
    /// Bytes that the workspace may take on disk, such as `2g`.
    workspace: Option<Quantity>,
}

impl RequestedLimits {
    /// Returns true if the request names a time without work.
    pub(super) fn has_idle(&self) -> bool {
        self.idle.is_some()
    }
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

/// Minimum memory of a container, in bytes.
const MEMORY_MIN: u64 = 16 << 20;
/// Minimum number of thousandths of a processor that the engine accepts.
const CPU_MILLIS_MIN: u64 = 10;
/// Minimum size of a workspace, in bytes.
const WORKSPACE_MIN: u64 = 1 << 20;
/// Longest time without work, in seconds.
const IDLE_MAX: u64 = 24 * 3600;

/// Returns the limits of a run. `standard` has the values for a run that sets none; no value exceeds its value in `most`.
///
/// # Errors
/// 422: a value is invalid, or exceeds the allowed maximum.
pub(super) fn limits(
    requested: &RequestedLimits,
    profile: Profile,
    standard: &StoredLimits,
    most: &StoredLimits,
) -> Result<StoredLimits, ApiError> {
    let (memory, cpu_millis, pids) = match profile {
        Profile::Strict => (standard.memory / 2, standard.cpu_millis / 2, standard.pids / 2),
        Profile::Standard => (standard.memory, standard.cpu_millis, standard.pids),
        Profile::Permissive => (most.memory, most.cpu_millis, most.pids),
    };
    let of = |field, asked: &Option<Quantity>, parse, default: u64, (least, most): (u64, u64)| {
        let given = asked.as_ref().map(|asked| asked.read(field, parse)).transpose()?;
        given.map_or(Ok(default.max(least).min(most)), |given| within(field, given, least, most))
    };
    let optional = |field, asked: &Option<Quantity>, default: Option<u64>, most: Option<u64>| {
        let given = asked.as_ref().map(|asked| asked.read(field, whole)).transpose()?;
        match given {
            None => Ok(lower(default, most)),
            Some(given) => within(field, given, 1, most.unwrap_or(u64::MAX)).map(Some),
        }
    };
    Ok(StoredLimits {
        timeout_s: of("limits.timeout", &requested.timeout, seconds, standard.timeout_s, (1, most.timeout_s))?,
        memory: of("limits.memory", &requested.memory, size, memory, (MEMORY_MIN, most.memory))?,
        cpu_millis: of("limits.cpus", &requested.cpus, cpus, cpu_millis, (CPU_MILLIS_MIN, most.cpu_millis))?,
        pids: of("limits.pids", &requested.pids, whole, pids, (1, most.pids))?,
        max_calls: optional("limits.max_calls", &requested.max_calls, standard.max_calls, most.max_calls)?,
        max_tokens: optional("limits.max_tokens", &requested.max_tokens, standard.max_tokens, most.max_tokens)?,
        max_concurrency: optional(
            "limits.max_concurrency", &requested.max_concurrency, standard.max_concurrency, most.max_concurrency,
        )?,
        rate: call_rate(requested.rate.as_ref(), standard.rate.as_deref(), most.rate.as_deref())?,
        idle_s: match &requested.idle {
            None => standard.idle_s,
            Some(asked) => Some(within("limits.idle", asked.read("limits.idle", seconds)?, 1, IDLE_MAX)?),
        },
        workspace: of(
            "limits.workspace",
            &requested.workspace,
            size,
            standard.workspace,
            (WORKSPACE_MIN, most.workspace),
        )?,
    })
}

/// Returns the cap of a run in nano-USD. `standard` applies to a run that sets none; no cap exceeds `most`.
///
/// # Errors
/// 422: a value is invalid, or exceeds the allowed maximum.
pub(super) fn max_cost(
    asked: Option<&Quantity>,
    standard: Option<i64>,
    most: Option<i64>,
) -> Result<Option<i64>, ApiError> {
    const FIELD: &str = "max_cost_usd";
    let Some(cap) = asked.map(|asked| asked.usd(FIELD)).transpose()? else { return Ok(lower(standard, most)) };
    if cap == 0 {
        return Err(ApiError::invalid(FIELD, "a run without money makes no call; leave max_cost_usd out"));
    }
    match most {
        Some(most) if cap > most => {
            let message =
                format!("max_cost_usd is more than a run of this host may cost; ask for at most {}", usd(most.into()));
            let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "limit_exceeded", message);
            Err(error.with_details(json!({ "field": FIELD, "max": usd(most.into()) })))
        }
        _ => Ok(Some(cap)),
    }
}

/// Returns the lower one of a default and a maximum.
fn lower<T: Ord>(default: Option<T>, most: Option<T>) -> Option<T> {
    match (default, most) {
        (Some(default), Some(most)) => Some(default.min(most)),
        (default, most) => default.or(most),
    }
}

fn call_rate(asked: Option<&Quantity>, standard: Option<&str>, most: Option<&str>) -> Result<Option<String>, ApiError> {
    let number = |text: Option<&str>| text.and_then(|text| rate(text).ok());
    let given = match asked {
        None => lower(number(standard), number(most)),
        Some(asked) => {
            let most = number(most).unwrap_or(u64::MAX);
            Some(within("limits.rate", asked.read("limits.rate", rate)?, 1, most)?)
        }
    };
    Ok(given.map(|rate| format!("{rate}/s")))
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
    let unit = match field {
        "limits.memory" | "limits.workspace" => " bytes",
        "limits.timeout" | "limits.idle" => " seconds",
        "limits.cpus" => " thousandths of a processor",
        _ => "",
    };
    let bounds =
        if most == u64::MAX { format!("of at least {least}") } else { format!("from {least} to {most}{unit}") };
    let message = format!("{field} is {given}{unit}, which is out of its bounds here; ask for a value {bounds}");
    let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "limit_exceeded", message);
    Err(error.with_details(json!({ "field": field, "min": least, "max": most })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(memory: u64, max_calls: Option<u64>, rate: Option<&str>) -> StoredLimits {
        StoredLimits {
            timeout_s: 600,
            memory,
            cpu_millis: 1000,
            pids: 256,
            max_calls,
            max_tokens: None,
            max_concurrency: None,
            rate: rate.map(str::to_owned),
            idle_s: None,
            workspace: 1 << 30,
        }
    }

    fn requested(text: &str) -> RequestedLimits {
        serde_json::from_str(text).expect("plain data")
    }

    #[test]
    fn a_refusal_states_the_bounds_with_their_unit() {
        let bounds = run(64 << 20, None, None);
        for (asked, message) in [
            (r#"{"memory":"1m"}"#, "limits.memory is 1048576 bytes, which is out of its bounds"),
            (r#"{"memory":"1m"}"#, "a value from 16777216 to 67108864 bytes"),
            (r#"{"timeout":"1h"}"#, "a value from 1 to 600 seconds"),
            (r#"{"max_calls":0}"#, "a value of at least 1"),
        ] {
            let error = limits(&requested(asked), Profile::Standard, &bounds, &bounds).expect_err(asked);
            assert!(format!("{error:?}").contains(message), "{asked}: {error:?}");
        }
    }

    #[test]
    fn profiles_size_what_limits_leave_out() {
        let (standard, most) =
            (run(512 << 20, None, None), StoredLimits { cpu_millis: 4000, ..run(2 << 30, None, None) });
        let sizes = |profile, text| {
            let limits = limits(&requested(text), profile, &standard, &most).map_err(|error| error.code())?;
            Ok((limits.memory >> 20, limits.cpu_millis, limits.pids))
        };
        assert_eq!(sizes(Profile::Strict, "{}"), Ok((256, 500, 128)));
        assert_eq!(sizes(Profile::Standard, "{}"), Ok((512, 1000, 256)));
        assert_eq!(sizes(Profile::Permissive, "{}"), Ok((2048, 4000, 256)));
        assert_eq!(sizes(Profile::Strict, r#"{"memory":"1g"}"#), Ok((1024, 500, 128)));
        assert_eq!(sizes(Profile::Permissive, r#"{"memory":"3g"}"#), Err("limit_exceeded"));
        let small =
            limits(&requested("{}"), Profile::Strict, &run(20 << 20, None, None), &most).expect("it is allowed");
        assert_eq!(small.memory, MEMORY_MIN);
    }

    #[test]
    fn no_default_is_higher_than_the_maximum() {
        let of = |standard, most, text| {
            let limits = limits(&requested(text), Profile::Standard, &standard, &most).map_err(|error| error.code())?;
            Ok((limits.memory >> 20, limits.max_calls, limits.rate))
        };
        let (wide, most) = (run(4 << 30, Some(90), Some("9/s")), run(1 << 30, Some(50), Some("5")));
        let rate = |text: &str| Some(text.to_owned());
        assert_eq!(of(wide.clone(), most.clone(), "{}"), Ok((1024, Some(50), rate("5/s"))));
        let open = run(1 << 30, None, None);
        assert_eq!(
            of(open.clone(), most.clone(), "{}"),
            Ok((1024, Some(50), rate("5/s"))),
            "the maximum is the default"
        );
        assert_eq!(of(open.clone(), most.clone(), r#"{"max_calls":7,"rate":"2"}"#), Ok((1024, Some(7), rate("2/s"))));
        assert_eq!(of(open.clone(), most.clone(), r#"{"max_calls":51}"#), Err("limit_exceeded"));
        assert_eq!(of(open.clone(), most, r#"{"rate":"6/s"}"#), Err("limit_exceeded"));
        assert_eq!(of(open.clone(), open, r#"{"max_calls":9000}"#), Ok((1024, Some(9000), None)));
    }

    #[test]
    fn a_cap_is_at_most_what_the_host_allows() {
        let cost = |asked: Option<&str>, standard, most| {
            let asked = asked.map(|text| Quantity::Text(text.to_owned()));
            max_cost(asked.as_ref(), standard, most).map_err(|error| error.code())
        };
        let (one, two) = (Some(1_000_000_000), Some(2_000_000_000));
        assert_eq!(cost(None, None, None), Ok(None));
        assert_eq!(cost(None, one, two), Ok(one));
        assert_eq!(cost(None, two, one), Ok(one));
        assert_eq!(cost(None, None, one), Ok(one));
        assert_eq!(cost(Some("2"), one, two), Ok(two));
        assert_eq!(cost(Some("2.000000001"), one, two), Err("limit_exceeded"));
        assert_eq!(cost(Some("0"), None, None), Err("invalid_field"));
    }
}
