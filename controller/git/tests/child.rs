//! The process that becomes git has no network, no other files and no rights.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::Host;

/// Starts a program in place of git, as the crate starts git.
fn confined(directory: &Path, words: &[&str], program: &[&str]) -> Output {
    let user = if nix::unistd::geteuid().is_root() { "65522:65522" } else { "-" };
    let mut arguments: Vec<OsString> = [user].iter().chain(words).chain(&["--"]).map(OsString::from).collect();
    arguments.extend(program.iter().map(OsString::from));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-git-child"));
    command.current_dir(directory).args(arguments).env_clear().env("PATH", "/usr/bin:/bin").output().expect("it starts")
}

const OFFLINE: [&str; 5] = ["-", "write", "1073741824", "60", "1048576"];

/// Prints the effective, permitted and inheritable capabilities of the process, the number of capabilities in its
/// bounding set, and 1 if no program can give it more.
const RIGHTS: &str = "import ctypes; c = ctypes.CDLL(None); d = (ctypes.c_uint32 * 6)(); \
    c.capget((ctypes.c_uint32 * 2)(0x20080522, 0), d); \
    print(*d, sum(c.prctl(23, n, 0, 0, 0) == 1 for n in range(64)), c.prctl(39, 0, 0, 0, 0))";

fn shell(directory: &Path, script: &str) -> (bool, String) {
    let output = confined(directory, &OFFLINE, &["/bin/sh", "-c", script]);
    let words = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.success(), String::from_utf8_lossy(&words).into_owned())
}

/// Requires root: only root can change the user of a process, and verify that it has no rights afterwards.
fn require_root() {
    assert!(nix::unistd::geteuid().is_root(), "run this test as root");
}

/// A directory that the child may write, in one that it may not enter.
fn directory(host: &Host) -> std::path::PathBuf {
    let path = host.path("own");
    fs::create_dir(&path).expect("it is ours");
    fs::write(host.path("secret"), "secret").expect("it is ours");
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65522), Some(65522)).expect("root may");
    }
    path
}

#[test]
fn a_child_has_its_own_directory_alone() {
    let host = Host::new();
    let own = directory(&host);
    assert_eq!(shell(&own, "echo x > a && cat a"), (true, "x\n".to_owned()));
    for script in [
        format!("cat {}/secret", host.scratch.path().display()),
        "ls ..".to_owned(),
        "echo x > ../b".to_owned(),
        "cat /etc/shadow".to_owned(),
        "cat /etc/hostname".to_owned(),
        "ls /home".to_owned(),
        "ls /root".to_owned(),
        "ls /proc/1/".to_owned(),
        "echo x > /dev/shm/sluice-test".to_owned(),
        "echo x > /var/tmp/sluice-test".to_owned(),
        "echo x > /tmp/sluice-test".to_owned(),
    ] {
        let (is_done, words) = shell(&own, &script);
        assert!(!is_done, "{script}: {words}");
    }
}

#[test]
fn a_child_without_a_port_has_no_network() {
    let host = Host::new();
    let own = directory(&host);
    let (_, interfaces) =
        shell(&own, "/usr/bin/python3 -c 'import socket; print([n for _, n in socket.if_nameindex()])'");
    assert_eq!(interfaces, "['lo']\n");
}

#[test]
fn a_child_with_a_port_reaches_no_other() {
    let host = Host::new();
    let own = directory(&host);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let connect = format!("import socket; socket.create_connection(('127.0.0.1', {port})); print('in')");
    for (allowed, expected) in [(port, "in\n"), (port ^ 1, "")] {
        let words = [&allowed.to_string(), "write", "1073741824", "60", "1048576"];
        let output = confined(&own, &words, &["/usr/bin/python3", "-c", &connect]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}

#[test]
fn a_child_has_no_rights_and_few_resources() {
    let host = Host::new();
    let own = directory(&host);
    require_root();
    assert_eq!(shell(&own, "ulimit -v; ulimit -t; ulimit -c"), (true, "1048576\n60\n0\n".to_owned()));
    let (is_done, words) = shell(&own, "head -c 2000000 /dev/zero > large");
    assert!(!is_done, "{words}");
    assert!(fs::metadata(own.join("large")).expect("it was begun").len() <= 1_048_576);
    assert_eq!(shell(&own, "echo x >a"), (true, String::new()));
    for script in ["chown 0:0 a", "chmod 4755 /bin/sh", "mknod c c 1 3"] {
        let (is_done, words) = shell(&own, script);
        assert!(!is_done && (words.contains("not permitted") || words.contains("denied")), "{script}: {words}");
    }
    let rights = confined(&own, &OFFLINE, &["/usr/bin/python3", "-c", RIGHTS]);
    assert_eq!(String::from_utf8_lossy(&rights.stdout), "0 0 0 0 0 0 0 1\n", "{rights:?}");
    let read_only = ["-", "read", "1073741824", "60", "1048576"];
    let output = confined(&own, &read_only, &["/bin/sh", "-c", "echo x > b"]);
    assert!(!output.status.success() && !own.join("b").exists());
    let output = confined(&own, &OFFLINE, &["/usr/bin/id", "-u"]);
    assert_eq!(output.stdout, b"65522\n");
}

#[test]
fn a_child_of_root_sees_no_sockets() {
    require_root();
    let host = Host::new();
    let scratch = tempfile::Builder::new().prefix("sluice-test").tempdir_in("/run").expect("a directory");
    let path = scratch.path().join("admin.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect('{}')", path.display());
    let words: Vec<OsString> = ["0:0"].iter().chain(&OFFLINE).chain(&["--"]).map(OsString::from).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-git-child"));
    command.current_dir(host.scratch.path()).args(words).args(["/usr/bin/python3", "-c", &connect]);
    let output = command.output().expect("it starts");
    assert!(String::from_utf8_lossy(&output.stderr).contains("FileNotFoundError"), "{output:?}");
}

#[test]
fn wrong_arguments_start_nothing() {
    let host = Host::new();
    let own = directory(&host);
    let output = confined(&own, &["-", "write", "1", "60"], &["/bin/sh", "-c", "echo x"]);
    assert_eq!((output.status.code(), output.stdout), (Some(213), Vec::new()));
}
