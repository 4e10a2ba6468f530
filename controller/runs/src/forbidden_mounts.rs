//! Directories of the host that no sandbox may see.
//!
//! Pure. The paths are real: the caller resolves links, or refuses them.

use std::path::{Path, PathBuf};

/// Directories of this host that no sandbox may see, in addition to the forbidden directories of every host.
#[derive(Debug, Clone, Default)]
pub struct ForbiddenPlaces {
    /// Path of the engine's socket, if it has one.
    pub socket: Option<PathBuf>,
    /// The state directory.
    pub state: PathBuf,
    /// Directory of audit files, which may be outside of the state directory by a link.
    pub audit: PathBuf,
    /// Directory of the daemon's sockets, if a daemon is configured.
    pub sockets: Option<PathBuf>,
    /// Files that hold keys and other secrets.
    pub secrets: Vec<PathBuf>,
}

/// Forbidden directories of every host, with the reason for each.
const SYSTEM: [(&str, &str); 8] = [
    ("/proc", "belongs to the kernel"),
    ("/sys", "belongs to the kernel"),
    ("/dev", "holds the devices of the host"),
    ("/etc", "holds the configuration of the host, with its passwords and keys"),
    ("/run", "holds the sockets of the host's services, of the engine among them"),
    ("/var/run", "holds the sockets of the host's services, of the engine among them"),
    ("/var/lib/docker", "holds the files of all containers"),
    ("/var/lib/containerd", "holds the files of all containers"),
];

/// Returns the reason why a sandbox may not see a directory; none if it may.
#[must_use]
pub fn forbidden(source: &Path, places: &ForbiddenPlaces) -> Option<String> {
    let holds = |place: &Path| place.starts_with(source);
    let overlaps = |place: &Path| holds(place) || source.starts_with(place);
    if places.socket.as_deref().is_some_and(holds) {
        return Some("holds the engine's socket, which is a way to everything".to_owned());
    }
    if overlaps(&places.state) || overlaps(&places.audit) {
        return Some("holds the state of sluice: keys, audit files, other runs".to_owned());
    }
    if places.sockets.as_deref().is_some_and(overlaps) {
        return Some("holds the sockets of the daemon".to_owned());
    }
    if let Some(secret) = places.secrets.iter().find(|secret| holds(secret)) {
        return Some(format!("holds a key of yours, {}; keep that file in another directory", secret.display()));
    }
    let (place, what) = SYSTEM.iter().find(|(place, _)| overlaps(Path::new(place)))?;
    Some(if source == Path::new(place) { (*what).to_owned() } else { format!("overlaps {place}, which {what}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_the_host_are_forbidden() {
        let places = ForbiddenPlaces {
            socket: Some("/home/o/.docker/engine.sock".into()),
            state: "/srv/sluice".into(),
            audit: "/mnt/audit/sluice".into(),
            sockets: Some("/opt/sockets/sluice".into()),
            secrets: vec!["/home/o/keys/litellm".into(), "/opt/spend/key".into()],
        };
        for (source, reason) in [
            ("/", Some("engine's socket")),
            ("/home/o", Some("engine's socket")),
            ("/home/o/.docker", Some("engine's socket")),
            ("/home/o/.docker/contexts", None),
            ("/srv", Some("state of sluice")),
            ("/srv/sluice", Some("state of sluice")),
            ("/srv/sluice/runs/r.0/work", Some("state of sluice")),
            ("/srv/sluice-repo", None),
            ("/mnt", Some("state of sluice")),
            ("/mnt/audit/sluice", Some("state of sluice")),
            ("/mnt/code", None),
            ("/home/o/keys", Some("/home/o/keys/litellm")),
            ("/opt/sockets", Some("sockets of the daemon")),
            ("/opt/sockets/sluice/relay", Some("sockets of the daemon")),
            ("/opt/spend", Some("/opt/spend/key")),
            ("/home/o/keys/old", None),
            ("/proc", Some("kernel")),
            ("/sys/fs/cgroup", Some("overlaps /sys")),
            ("/dev/shm", Some("overlaps /dev")),
            ("/etc", Some("configuration")),
            ("/etc/ssl", Some("overlaps /etc")),
            ("/etcetera", None),
            ("/run", Some("sockets")),
            ("/run/containerd", Some("overlaps /run")),
            ("/run/user/1000", Some("overlaps /run")),
            ("/var", Some("overlaps /var/run")),
            ("/var/lib", Some("overlaps /var/lib/docker")),
            ("/var/lib/docker/volumes", Some("overlaps /var/lib/docker")),
            ("/var/lib/containerd", Some("containers")),
            ("/var/www", None),
            ("/home/o/project", None),
            ("/tmp/project", None),
        ] {
            let said = forbidden(Path::new(source), &places);
            match reason {
                Some(reason) => assert!(said.as_ref().is_some_and(|said| said.contains(reason)), "{source}: {said:?}"),
                None => assert_eq!(said, None, "{source}"),
            }
        }
    }
}
