//! Warnings about files that the user of `--user` cannot use, although the process that started the sidecar could.

use std::path::Path;

use nix::unistd::{AccessFlags, access};
use sluice_upstream::Scheme;

use crate::audit::directory;
use crate::settings::ProxySettings;

/// Returns a warning for each right that the process lost with its user and that it will miss. To be called as that
/// user, before the other files are given up.
pub(super) fn missing(settings: &ProxySettings) -> Vec<String> {
    let Some(user) = settings.user else { return Vec::new() };
    let uid = user.uid;
    let lacks = |path: &Path, rights: AccessFlags| access(path, rights).is_err();
    let mut warnings = Vec::new();
    let parent = directory(&settings.socket);
    if lacks(parent, AccessFlags::W_OK | AccessFlags::X_OK) {
        warnings.push(format!(
            "--socket: user {uid} cannot remove the socket at the end, and a new start replaces it; to let it, chown {uid} {}",
            parent.display()
        ));
    }
    if let Scheme::Unix(path) = &settings.upstream.scheme
        && path.exists()
        && lacks(path, AccessFlags::W_OK)
    {
        warnings.push(format!(
            "--upstream: user {uid} may not connect to {}; let it, or name a user that may with --user",
            path.display()
        ));
    }
    warnings
}
