//! `sluice-proxy bridge`: runs one program in a sandbox, and connects `localhost` there to the sidecar's socket.
//!
//! It runs inside the sandbox as the sandbox's user, in images that have no bridge of their own. It holds no secret and
//! needs no rights: each byte that it carries is checked by the sidecar. It ends with its program, and a sandbox ends
//! with it.

mod carrier;
mod program;

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nix::errno::Errno;
use nix::unistd::getuid;
use sluice_contract::text::error_chain;

use carrier::Carrier;
use program::Program;

/// Time within which the sidecar must answer on its socket.
const SIDECAR_WITHIN: Duration = Duration::from_secs(30);
/// Exit code when the bridge cannot be made.
const NO_BRIDGE: u8 = 1;
/// Exit code when the program exists and cannot be started.
const NOT_STARTED: u8 = 126;
/// Exit code when there is no such program.
const NO_PROGRAM: u8 = 127;

const EXITS: &str = "\
Exit codes: the program's own; 128+n if signal n ended it; 1 without a bridge; 126 it cannot be started; 127 no such program.";

/// Runs a program in a sandbox, where localhost leads to the sidecar's socket. sluice run mounts it into images that
/// have no bridge.
#[derive(Debug, Parser)]
#[command(name = "sluice-proxy bridge", bin_name = "sluice-proxy bridge", max_term_width = 100, after_help = EXITS)]
struct BridgeFlags {
    /// The port on 127.0.0.1, and on ::1 if the sandbox has IPv6
    #[arg(
        long,
        value_name = "N",
        env = "LLM_PROXY_PORT",
        default_value_t = 8080,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    port: u16,
    /// The sidecar's socket
    #[arg(long, value_name = "PATH", env = "LLM_PROXY_SOCKET", default_value = "/llm-sock/llm.sock")]
    socket: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Reason why a program cannot be run with a bridge.
#[derive(Debug, thiserror::Error)]
enum BridgeError {
    #[error("the bridge cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    #[error("no sidecar answers at {} within {} s", .0.display(), SIDECAR_WITHIN.as_secs())]
    NoSidecar(PathBuf, #[source] io::Error),
    #[error("cannot start {0:?}")]
    Start(OsString, #[source] io::Error),
    #[error("the bridge cannot watch for signals")]
    Signals(#[from] Errno),
    #[error("the bridge cannot start a thread")]
    Thread(#[source] io::Error),
}

impl BridgeError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Start(_, error) if error.kind() == io::ErrorKind::NotFound => NO_PROGRAM,
            Self::Start(..) => NOT_STARTED,
            _ => NO_BRIDGE,
        }
    }

    /// Returns what follows the message: the fix, if the sidecar's socket is not for this user.
    fn advice(&self) -> String {
        match self {
            Self::NoSidecar(_, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                format!("; start the sidecar with --peer-uid {}", getuid())
            }
            _ => String::new(),
        }
    }
}

/// Runs the program of a command line `bridge … -- PROGRAM`, and returns its exit code.
#[must_use]
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let flags = match BridgeFlags::try_parse_from(args) {
        Ok(flags) => flags,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { NO_BRIDGE } else { 0 });
        }
    };
    ExitCode::from(run(&flags).unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "sluice: {}{}", error_chain(&error), error.advice());
        error.exit_code()
    }))
}

fn run(flags: &BridgeFlags) -> Result<u8, BridgeError> {
    let carrier = Carrier::open(flags.port, &flags.socket)?;
    let program = Program::start(&flags.program)?;
    // The new thread inherits the signal mask, so signals stay blocked in it.
    std::thread::Builder::new().spawn(|| carrier.carry()).map_err(BridgeError::Thread)?;
    program.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_another_user_names_the_flag() {
        let advice = |kind: io::ErrorKind| BridgeError::NoSidecar(PathBuf::from("/s"), kind.into()).advice();
        let expected = format!("; start the sidecar with --peer-uid {}", getuid());
        assert_eq!(advice(io::ErrorKind::PermissionDenied), expected);
        assert_eq!(advice(io::ErrorKind::NotFound), "");
    }
}
