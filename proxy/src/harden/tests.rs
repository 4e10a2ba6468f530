//! The measures from inside: a child process takes them as the sidecar does, and then tries what they should deny.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::{fs, io};

use nix::sys::signal::kill;

use super::*;

/// Variable that gives the child its role, and the directory with what it tries to reach.
const ROLE: &str = "SLUICE_TEST_CONFINED";
/// A user that owns nothing on any host.
const UNPRIVILEGED: User = User { uid: 2_000_000_123, gid: 2_000_000_123 };

fn word<T>(result: io::Result<T>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(error) => {
            error.raw_os_error().map_or_else(|| error.to_string(), |errno| Errno::from_raw(errno).to_string())
        }
    }
    .split(':')
    .next()
    .unwrap_or_default()
    .to_owned()
}

/// Runs the child's part; does nothing unless a test below has started it.
#[test]
fn confined() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<_> = role.split(' ').collect();
    let [user, unix, dir, abstract_name, port, parent] = words[..] else { panic!("{role}") };
    let dir = Path::new(dir);
    let parent = Pid::from_raw(parent.parse().expect("a pid"));
    let open = port.parse().expect("a port");
    let listener = UnixListener::bind(dir.join("sock/own")).expect("it binds before it is confined");

    process().expect("the kernel has it");
    let capabilities = privileges((user == "stranger").then_some(UNPRIVILEGED)).expect("we are root");
    let needs =
        HardeningNeeds { remove: vec![dir.join("sock")], read: vec!["/etc/hosts".into()], connect: Some(vec![open]) };
    // The uid is read first: the filter does not allow that call.
    let uid = nix::unistd::Uid::effective();
    let landlock = files(&needs).expect("the kernel has it, or not");
    let calls = SyscallNeeds { unix: unix == "unix", resolve: false };
    assert_eq!(system_calls(calls).expect("the kernel has it"), Measure::Applied);
    if unix == "abort" {
        std::process::abort();
    }

    let abstract_address = || SocketAddr::from_abstract_name(abstract_name).expect("a name");
    let tried = BTreeMap::from([
        ("capabilities", format!("{capabilities:?}")),
        ("landlock", format!("{landlock:?}")),
        ("uid", uid.to_string()),
        ("root's socket", word(UnixStream::connect(dir.join("engine.sock")))),
        ("everybody's socket", word(UnixStream::connect(dir.join("open.sock")))),
        ("abstract socket", word(UnixStream::connect_addr(&abstract_address()))),
        ("unix datagrams", word(UnixDatagram::unbound())),
        ("signal to the parent", word(kill(parent, Signal::SIGUSR2).map_err(Into::into))),
        ("question to the parent", word(kill(parent, None).map_err(Into::into))),
        ("read of a secret", word(fs::read("/etc/shadow"))),
        ("read of another run", word(fs::read(dir.join("audit/other.jsonl")))),
        ("list of other runs", word(fs::read_dir(dir.join("audit")))),
        ("removal of another run", word(fs::remove_file(dir.join("audit/other.jsonl")))),
        ("new file", word(fs::write(dir.join("sock/new"), "x"))),
        ("needed file", word(fs::read("/etc/hosts"))),
        ("program", word(Command::new("/bin/true").status())),
        ("needed port", word(std::net::TcpStream::connect(("127.0.0.1", open)))),
        ("bind", word(TcpListener::bind("127.0.0.1:0"))),
        // Its descriptor was opened before.
        ("own listener", word(listener.local_addr())),
    ]);
    let mut line = serde_json::to_string(&tried).expect("it is a map of texts");
    line.push('\n');
    // The harness captures what print writes.
    io::stderr().write_all(line.as_bytes()).expect("the parent reads");
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-confined-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("it is not there yet");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the child among sockets, files and a parent that it should not reach.
fn child(user: &str, unix: &str) -> std::process::Output {
    let scratch = Scratch::new(&format!("{user}-{unix}"));
    let dir = &scratch.0;
    for name in ["sock", "audit"] {
        fs::create_dir(dir.join(name)).expect("it is ours");
    }
    fs::write(dir.join("audit/other.jsonl"), "x").expect("it is ours");
    let mode = |name: &str, mode| fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode));
    mode("audit", 0o700).expect("it is ours");
    mode("audit/other.jsonl", 0o600).expect("it is ours");
    let _listeners = ["engine.sock", "open.sock"].map(|name| UnixListener::bind(dir.join(name)).expect("it is free"));
    // The mode that the Docker Engine gives its own socket.
    mode("engine.sock", 0o660).expect("it is ours");
    mode("open.sock", 0o666).expect("it is ours");
    let name = format!("sluice-confined-{user}-{unix}-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _abstract = UnixListener::bind_addr(&address).expect("it is free");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let port = tcp.local_addr().expect("it is bound").port();
    let role = format!("{user} {unix} {} {name} {port} {}", dir.display(), std::process::id());
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    let args = ["--exact", "harden::tests::confined", "--nocapture", "--test-threads=1"];
    command.args(args).env(ROLE, role).stdout(Stdio::null()).output().expect("it starts")
}

