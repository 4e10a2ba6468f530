//! A scripted Docker Engine with one container, and a host that uses it. For unit tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sluice_contract::RunKey;
use sluice_git::{GitHome, GitProgram};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::process::Process;
use sluice_state::run::{Run, RunPhase};
use sluice_state::store::{OpenRun, RunDriver, RunRow, Store};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use crate::blueprint::identity;
use crate::engine::Engine;
use crate::host::Host;
use crate::sidecar_user::{DEFAULT_UIDS, SidecarUsers};

/// State of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptedContainer {
    Absent,
    Running,
    /// Runs, and cannot be frozen at this many tries.
    Busy(u32),
    Frozen,
    Exited(i64),
}

/// A host with a scripted engine, in a directory of its own.
#[derive(Debug)]
pub(crate) struct TestHost {
    pub(crate) host: Arc<Host>,
    container: watch::Sender<ScriptedContainer>,
    labels: Arc<Mutex<Value>>,
    directory: PathBuf,
}

impl TestHost {
    pub(crate) async fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("sluice-runs-{}-{number}", std::process::id()));
        let layout = Layout::open(&directory).expect("it is writable");
        let socket = directory.join("docker.sock");
        let listener = UnixListener::bind(&socket).expect("the name is free");
        let container = watch::channel(ScriptedContainer::Absent).0;
        let labels = Arc::new(Mutex::new(json!({})));
        tokio::spawn(serve(listener, container.clone(), Arc::clone(&labels)));
        let host = Host {
            instance: layout.instance().expect("it is writable"),
            store: Store::open(&layout.database()).expect("it is new"),
            engine: Engine::connect(&format!("unix://{}", socket.display())).await.expect("it listens"),
            keys: Keys::open(layout.state()).expect("it is writable"),
            proxy: "/bin/sleep".into(),
            sidecar_users: SidecarUsers { uids: DEFAULT_UIDS.parse().expect("a range"), gid: None },
            litellm: None,
            git: GitHome::new(directory.join("git"), GitProgram::new("/usr/bin/git".into(), Vec::new(), None)),
            owner: Process::current().expect("there is /proc"),
            layout,
        };
        Self { host: Arc::new(host), container, labels, directory }
    }

    pub(crate) fn set(&self, container: ScriptedContainer) {
        self.container.send_replace(container);
    }

    pub(crate) fn container(&self) -> ScriptedContainer {
        *self.container.borrow()
    }

    /// Records a running run of a killed controller, with its directories and a container that expires at this time.
    pub(crate) async fn orphan(&self, key: &RunKey, expires: SystemTime, sidecar: Option<&Process>) -> OpenRun {
        let owner = Process { start: 0, ..self.host.owner.clone() };
        let entry = RunRow {
            key: key.clone(),
            account: "a".into(),
            agent: "sandbox:agent".into(),
            model: None,
            image: String::new(),
            owner,
            driver: RunDriver::Once,
        };
        self.host.store.begin(entry).await.expect("it is new");
        let run = Run { phase: RunPhase::Running, ..Run::new() };
        self.host.store.record(key, 0, &run, sidecar).await.expect("it is ours");
        std::fs::create_dir_all(self.host.layout.run(key).work).expect("it is writable");
        let seconds = expires.duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs();
        let mut labels = json!(identity(key, &self.host.instance));
        labels["sluice.expires"] = json!(seconds.to_string());
        *self.labels.lock().expect("no test panics with it") = labels;
        let open = self.host.store.open_runs().await.expect("it is open");
        open.into_iter().find(|open| open.entry.key == *key).expect("it was recorded")
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

async fn serve(listener: UnixListener, container: watch::Sender<ScriptedContainer>, labels: Arc<Mutex<Value>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, container.clone(), Arc::clone(&labels)));
    }
}

