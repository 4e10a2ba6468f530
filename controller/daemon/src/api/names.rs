//! Names in requests: those that people choose, and those that Sluice makes.
//!
//! Pure.

use sluice_contract::is_name;

use crate::api_error::ApiError;

/// Words that are parts of paths, and so cannot be names of runs.
const RESERVED: [&str; 5] = ["health", "new", "stream", "wait", "events"];
/// Beginning of each id of a run; no name has it.
const ID_PREFIX: &str = "r_";

/// Returns whether a text may be the name of a run.
pub(super) fn is_run_name(text: &str) -> bool {
    is_name(text) && !text.starts_with(ID_PREFIX) && !RESERVED.contains(&text)
}

/// Returns the id of a new run for a random number.
pub(super) fn run_id(random: u128) -> String {
    // 80 bits: the id is a part of paths of sockets, which are short.
    format!("{ID_PREFIX}{:020x}", random >> 48)
}

/// Checks the id of an agent.
///
/// # Errors
/// 422
pub(super) fn check_agent_id(text: &str) -> Result<(), ApiError> {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let rest = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:@-".contains(&byte));
    // The agent of a single run has the id of the run.
    if first && rest && text.len() <= 255 && !text.starts_with(ID_PREFIX) {
        return Ok(());
    }
    let message =
        "an agent id is 1 to 255 letters, digits and . _ : @ -, and begins with a letter or a digit, and not with r_";
    Err(ApiError::invalid("agent_id", message))
}

/// Checks a display text: no control character, and at most this many characters.
///
/// # Errors
/// 422, with the name of the member.
pub(super) fn check_text(field: &str, text: &str, max: usize) -> Result<(), ApiError> {
    let is_valid = !text.is_empty() && text.chars().count() <= max && !text.contains(char::is_control);
    let message = || format!("{field} is 1 to {max} characters, without control characters");
    if is_valid { Ok(()) } else { Err(ApiError::invalid(field, message())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_are_never_the_same() {
        for good in ["a", "0", "build-7", "a.b_c-d", &"a".repeat(63)] {
            assert!(is_run_name(good), "{good}");
        }
        for bad in ["", "A", "-a", ".a", "a b", "a/b", "é", "r_1", "health", "events", &"a".repeat(64)] {
            assert!(!is_run_name(bad), "{bad}");
        }
        let id = run_id(u128::MAX);
        assert!(id.parse::<sluice_contract::RunId>().is_ok() && !is_run_name(&id) && id.len() == 22);
        assert_eq!(run_id(0), "r_00000000000000000000");
    }

    #[test]
    fn agent_ids_are_plain() {
        for good in ["a", "Agent-7", "team:bot@host", &"a".repeat(255)] {
            assert!(check_agent_id(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a b", "-a", "a\n", "é", "r_1", &"a".repeat(256)] {
            assert!(check_agent_id(bad).is_err(), "{bad}");
        }
    }
}
