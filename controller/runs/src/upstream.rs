//! Whether somebody listens where calls are to go.
//!
//! A run asks no more than that: whether the key is good shows at the first call, and a question over HTTP would be a
//! call that the audit log has to tell from the agent's. `sluice preflight` asks it, through a sidecar of its own.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use std::{fs, io};

use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::sidecar_user::SidecarUser;

const WITHIN: Duration = Duration::from_secs(5);

/// Why calls would go nowhere.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The address is none.
    #[error("'{0}' is no upstream; write http://HOST:PORT, https://HOST or unix:/PATH")]
    Address(String),
    /// The sidecar's user has no right to connect.
    #[error(
        "the sidecar cannot connect to {path} as user {} with group {}: {reason}; make the socket writable for it, as by \
         chmod 0666, or by its group and sidecar_gid", user.uid, user.gid
    )]
    Denied {
        /// Path of the socket.
        path: String,
        /// The user of the sidecar.
        user: SidecarUser,
        /// The place that denies it, with its mode.
        reason: String,
    },
    /// Nobody listens.
    #[error("nobody answers at the upstream {address}; start it, or name another with --upstream")]
    Unreachable {
        /// Where.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Connects, and hangs up. A socket must let the sidecar's user in as well, which the modes of its path decide.
///
/// # Errors
/// [`UpstreamError`].
pub async fn reach(url: &str, user: Option<SidecarUser>) -> Result<(), UpstreamError> {
    let wrong = || UpstreamError::Address(url.to_owned());
    let connected = async {
        if let Some(path) = url.strip_prefix("unix:") {
            return Ok(UnixStream::connect(path).await.map(drop));
        }
        let (host, port) = address(url).ok_or_else(wrong)?;
        Ok(TcpStream::connect((host, port)).await.map(drop))
    };
    let connected = match timeout(WITHIN, connected).await {
        Ok(connected) => connected?,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("not within {} s", WITHIN.as_secs()))),
    };
    connected.map_err(|source| UpstreamError::Unreachable { address: url.to_owned(), source })?;
    match (url.strip_prefix("unix:"), user) {
        (Some(path), Some(user)) => permits(path, user),
        _ => Ok(()),
    }
}

/// Whether the modes of a socket and of the directories above it let this user connect.
fn permits(path: &str, user: SidecarUser) -> Result<(), UpstreamError> {
    let denied = |reason| UpstreamError::Denied { path: path.to_owned(), user, reason };
    let real = fs::canonicalize(path).map_err(|error| denied(error.to_string()))?;
    for (place, right) in real.ancestors().zip([WRITE].into_iter().chain(std::iter::repeat(SEARCH))) {
        let meta = fs::metadata(place).map_err(|error| denied(error.to_string()))?;
        if !has_right(&meta, user, right) {
            return Err(denied(format!("{} has mode {:04o}", place.display(), meta.mode() & 0o7777)));
        }
    }
    Ok(())
}

/// The bits of a mode, for others.
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

/// Whether the class of permissions that applies to a user has this right.
fn has_right(meta: &fs::Metadata, user: SidecarUser, right: u32) -> bool {
    let class = match () {
        () if meta.uid() == user.uid => 6,
        () if meta.gid() == user.gid => 3,
        () => 0,
    };
    meta.mode() >> class & right == right
}

/// Host and port of a URL, without the brackets of an IPv6 address.
fn address(url: &str) -> Option<(&str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let default = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = rest.split('/').next().filter(|authority| !authority.is_empty() && !authority.contains('@'))?;
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        return Some((host, port.strip_prefix(':').map_or(Some(default), |port| port.parse().ok())?));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => Some((host, port.parse().ok()?)),
        None => Some((authority, default)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn addresses_of_urls() {
        let rows = [
            ("http://127.0.0.1:4000", Some(("127.0.0.1", 4000))),
            ("https://llm.example", Some(("llm.example", 443))),
            ("http://[::1]:4000/", Some(("::1", 4000))),
            ("http://[::1]", Some(("::1", 80))),
            ("http://me:pw@host", None),
            ("http://", None),
            ("ftp://host", None),
            ("host:4000", None),
            ("http://host:x", None),
        ];
        for (url, expected) in rows {
            assert_eq!(address(url), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn a_socket_must_be_writable_for_the_sidecar() {
        let directory = std::env::temp_dir().join(format!("sluice-reach-{}", std::process::id()));
        fs::create_dir(&directory).expect("it is not there yet");
        let path = directory.join("up.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("it is free");
        let url = format!("unix:{}", path.display());
        let mode = |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        let own = fs::metadata(&path).expect("it is there").gid();
        let user = |gid| Some(SidecarUser { uid: 2_000_000_123, gid });
        for (of_directory, of_socket, user, is_reached) in [
            (0o755, 0o666, user(2_000_000_123), true),
            (0o755, 0o660, user(2_000_000_123), false),
            (0o755, 0o660, user(own), true),
            (0o755, 0o606, user(own), false),
            (0o700, 0o666, user(2_000_000_123), false),
            (0o700, 0o600, None, true),
        ] {
            mode(&directory, of_directory).expect("it is ours");
            mode(&path, of_socket).expect("it is ours");
            let reached = reach(&url, user).await;
            assert_eq!(reached.is_ok(), is_reached, "{of_directory:o}, {of_socket:o}, {user:?}: {reached:?}");
        }
        fs::remove_dir_all(directory).expect("it is ours");
    }

    #[tokio::test]
    async fn a_closed_port_is_told_with_its_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        reach(&url, None).await.expect("somebody listens");
        drop(listener);
        let error = reach(&url, None).await.expect_err("nobody listens any more").to_string();
        assert!(error.contains(&url) && error.contains("--upstream"), "{error}");
    }
}
