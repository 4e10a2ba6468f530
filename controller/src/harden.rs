//! What the controller gives up first of all: it holds the upstream's key.

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};

/// No core dumps, of us or of what we start, and no debugger of another process of the same user.
///
/// A kernel that refuses either has other ways to read our memory, so nothing is said about it.
pub fn process() {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = prctl::set_dumpable(false);
}
