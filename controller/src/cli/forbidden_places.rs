//! The places of this host that no sandbox may see.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_runs::engine::socket_of;
use sluice_runs::forbidden_mounts::ForbiddenPlaces;

use crate::settings::Settings;

/// Returns the places of this host that no sandbox may see, as real paths.
pub(super) fn forbidden_places(settings: &Settings) -> ForbiddenPlaces {
    let state = &settings.host.state_dir;
    ForbiddenPlaces {
        socket: socket_of(&settings.host.docker_host).map(real_path),
        state: real_path(state),
        audit: real_path(&state.join("audit")),
        sockets: None,
        secrets: settings.secret_files.iter().map(|path| real_path(path)).collect(),
    }
}

/// Returns a path without links; if it does not exist yet, its existing part is resolved.
pub(super) fn real_path(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => real_path(parent).join(name),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    })
}
