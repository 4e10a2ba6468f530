//! A host with a real engine, a run of a program on it, and daemons that drive the run in processes of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use sluice_contract::RunKey;
use sluice_git::{GitHome, GitProgram};
use sluice_litellm::ApiKey;
use sluice_runs::admission::RunRequest;
use sluice_runs::blueprint::{SandboxLimits, WORKSPACE, container_name};
use sluice_runs::bridge::Bridge;
use sluice_runs::daemon_run::{self, Adopted, DaemonResumption, DaemonRun};
use sluice_runs::exchange::FileExchange;
use sluice_runs::host::{Host, HostSettings};
use sluice_runs::input::Stdin;
use sluice_runs::observer::{NoObserver, Observer};
use sluice_runs::outcome::CompletedRun;
use sluice_runs::record::{RequestRecord, RunRecorder};
use sluice_runs::sidecar_user::SidecarUsers;
use sluice_runs::spec::{DaemonOptions, RunSpec};
use sluice_runs::stop::StopPolicy;
use sluice_runs::verdict::{Contract, LimitValues};
use sluice_runs::virtual_key::KeyMode;
use sluice_runs::{admission, sandbox_user, sidecar_user};
use sluice_state::layout::Layout;
use sluice_state::process::Process;
use sluice_state::run::Cancel;
use tempfile::TempDir;
use tokio::sync::watch;

const IMAGE: &str = "sluice-runtime:latest";
const SECCOMP_PROFILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/seccomp.json"));
/// Number of bytes of output that a run of these tests keeps.
pub(crate) const OUTPUT_MAX: u64 = 8 << 20;
const TIMEOUT: Duration = Duration::from_secs(120);

/// Variable with the state directory, for a test process that is a daemon.
const STATE: &str = "SLUICE_TEST_STATE";
/// Variable with the program of the run.
const PROGRAM: &str = "SLUICE_TEST_PROGRAM";
/// Variable with the address of the upstream.
const UPSTREAM: &str = "SLUICE_TEST_UPSTREAM";

/// Returns the run of a state directory. The engine has containers of other tests, too.
pub(crate) fn key(state: &Path) -> RunKey {
    let name = state.file_name().and_then(|name| name.to_str()).expect("a name");
    let name: String = name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    format!("daemon-{name}.0").parse().expect("a key")
}

/// A state directory. It is removed with the remains of a failed test's run.
pub(crate) struct TestState(TempDir);

