//! Hardening of this process, before anything else: it holds the upstream's key.

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};

/// Turns off core dumps, also for child processes, and debuggers of the same user.
///
/// Errors are ignored: on a kernel that refuses one of these calls, there are other ways to read this memory.
pub fn process() {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = prctl::set_dumpable(false);
}