/// Answers one request.
async fn answer(
    stream: UnixStream,
    container: watch::Sender<ScriptedContainer>,
    labels: Arc<Mutex<Value>>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    stream.read_line(&mut request).await.ok()?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let header = line.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    stream.read_exact(&mut vec![0; length]).await.ok()?;
    let (method, path) = request.split_once(' ')?;
    let verb = Path::new(path.split(['?', ' ']).next()?).file_name()?.to_str()?;
    let state = *container.borrow();
    match (method, verb) {
        ("GET", "version") => reply(&mut stream, 200, &json!({ "ApiVersion": "1.41" })).await,
        (_, _) if state == ScriptedContainer::Absent => {
            reply(&mut stream, 404, &json!({ "message": "no such container" })).await
        }
        ("GET", "json") => {
            let labels = labels.lock().ok()?.clone();
            reply(&mut stream, 200, &inspected(state, &labels)).await
        }
        ("POST", "attach") => {
            let head = "HTTP/1.1 101 UPGRADED\r\nconnection: Upgrade\r\nupgrade: tcp\r\n\r\n";
            stream.write_all(head.as_bytes()).await.ok()?;
            // One frame of stdout; the stream ends with the container.
            stream.write_all(b"\x01\0\0\0\0\0\0\x05later").await.ok()?;
            wait_for_end(&container).await
        }
        ("POST", "wait") => {
            wait_for_end(&container).await?;
            reply(&mut stream, 200, &json!({ "StatusCode": 0 })).await
        }
        ("POST", "pause") => {
            let (next, status) = match state {
                ScriptedContainer::Busy(left @ 1..) => (ScriptedContainer::Busy(left - 1), 500),
                _ => (ScriptedContainer::Frozen, 204),
            };
            container.send_replace(next);
            reply(&mut stream, status, &json!({ "message": "unable to freeze" })).await
        }
        ("POST", "unpause") => {
            container.send_replace(ScriptedContainer::Running);
            reply(&mut stream, 204, &Value::Null).await
        }
        ("POST", "kill") => {
            container.send_replace(ScriptedContainer::Exited(143));
            reply(&mut stream, 204, &Value::Null).await
        }
        ("DELETE", _) => {
            container.send_replace(ScriptedContainer::Absent);
            reply(&mut stream, 204, &Value::Null).await
        }
        _ => reply(&mut stream, 500, &json!({ "message": request })).await,
    }
}

async fn wait_for_end(container: &watch::Sender<ScriptedContainer>) -> Option<()> {
    let is_over = |state: &ScriptedContainer| matches!(state, ScriptedContainer::Absent | ScriptedContainer::Exited(_));
    container.subscribe().wait_for(is_over).await.ok().map(drop)
}

fn inspected(state: ScriptedContainer, labels: &Value) -> Value {
    let state = match state {
        ScriptedContainer::Exited(code) => json!({ "Status": "exited", "ExitCode": code, "Pid": 0 }),
        ScriptedContainer::Frozen => json!({ "Status": "paused", "ExitCode": 0, "Pid": 0 }),
        ScriptedContainer::Absent | ScriptedContainer::Running | ScriptedContainer::Busy(_) => {
            json!({ "Status": "running", "ExitCode": 0, "Pid": 0 })
        }
    };
    json!({ "Id": "c0ffee", "State": state, "Config": { "Labels": labels } })
}

async fn reply(stream: &mut (impl AsyncWriteExt + Unpin), status: u16, body: &Value) -> Option<()> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

/// A process that replaces a sidecar: SIGTERM ends it.
#[derive(Debug)]
pub(crate) struct TestSidecar(std::process::Child);

impl TestSidecar {
    pub(crate) fn start() -> Self {
        Self(std::process::Command::new("sleep").arg("60").spawn().expect("there is sleep"))
    }

    pub(crate) fn process(&self) -> Process {
        Process::of(i32::try_from(self.0.id()).expect("a pid")).expect("it runs")
    }
}

impl Drop for TestSidecar {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a time this far from now.
pub(crate) fn from_now(seconds: u64) -> SystemTime {
    SystemTime::now() + Duration::from_secs(seconds)
}
