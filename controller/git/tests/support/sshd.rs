//! A server of ssh: `sshd` of OpenSSH, one process for each connection, with a key and a configuration of its own.

use std::fs;
use std::net::TcpListener as StdListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sluice_git::{Credentials, SecretText};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Script that starts `sshd -i` with a connection as its standard input, and with a directory `/run/sshd` of its own.
const SCRIPT: &str = r#"mount -t tmpfs none /run && mkdir /run/sshd && exec /usr/sbin/sshd -i -e -f "$1" 2>>"$2""#;

/// A server that stops when this value is dropped.
pub(crate) struct Sshd {
    pub(crate) port: u16,
    directory: PathBuf,
    task: JoinHandle<()>,
}

impl Sshd {
    /// Serves root, who has the key of [`Self::credentials`], on a port of its own.
    pub(crate) fn start(directory: &Path) -> Self {
        fs::create_dir(directory).expect("a new directory");
        for name in ["host", "client", "other"] {
            make_key(&directory.join(name));
        }
        let path = |name: &str| directory.join(name).display().to_string();
        fs::copy(path("client.pub"), path("authorized")).expect("it is ours");
        let config = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n",
            path("host"),
            path("authorized")
        );
        fs::write(path("config"), config).expect("it is ours");
        let listener = StdListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        listener.set_nonblocking(true).expect("a socket");
        let listener = TcpListener::from_std(listener).expect("a runtime");
        let (config, log) = (path("config"), path("log"));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (config, log) = (config.clone(), log.clone());
                tokio::spawn(async move { serve(stream, &config, &log).await });
            }
        });
        Self { port, directory: directory.to_owned(), task }
    }

    /// The key of root, and the key that the host has.
    pub(crate) fn credentials(&self) -> Credentials {
        self.with("client", "host")
    }

    /// A key of the client, and the key that the host is known by.
    pub(crate) fn with(&self, client: &str, host: &str) -> Credentials {
        let read = |name: String| fs::read_to_string(self.directory.join(name)).expect("it was made");
        let known_hosts = format!("[127.0.0.1]:{} {}", self.port, read(format!("{host}.pub")));
        Credentials::SshKey { key: SecretText::new(read(client.to_owned())), known_hosts }
    }

    /// Returns the log of the server.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves one connection. The process ends when the connection does.
async fn serve(stream: TcpStream, config: &str, log: &str) {
    let stream = stream.into_std().expect("a socket");
    stream.set_nonblocking(false).expect("a socket");
    let output = OwnedFd::from(stream.try_clone().expect("a socket"));
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "sshd", config, log]);
    command.stdin(OwnedFd::from(stream)).stdout(output).stderr(Stdio::inherit());
    let mut command = tokio::process::Command::from(command);
    let _ = command.kill_on_drop(true).status().await;
}

fn make_key(path: &Path) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(path).status();
    assert!(made.expect("ssh-keygen is there").success());
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
}
