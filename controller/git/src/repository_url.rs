//! The address of a repository.
//!
//! Pure.

use std::fmt;
use std::path::{Path, PathBuf};

use sluice_contract::text::truncate;
use sluice_upstream::is_local_host;

/// Maximum length of an address in bytes.
const LONGEST: usize = 2048;

/// Address of a repository: https, ssh (also `git@host:path`), `file://`, or an absolute path. It holds no password.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepositoryUrl {
    kind: UrlKind,
    text: String,
    host: String,
    port: Option<u16>,
    user: Option<String>,
    path: String,
}

/// Protocol of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UrlKind {
    /// HTTPS
    Https,
    /// HTTP without TLS; only to this host.
    Http,
    /// SSH
    Ssh,
    /// A directory of this host.
    Local,
}

/// Reason why a text is not the address of a repository. The text itself is not repeated where it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// A protocol other than https, ssh and file.
    #[error("'{}' is not the address of a repository; write https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH, file:///PATH or an absolute path", truncate(.0))]
    Protocol(String),
    /// User and password in the address.
    #[error(
        "the address of the repository at {host} holds a password or a user; put it into the credentials file of the project and remove it from the address"
    )]
    Password {
        /// Host of the address.
        host: String,
    },
    /// A host that is not a name or an address, or begins like an option.
    #[error("'{}' is not a host; the host of a repository is a name or an IP address", truncate(.0))]
    Host(String),
    /// A port that is not a number.
    #[error("'{}' is not a port; the port of a repository is a number from 1 to 65535", truncate(.0))]
    Port(String),
    /// A path that is empty, or has parts that git or the forge would interpret differently.
    #[error("'{}' is not the path of a repository; it has no parts '.', '..' and none that begin with '-', no query, no fragment and no spaces", truncate(.0))]
    Path(String),
    /// Control characters, characters other than ASCII, or too many bytes.
    #[error(
        "the address of the repository has control characters, characters other than ASCII, or more than {LONGEST} bytes"
    )]
    Characters,
}

impl RepositoryUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// [`UrlError`]
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        if text.len() > LONGEST || (!text.starts_with(['/', 'f']) && !text.bytes().all(is_plain)) {
            return Err(UrlError::Characters);
        }
        if text.chars().any(|character| character.is_control() || crate::path_text::is_invisible(character)) {
            return Err(UrlError::Characters);
        }
        if let Some(rest) = text.strip_prefix("https://") {
            Self::remote(UrlKind::Https, text, rest)
        } else if let Some(rest) = text.strip_prefix("http://") {
            Self::remote(UrlKind::Http, text, rest)
        } else if let Some(rest) = text.strip_prefix("ssh://") {
            Self::remote(UrlKind::Ssh, text, rest)
        } else if let Some(path) = text.strip_prefix("file://") {
            Self::local(text, path)
        } else if text.starts_with('/') {
            Self::local(text, text)
        } else {
            Self::scp_form(text)
        }
    }

    /// Reads `USER@HOST:PATH`.
    fn scp_form(text: &str) -> Result<Self, UrlError> {
        let wrong = || UrlError::Protocol(text.to_owned());
        if let Some((user, rest)) = text.split_once('@')
            && user.contains(':')
        {
            return Err(UrlError::Password { host: truncate(rest.split(':').next().unwrap_or_default()) });
        }
        let (authority, path) = text.split_once(':').ok_or_else(wrong)?;
        let (user, host) = authority.split_once('@').ok_or_else(wrong)?;
        if path.starts_with(':') || path.starts_with("//") || user.contains('/') {
            return Err(wrong());
        }
        let path = path.strip_prefix('/').unwrap_or(path);
        check_user(user, host)?;
        check_host(host)?;
        check_path(path)?;
        Ok(Self {
            kind: UrlKind::Ssh,
            text: text.to_owned(),
            host: host.to_ascii_lowercase(),
            port: None,
            user: Some(user.to_owned()),
            path: path.to_owned(),
        })
    }

    fn remote(kind: UrlKind, text: &str, rest: &str) -> Result<Self, UrlError> {
        let (authority, path) = rest.split_once('/').ok_or_else(|| UrlError::Path(String::new()))?;
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, port) = split_port(place)?;
        if let Some(user) = user {
            if kind != UrlKind::Ssh {
                return Err(UrlError::Password { host: host.to_owned() });
            }
            check_user(user, host)?;
        }
        check_host(host)?;
        if kind == UrlKind::Http && !is_this_host(host) {
            return Err(UrlError::Protocol(text.to_owned()));
        }
        check_path(path)?;
        Ok(Self {
            kind,
            text: text.to_owned(),
            host: host.to_ascii_lowercase(),
            port,
            user: user.map(str::to_owned),
            path: path.to_owned(),
        })
    }

    fn local(text: &str, path: &str) -> Result<Self, UrlError> {
        let parts = Path::new(path).components();
        let is_normal = path.starts_with('/')
            && path.len() > 1
            && { parts }.all(|part| !matches!(part, std::path::Component::ParentDir))
            && !path.contains(['?', '#', '%']);
        if !is_normal {
            return Err(UrlError::Path(path.to_owned()));
        }
        Ok(Self {
            kind: UrlKind::Local,
            text: text.to_owned(),
            host: String::new(),
            port: None,
            user: None,
            path: path.to_owned(),
        })
    }

    /// Returns the protocol.
    #[must_use]
    pub fn kind(&self) -> UrlKind {
        self.kind
    }

    /// Returns the host in lower case; empty for a directory.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port of the address, or the default port of its protocol.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port.or(match self.kind {
            UrlKind::Https => Some(443),
            UrlKind::Http => Some(80),
            UrlKind::Ssh => Some(22),
            UrlKind::Local => None,
        })
    }

    /// Returns the path, without the slash before it in an address of a network.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the directory of this host, if the address names one.
    #[must_use]
    pub fn directory(&self) -> Option<PathBuf> {
        (self.kind == UrlKind::Local).then(|| PathBuf::from(&self.path))
    }

    /// Returns the address in the form for git.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if both are spellings of the same address. Addresses of different protocols are never the same.
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }

    /// Returns one text for all spellings of the same address.
    pub(crate) fn canonical(&self) -> String {
        let path = self.path.trim_end_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let user = self.user.as_deref().unwrap_or("");
        format!("{:?} {user}@{}:{} {path}", self.kind, self.host, self.port().unwrap_or(0))
    }
}

