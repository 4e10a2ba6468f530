//! Maximum memory of one sidecar: the sum, and the kernel's limit that enforces it.
//!
//! | what | at most | with the default limits |
//! |---|---|---|
//! | the process itself: heap, stacks of its threads, TLS, prices | [`BASE`] | 64 MiB |
//! | bodies of requests: `body_budget::BodyBudget` counts 4 x `--max-body` bytes; a read that fills half of its buffer keeps all of it, so twice that | 8 x `--max-body` | 256 MiB |
//! | each connection: a buffer that grows to hold one head or one read, the response that its client does not take, state | [`PER_CONNECTION`] | 320 x 192 KiB = 60 MiB |
//! | each call: hyper's buffer of the upstream's response (408 KiB), an event whose usage is hidden (64 KiB), state | [`PER_CALL`] | 64 x 512 KiB = 32 MiB |
//!
//! The sum is the default of `--max-memory`: 412 MiB. Usual work takes a tenth of that.
//!
//! The limit is `RLIMIT_DATA`, which counts the pages that a process may write to, also those that it has not touched.
//! A cgroup would count resident pages, but needs a delegated hierarchy, which a controller started from a shell or a
//! container does not have; `RLIMIT_AS` counts the program and its libraries too. A process that reaches the limit gets
//! no memory and aborts. The run then ends like a run that lost its sidecar, and each call that it had made is in its
//! audit file.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sluice_contract::record::INTEGER_MAX;

/// Bytes of the process itself.
pub const BASE: u64 = 64 << 20;
/// Bytes of one connection: three times what one read or one head takes.
pub const PER_CONNECTION: u64 = 192 << 10;
/// Bytes of one call, beside its body.
pub const PER_CALL: u64 = 512 << 10;

/// Connections beyond those that calls need: pools of SDKs keep idle ones.
const SPARE_CONNECTIONS: usize = 64;
/// Maximum number of connections, also for a larger `--max-concurrency`.
const CONNECTIONS_MAX: usize = 2048;

/// Returns the maximum number of connections at once: four for each call that may be open, and 64.
#[must_use]
pub fn connections(concurrency: usize) -> usize {
    concurrency.saturating_mul(4).saturating_add(SPARE_CONNECTIONS).min(CONNECTIONS_MAX)
}

/// Returns the number of body bytes that may be held at once.
#[must_use]
pub fn bodies(max_body: u64) -> u64 {
    max_body.saturating_mul(4)
}

/// Returns the maximum number of bytes that a sidecar with these limits needs.
#[must_use]
pub fn needed(max_body: u64, concurrency: usize) -> u64 {
    let connections = PER_CONNECTION.saturating_mul(connections(concurrency) as u64);
    let calls = PER_CALL.saturating_mul(concurrency as u64);
    let all = BASE.saturating_add(bodies(max_body).saturating_mul(2)).saturating_add(connections).saturating_add(calls);
    // The number appears in the audit file, whose integers are limited.
    all.min(INTEGER_MAX)
}

/// Limits the memory of the process. A lower limit that the process was started with stays. Returns the limit in
/// force.
///
/// # Errors
/// The error of the system.
pub fn limit(bytes: u64) -> Result<u64, Errno> {
    let (_, hard) = getrlimit(Resource::RLIMIT_DATA)?;
    let limit = bytes.min(hard);
    setrlimit(Resource::RLIMIT_DATA, limit, limit)?;
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{HEAD_MAX, READ_MAX};

    #[test]
    fn the_default_limits_need_412_mib() {
        assert_eq!(needed(32 << 20, 64) >> 20, 412);
        assert_eq!((connections(64), connections(1), connections(10_000)), (320, 68, 2048));
    }

    #[test]
    fn limits_without_end_do_not_overflow() {
        assert_eq!(needed(u64::MAX, usize::MAX), INTEGER_MAX);
    }

    #[test]
    fn a_connection_holds_one_read_and_one_response() {
        assert!(PER_CONNECTION >= 3 * READ_MAX.max(HEAD_MAX) as u64);
    }
}
