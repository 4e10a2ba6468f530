//! Checks that the upstream accepts connections.
//!
//! A run makes no further checks: the first call shows whether the key is valid, and an HTTP request would be a call that the
//! audit log must distinguish from the agent's. `sluice preflight` sends one, through a sidecar of its own.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use sluice_upstream::{Address, AddressError, Connector, Scheme, Upstream};

use crate::sidecar_user::SidecarUser;

const WITHIN: Duration = Duration::from_secs(5);

/// Reason why the sidecar cannot reach an upstream.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamUnreachable {
    /// The text is not an address.
    #[error("--upstream '{shown}' is not an address of an upstream")]
    Address {
        /// The text without what may be a credential.
        shown: String,
        /// The rule that it breaks.
        #[source]
        source: AddressError,
    },
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
        /// The path that denies access, with its mode.
        reason: String,
    },
    /// TLS failed.
    #[error(
        "{address} accepts connections, but TLS fails there; write http:// if it speaks plain HTTP, or name its \
         authority with --ca if the certificate is not trusted"
    )]
    Tls {
        /// Address.
        address: String,
        /// Reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection failed.
    #[error("the upstream {address} does not answer; start it, or name another with --upstream")]
    Unreachable {
        /// Address.
        address: String,
        /// Reason.
        #[source]
        source: io::Error,
    },
}

/// Parses the address of an upstream.
///
/// # Errors
/// [`UpstreamUnreachable::Address`].
pub fn address(url: &str) -> Result<Address, UpstreamUnreachable> {
    url.parse().map_err(|source| UpstreamUnreachable::Address { shown: sluice_upstream::redact(url), source })
}

/// Connects, negotiates TLS if the address requires it, and disconnects.
///
/// # Errors
/// [`UpstreamUnreachable::Tls`], and the errors of [`reach`].
pub async fn negotiate(upstream: &Upstream) -> Result<(), UpstreamUnreachable> {
    let Upstream { url, ca } = upstream;
    reach(url, None).await?;
    let address = address(url)?;
    if address.scheme != Scheme::Https {
        return Ok(());
    }
    let failed = |source| UpstreamUnreachable::Tls { address: url.clone(), source };
    let connector = Connector::new(address, ca.as_deref()).map_err(|error| failed(error.into()))?;
    connector.connect(WITHIN).await.map(drop).map_err(|error| failed(error.into()))
}

/// Connects and disconnects. The modes of a socket's path must also allow the sidecar's user to connect.
///
/// # Errors
/// [`UpstreamUnreachable`].
pub async fn reach(url: &str, user: Option<SidecarUser>) -> Result<(), UpstreamUnreachable> {
    let address = address(url)?;
    let reached = Connector::probe(&address, WITHIN).await;
    reached.map_err(|source| UpstreamUnreachable::Unreachable { address: url.to_owned(), source })?;
    match (&address.scheme, user) {
        (Scheme::Unix(path), Some(user)) => check_access(path, user),
        _ => Ok(()),
    }
}

/// Checks that the modes of a socket and of the directories above it allow this user to connect.
fn check_access(path: &Path, user: SidecarUser) -> Result<(), UpstreamUnreachable> {
    let denied = |reason| UpstreamUnreachable::Denied { path: path.display().to_string(), user, reason };
    let real = fs::canonicalize(path).map_err(|error| denied(error.to_string()))?;
    for (place, right) in real.ancestors().zip([WRITE].into_iter().chain(std::iter::repeat(SEARCH))) {
        let meta = fs::metadata(place).map_err(|error| denied(error.to_string()))?;
        if !has_right(&meta, user, right) {
            return Err(denied(format!("{} has mode {:04o}", place.display(), meta.mode() & 0o7777)));
        }
    }
    Ok(())
}

/// Write bit of a mode, for others.
const WRITE: u32 = 0o2;
/// Search bit of a mode, for others.
const SEARCH: u32 = 0o1;

/// Returns true if the class of permissions that applies to a user has this right.
fn has_right(meta: &fs::Metadata, user: SidecarUser, right: u32) -> bool {
    let class = match () {
        () if meta.uid() == user.uid => 6,
        () if meta.gid() == user.gid => 3,
        () => 0,
    };
    meta.mode() >> class & right == right
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sluice_contract::text::error_chain;

    use super::*;

    #[tokio::test]
    async fn an_error_never_repeats_a_password() {
        for url in ["http://u:pw@h", "http://u:pw@h:1/x", "u:pw@h", "http://u:x/pw@h", "http://h/?key=pw"] {
            let error = reach(url, None).await.expect_err(url);
            let text = format!("{error:?} {}", error_chain(&error));
            assert!(!text.contains("pw") && text.contains("(redacted)"), "{url}: {text}");
            assert!(text.contains("--upstream"), "{url}: {text}");
        }
    }

    #[tokio::test]
    async fn a_name_resolves_by_the_hosts_file() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it is bound").port();
        reach(&format!("http://localhost:{port}"), None).await.expect("the hosts file names it");
        let error = reach("http://unknown-host.invalid:1", None).await.expect_err("nothing names it");
        assert!(matches!(error, UpstreamUnreachable::Unreachable { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_socket_must_be_writable_for_the_sidecar() {
        let directory = std::env::temp_dir().join(format!("sluice-reach-{}", std::process::id()));
        fs::create_dir(&directory).expect("it is not there yet");
        let path = directory.join("up.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("it is free");
        let url = format!("unix:{}", path.display());
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
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
    async fn a_closed_port_is_named_with_its_address() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        reach(&url, None).await.expect("the port is open");
        drop(listener);
        let error = reach(&url, None).await.expect_err("the port is closed").to_string();
        assert!(error.contains(&url) && error.contains("--upstream"), "{error}");
    }
}