impl TestState {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("there is room"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TestState {
    fn drop(&mut self) {
        let key = key(self.path());
        let _ = Command::new("docker").args(["rm", "-f", &container_name(&key)]).output();
        let audit = Layout::at(self.path()).run(&key).audit;
        if let Some(sidecar) = Process::find(&proxy(), "--audit", &audit) {
            let _ = sidecar.signal(Signal::SIGKILL);
        }
    }
}

fn proxy() -> PathBuf {
    std::env::current_exe().expect("this program").ancestors().nth(2).expect("it is in deps").join("sluice-proxy")
}

/// Opens the host of a state directory.
pub(crate) async fn host(state: &Path) -> Arc<Host> {
    let proxy = proxy();
    assert!(proxy.is_file(), "{} is missing; build it with cargo build -p sluice-proxy", proxy.display());
    let settings = HostSettings {
        state_dir: state.to_owned(),
        docker_host: "unix:///var/run/docker.sock".into(),
        proxy: Some(proxy),
        sidecar_users: SidecarUsers { uids: sidecar_user::DEFAULT_UIDS.parse().expect("a range"), gid: None },
        litellm: None,
        git: GitHome::new(state.join("git"), GitProgram::new("/usr/bin/git".into(), vec![], None)),
    };
    Arc::new(Host::open(&settings).await.expect("the engine runs, and we are root"))
}

fn spec(program: &str, upstream: &str) -> RunSpec {
    RunSpec {
        clone: None,
        account: "a".into(),
        graph_id: "sandbox:test".into(),
        models: vec![],
        image: IMAGE.into(),
        bridge: Bridge::OfImage,
        argv: ["python3", "-c", program].map(str::to_owned).into(),
        workdir: WORKSPACE.into(),
        env: BTreeMap::new(),
        volumes: vec![],
        exchange: FileExchange::default(),
        stdin: Stdin::Closed,
        tty: false,
        limits: SandboxLimits { memory: 256 << 20, cpu_millis: 1000, pids: 64 },
        timeout: TIMEOUT,
        seccomp: SECCOMP_PROFILE.into(),
        messages: Some(b"[]".to_vec()),
        upstream: sluice_upstream::Upstream::at(upstream),
        upstream_key: ApiKey::new("sk-test".into()).expect("a key"),
        key_mode: KeyMode::Master,
        max_cost: None,
        hold: 0,
        prices: None,
        daemon: Some(DaemonOptions {
            sandbox_users: sandbox_user::DEFAULT_UIDS.parse().expect("a range"),
            output_max: OUTPUT_MAX,
            artifacts_max: 1 << 20,
            relay_token: None,
        }),
        sidecar_flags: vec![],
    }
}

/// Starts the run, or adopts it if a daemon began it, and drives it to its end.
pub(crate) async fn drive(
    host: &Arc<Host>,
    program: &str,
    upstream: &str,
    observer: Arc<dyn Observer>,
    cancelled: watch::Receiver<Option<Cancel>>,
) -> CompletedRun {
    let open = host.store.open_runs().await.expect("it is open");
    if let Some(orphan) = open.into_iter().find(|open| open.entry.key == key(host.layout.state())) {
        let resumption = DaemonResumption {
            clone: None,
            contract: Contract::Plain,
            limits: LimitValues::default(),
            output_max: OUTPUT_MAX,
            stop: StopPolicy::after(Duration::from_secs(1)),
            clock: Arc::default(),
            observer,
        };
        let adopted = daemon_run::resume(Arc::clone(host), orphan, resumption, cancelled).await;
        return match adopted.expect("the engine answers") {
            Adopted::Completed(completed) => *completed,
            Adopted::TakenDown(taken) => panic!("it was taken down: {taken:?}"),
        };
    }
    let request = RunRequest {
        key: key(host.layout.state()),
        agent: "test".into(),
        contract: Contract::Plain,
        spec: spec(program, upstream),
    };
    let (admitted, _) = admission::admit(host, &request).await.expect("there is no budget");
    let records = host.layout.records();
    let record = RequestRecord::of(&request, SystemTime::now());
    let recorder = RunRecorder::begin_logged(&records, &request.key, &record, None).expect("there is room");
    let stop = StopPolicy::after(Duration::from_secs(1));
    let run = DaemonRun {
        host: Arc::clone(host),
        request,
        admitted,
        generation: 0,
        stop,
        clock: Arc::default(),
        recorder,
        observer,
    };
    daemon_run::run(run, cancelled).await.expect("the run is recorded")
}

/// A process that drives the run, as a daemon does.
pub(crate) struct DaemonProcess(Child);

impl DaemonProcess {
    pub(crate) fn start(state: &Path, program: &str, upstream: &str) -> Self {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "killed::a_daemon_in_a_process_of_its_own", "--nocapture"])
            .envs([(STATE, state.as_os_str()), (PROGRAM, program.as_ref()), (UPSTREAM, upstream.as_ref())])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("this program runs");
        Self(child)
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }

    pub(crate) fn wait(mut self) {
        assert!(self.0.wait().expect("it is ours").success());
    }
}

/// Drives the run, if this process is a daemon of a test.
pub(crate) async fn drive_as_daemon() {
    let (Some(state), Ok(program), Ok(upstream)) =
        (std::env::var_os(STATE), std::env::var(PROGRAM), std::env::var(UPSTREAM))
    else {
        return;
    };
    let host = host(&PathBuf::from(state)).await;
    let (_cancel, cancelled) = watch::channel(None);
    let completed = drive(&host, &program, &upstream, Arc::new(NoObserver), cancelled).await;
    if let Some(posting) = completed.posting {
        posting.done().await.expect("the audit file is ours");
    }
}
