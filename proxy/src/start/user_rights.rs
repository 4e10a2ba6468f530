//! Warnings about files that the sidecar's user cannot use, although the process that started the sidecar could.

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use sluice_upstream::Scheme;

use crate::audit::directory;
use crate::settings::ProxySettings;
use crate::socket::ListeningSocket;

/// Returns a warning for each right that the process lost with its user and that it will miss. To be called as that
/// user, before the other files are given up.
pub(super) fn missing(settings: &ProxySettings, socket: &ListeningSocket) -> Vec<String> {
    let uid = match settings.user {
        Some(user) => user.uid,
        None if settings.is_root => 0,
        None => return Vec::new(),
    };
    let mut warnings = Vec::new();
    if !socket.is_removable() {
        warnings.push(format!(
            "--socket: user {uid} cannot remove the socket at the end, and a new start replaces it; to let it, chown {uid} {}",
            directory(&settings.socket).display()
        ));
    }
    let relay = settings.relay.as_ref().map(|(address, _)| ("--relay", address));
    for (flag, address) in [("--upstream", &settings.upstream)].into_iter().chain(relay) {
        if let Scheme::Unix(path) = &address.scheme
            && access(path, AccessFlags::W_OK) == Err(Errno::EACCES)
        {
            warnings.push(format!(
                "{flag}: user {uid} may not connect to {}; let it, or name a user that may with --user",
                path.display()
            ));
        }
    }
    warnings
}