fn tried(user: &str, unix: &str) -> BTreeMap<String, String> {
    let output = child(user, unix);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(line).expect("JSON")
}

fn expected(rows: &[(&str, &str)], base: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = base.clone();
    all.extend(rows.iter().map(|(what, word)| ((*what).to_owned(), (*word).to_owned())));
    all
}

/// Returns the expected results of a process without a unix socket among its upstreams: it cannot make one at all.
fn over_tcp(landlock: &str) -> BTreeMap<String, String> {
    expected(
        &[
            ("capabilities", "Applied"),
            ("landlock", landlock),
            ("uid", "2000000123"),
            ("root's socket", "EPERM"),
            ("everybody's socket", "EPERM"),
            ("abstract socket", "EPERM"),
            ("unix datagrams", "EPERM"),
            ("signal to the parent", "EPERM"),
            ("question to the parent", "EPERM"),
            ("read of a secret", "EACCES"),
            ("read of another run", "EACCES"),
            ("list of other runs", "EACCES"),
            ("removal of another run", "EACCES"),
            ("new file", "EACCES"),
            ("needed file", "done"),
            ("program", "EPERM"),
            ("needed port", "done"),
            ("bind", "EPERM"),
            ("own listener", "done"),
        ],
        &BTreeMap::new(),
    )
}

/// Returns the state of Landlock on this kernel. The tests below hold with and without it.
fn landlock(tried: &BTreeMap<String, String>) -> &str {
    &tried["landlock"]
}

#[test]
fn a_stranger_over_tcp_reaches_nothing_else() {
    let tried = tried("stranger", "tcp");
    assert_eq!(tried, over_tcp(landlock(&tried)));
}

#[test]
fn a_stranger_over_unix_reaches_no_socket_of_root() {
    let tried = tried("stranger", "unix");
    let abstract_socket = if landlock(&tried) == "Applied" { "EPERM" } else { "done" };
    let rows = [
        ("root's socket", "EACCES"),
        ("everybody's socket", "done"),
        ("abstract socket", abstract_socket),
        ("unix datagrams", "done"),
    ];
    assert_eq!(tried, expected(&rows, &over_tcp(landlock(&tried))));
}

#[test]
fn root_without_capabilities_reaches_no_engine_over_tcp() {
    let tried = tried("root", "tcp");
    if landlock(&tried) == "NotSupported" {
        assert_eq!(tried["root's socket"], "EPERM");
    } else {
        assert_eq!(tried, expected(&[("uid", "0")], &over_tcp(landlock(&tried))));
    }
}

#[test]
fn a_confined_process_can_still_abort() {
    let output = child("stranger", "abort");
    assert_eq!(output.status.signal(), Some(Signal::SIGABRT as i32), "{}", String::from_utf8_lossy(&output.stderr));
}
