//! The flags that name a daemon, and the daemon of this host.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::Args;
use sluice_client::{ApiClient, ApiToken, Server};
use sluice_contract::exit;

use super::error::CommandError;
use super::host_args::HostArgs;

/// Variable with the address of a daemon.
const SERVER: &str = "SLUICE_SERVER";
/// Variable with a token.
const TOKEN: &str = "SLUICE_TOKEN";

/// The flags that name a daemon.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The daemon")]
pub(super) struct ServerArgs {
    /// The API of a daemon, in place of this host: http://HOST:PORT, https://HOST or unix:/PATH [default: $SLUICE_SERVER]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// A file with the token for --server, readable by its owner alone [default: the token in $SLUICE_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl ServerArgs {
    /// Returns whether a flag names a daemon.
    pub(super) fn is_given(&self) -> bool {
        self.server.is_some() || self.token_file.is_some()
    }

    /// Returns a client of the daemon that flags or variables name, if they name one. `--ca` is for its certificate.
    ///
    /// # Errors
    /// Wrong usage: an address, a token or a file that cannot be used.
    pub(super) fn named(&self, host: &HostArgs) -> Result<Option<ApiClient>, CommandError> {
        let Some(url) = self.server.clone().or_else(|| variable(SERVER)) else {
            let message = "--token-file is the token for --server; name the daemon with --server URL";
            return if self.token_file.is_some() { Err(CommandError::wrong_usage(message)) } else { Ok(None) };
        };
        let token = match &self.token_file {
            Some(path) => Some(ApiToken::read(path)),
            None => variable(TOKEN).map(|value| ApiToken::new(&value)),
        };
        let token = token.transpose().map_err(|error| CommandError::usage(&error))?;
        let server = Server::new(&url, host.ca_flag(), token).map_err(|error| CommandError::usage(&error))?;
        Ok(Some(ApiClient::new(server)))
    }

    /// Returns a client of the named daemon, otherwise of the one that listens on this host.
    ///
    /// # Errors
    /// As of [`ServerArgs::named`]; with exit code 125, no daemon runs here, or this user has no access to its socket.
    pub(super) fn daemon(&self, host: &HostArgs) -> Result<ApiClient, CommandError> {
        if let Some(named) = self.named(host)? {
            return Ok(named);
        }
        let socket = host.run_dir()?.join("admin.sock");
        let advice = match UnixStream::connect(&socket) {
            Ok(_) => {
                let server = Server::at_socket(&socket).map_err(|error| CommandError::usage(&error))?;
                return Ok(ApiClient::new(server));
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                "only root may use it; name the daemon with --server URL, and a token with --token-file FILE"
            }
            Err(_) => "start sluice serve, or name a daemon with --server URL",
        };
        let message = format!("this needs a daemon, and none is reached at {}: {advice}", socket.display());
        Err(CommandError { code: exit::NOT_STARTED, message })
    }
}

/// Returns the value of a variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
