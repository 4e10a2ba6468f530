//! Credentials of a forge, and their transfer to one git process.
//!
//! They are in a private file of the user of git during one process; never in an address, an argument, the
//! environment or an error.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use zeroize::Zeroizing;

use crate::directory::{Scratch, write_private};
use crate::error::GitError;
use crate::program::{ChildUser, GitCommand};
use crate::repository_url::{RepositoryUrl, UrlKind};
use crate::secret::SecretText;
use crate::secret_file::{CredentialFault, read_secret};

/// Beginning of the names of directories with credentials.
pub(crate) const SECRETS: &str = "secrets";

const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

/// Credentials that git shows to the forge.
#[derive(Debug, Clone, Default)]
pub enum Credentials {
    /// No credentials: a public repository, or a directory.
    #[default]
    None,
    /// User and token, by HTTPS.
    Token {
        /// User name; the forges accept any name with a token.
        username: String,
        /// Token.
        token: SecretText,
    },
    /// Private key, by SSH.
    SshKey {
        /// Key in the form of OpenSSH, without a passphrase.
        key: SecretText,
        /// Lines of a `known_hosts` file; no other host is accepted.
        known_hosts: String,
    },
}

/// Reason why a credentials file is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("the credentials file cannot be read")]
    Read(#[from] io::Error),
    /// Users other than the owner can read the file.
    #[error("the credentials file can be read by its group or by others; run chmod 600 on it")]
    Open,
    /// The file is empty or too large, or its line has characters other than visible ASCII.
    #[error(
        "the credentials file has no token and no key; write one line, TOKEN or USER:TOKEN, or a private key of OpenSSH without a passphrase"
    )]
    Content,
    /// The file has a key, but no file of known hosts is given.
    #[error(
        "a key needs a file of known hosts; write one with ssh-keyscan and compare it with what the forge publishes"
    )]
    KnownHosts,
}

/// Credentials in a file, while a process runs.
pub(crate) struct PlacedCredentials {
    #[allow(dead_code, reason = "the directory is removed with this value")]
    directory: Option<Scratch>,
    settings: Vec<String>,
    ssh_command: Option<String>,
    /// Texts that a forge may repeat; they are removed from messages of git.
    hidden: Vec<SecretText>,
}

impl Credentials {
    /// Reads a file: a private key of OpenSSH, or one line with `TOKEN` or `USER:TOKEN`.
    ///
    /// # Errors
    /// [`CredentialsError`]
    pub fn read(path: &Path, known_hosts: Option<&Path>) -> Result<Self, CredentialsError> {
        let text = read_secret(path).map_err(|fault| match fault {
            CredentialFault::Mode(_) => CredentialsError::Open,
            CredentialFault::Read(error) if error.kind() != io::ErrorKind::InvalidData => CredentialsError::Read(error),
            _ => CredentialsError::Content,
        })?;
        let line = text.trim();
        if line.is_empty() {
            return Err(CredentialsError::Content);
        }
        if line.starts_with("-----BEGIN ") {
            let known_hosts = fs::read_to_string(known_hosts.ok_or(CredentialsError::KnownHosts)?)?;
            return Ok(Self::SshKey { key: SecretText::new(format!("{line}\n")), known_hosts });
        }
        if !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(CredentialsError::Content);
        }
        let (username, token) = line.split_once(':').unwrap_or(("x-access-token", line));
        Ok(Self::Token { username: username.to_owned(), token: SecretText::new(token.to_owned()) })
    }

    /// Writes the credentials where a git process in `directory` finds them, for this address only.
    pub(crate) fn place(
        &self,
        url: &RepositoryUrl,
        directory: &Path,
        user: Option<ChildUser>,
    ) -> Result<PlacedCredentials, GitError> {
        Scratch::sweep(directory, SECRETS)?;
        let wrong = |kind| GitError::CredentialKind { url: url.to_string(), kind };
        match (self, url.kind()) {
            (Self::None, UrlKind::Ssh) => Err(wrong("none")),
            (Self::None, _) => Ok(PlacedCredentials::none()),
            (Self::Token { username, token }, UrlKind::Https | UrlKind::Http) => {
                let scratch = Scratch::new(directory, SECRETS, user)?;
                let line = credential_line(url, username, token);
                write_private(&scratch.path().join("credentials"), line.as_bytes(), user)?;
                let helper = format!("credential.helper=store --file={}/credentials", scratch.name());
                let settings = vec!["credential.useHttpPath=true".to_owned(), helper];
                let hidden = hidden_forms(username, token);
                Ok(PlacedCredentials { directory: Some(scratch), settings, hidden, ..PlacedCredentials::none() })
            }
            (Self::SshKey { key, known_hosts }, UrlKind::Ssh) => {
                let scratch = Scratch::new(directory, SECRETS, user)?;
                write_private(&scratch.path().join("key"), key.expose().as_bytes(), user)?;
                write_private(&scratch.path().join("known_hosts"), known_hosts.as_bytes(), user)?;
                let command = ssh_command(scratch.name());
                let (directory, ssh_command) = (Some(scratch), Some(command));
                Ok(PlacedCredentials { directory, ssh_command, ..PlacedCredentials::none() })
            }
            (Self::Token { .. }, _) => Err(wrong("token")),
            (Self::SshKey { .. }, _) => Err(wrong("key")),
        }
    }
}