impl fmt::Display for RepositoryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Splits `URL#branch`.
#[must_use]
pub fn split_branch(text: &str) -> (&str, Option<&str>) {
    text.split_once('#').map_or((text, None), |(url, branch)| (url, Some(branch)))
}

fn split_port(place: &str) -> Result<(&str, Option<u16>), UrlError> {
    let bracketed = place.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, rest) = match bracketed {
        Some((host, rest)) => (&place[..host.len() + 2], rest),
        None => place.find(':').map_or((place, ""), |colon| place.split_at(colon)),
    };
    if rest.is_empty() {
        return Ok((host, None));
    }
    let number = rest.strip_prefix(':').and_then(|port| port.parse().ok()).filter(|port| *port != 0);
    let is_plain = rest[1..].bytes().all(|byte| byte.is_ascii_digit());
    match number {
        Some(port) if is_plain => Ok((host, Some(port))),
        _ => Err(UrlError::Port(rest.trim_start_matches(':').to_owned())),
    }
}

fn check_user(user: &str, host: &str) -> Result<(), UrlError> {
    let is_character = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if user.contains(':') || user.is_empty() || user.starts_with('-') || !user.bytes().all(is_character) {
        return Err(UrlError::Password { host: truncate(host) });
    }
    Ok(())
}

fn check_host(host: &str) -> Result<(), UrlError> {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            host.starts_with(|first: char| first.is_ascii_alphanumeric())
                && host.len() <= 253
                && !host.contains("..")
                && host.bytes().all(is_name_byte)
        }
    };
    if is_host { Ok(()) } else { Err(UrlError::Host(host.to_owned())) }
}

fn is_this_host(host: &str) -> bool {
    is_local_host(host.trim_start_matches('[').trim_end_matches(']'))
}

fn check_path(path: &str) -> Result<(), UrlError> {
    let is_character = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~+@:,=%".contains(&byte);
    let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.starts_with('-');
    let lower = path.to_ascii_lowercase();
    let is_escaped = ["%2e", "%2f", "%00", "%0"].iter().any(|escape| lower.contains(escape));
    let is_path = path.bytes().all(is_character) && path.trim_end_matches('/').split('/').all(is_part) && !is_escaped;
    if is_path { Ok(()) } else { Err(UrlError::Path(path.to_owned())) }
}

#[cfg(test)]
mod tests;