impl PlacedCredentials {
    fn none() -> Self {
        Self { directory: None, settings: Vec::new(), ssh_command: None, hidden: Vec::new() }
    }

    /// Lets a command use the credentials.
    pub(crate) fn apply<'a>(&self, mut command: GitCommand<'a>) -> GitCommand<'a> {
        for setting in &self.settings {
            command = command.config(setting.clone());
        }
        command = command.hide(&self.hidden);
        match &self.ssh_command {
            Some(ssh) => command.ssh_command(ssh.clone()),
            None => command,
        }
    }
}

/// Returns a token as it is, as it is in an address, and as it is in a header: the forms in which a forge knows it.
fn hidden_forms(username: &str, token: &SecretText) -> Vec<SecretText> {
    let header = Zeroizing::new(format!("{username}:{}", token.expose()));
    let encoded = utf8_percent_encode(token.expose(), NON_ALPHANUMERIC).to_string();
    let forms = [token.expose().to_owned(), STANDARD.encode(header.as_bytes()), encoded];
    forms.into_iter().filter(|form| !form.is_empty()).map(SecretText::new).collect()
}

/// Returns the line of `git credential-store`, which answers only for the same protocol, host and path.
fn credential_line(url: &RepositoryUrl, username: &str, token: &SecretText) -> Zeroizing<String> {
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    let (scheme, rest) = url.as_str().split_once("://").unwrap_or(("https", ""));
    let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
    let path = percent_encoding::percent_decode_str(url.path()).decode_utf8_lossy();
    Zeroizing::new(format!(
        "{scheme}://{}:{}@{authority}/{}\n",
        encode(username),
        encode(token.expose()),
        utf8_percent_encode(&path, IN_PATH),
    ))
}

/// Returns the ssh command of git: one key, only the known hosts, no configuration, no agent, no prompts. A connection
/// that is dead for a minute ends.
fn ssh_command(directory: &str) -> String {
    let known_hosts = format!("UserKnownHostsFile={directory}/known_hosts");
    let options = [
        "BatchMode=yes", "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=none", &known_hosts, "IdentitiesOnly=yes",
        "IdentityAgent=none", "PasswordAuthentication=no", "KbdInteractiveAuthentication=no", "ForwardAgent=no",
        "ClearAllForwardings=yes", "PermitLocalCommand=no", "ProxyCommand=none", "UpdateHostKeys=no",
        "ConnectTimeout=30", "ServerAliveInterval=15", "ServerAliveCountMax=4",
    ];
    let options: String = options.iter().map(|option| format!(" -o {option}")).collect();
    format!("ssh -F none{options} -i {directory}/key")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_credential_line_has_the_exact_address() {
        let url = RepositoryUrl::parse("https://h:8443/o/r.git").expect("an address");
        let line = credential_line(&url, "me", &SecretText::new("a/b:c@d".to_owned()));
        assert_eq!(line.as_str(), "https://me:a%2Fb%3Ac%40d@h:8443/o/r.git\n");
    }

    #[test]
    fn a_dead_connection_of_ssh_ends_soon() {
        let command = ssh_command("secrets-1");
        for option in ["ConnectTimeout=30", "ServerAliveInterval=15", "ServerAliveCountMax=4"] {
            assert!(command.contains(&format!(" -o {option} ")), "{command}");
        }
    }

    #[test]
    fn a_credentials_file_is_a_token_or_a_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("credentials");
        let read = |text: &str, mode| {
            fs::write(&path, text).expect("it is ours");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            Credentials::read(&path, Some(&path))
        };
        let token = |text: &str| match read(text, 0o600) {
            Ok(Credentials::Token { username, token }) => (username, token.expose().to_owned()),
            other => panic!("{other:?}"),
        };
        assert_eq!(token("abc\n"), ("x-access-token".to_owned(), "abc".to_owned()));
        assert_eq!(token("me:a:c"), ("me".to_owned(), "a:c".to_owned()));
        let key = read("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n", 0o600);
        assert!(matches!(key, Ok(Credentials::SshKey { .. })));
        assert!(format!("{key:?}").contains("key: Secret,"));
        assert!(matches!(read("abc", 0o640), Err(CredentialsError::Open)));
        for text in ["", "\n", "a b", "a\nb"] {
            assert!(matches!(read(text, 0o600), Err(CredentialsError::Content)), "{text:?}");
        }
    }
}
