//! From settings to a run that is ready: everything that can fail, fails here, by the name of its flag.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use http::HeaderValue;
use nix::unistd::{AccessFlags, Uid, access};
use sluice_contract::ready::{Hardening, Measure, ReadyEvent, ReadyLine};
use sluice_contract::record::{Open, SCHEMA};
use sluice_contract::recovery::{AuditOwner, Unusable};
use sluice_contract::{AuditSigner, Hash};
use sluice_upstream::{Address, Connector, Scheme, SetupError, TlsError};

use crate::audit::{self, Journal, Log, OpenError, Terms, directory};
use crate::body::BodyPolicy;
use crate::caps::{Caps, Used};
use crate::harden::{self, Calls, HardenError, Needs};
use crate::headers::Injector;
use crate::ids::CallIds;
use crate::intake::{Bounds, Room};
use crate::memory;
use crate::policy::Policy;
use crate::relay::Relay;
use crate::run::{Ending, Run};
use crate::secret::Secret;
use crate::server::connections_max;
use crate::settings::{Exit, Settings, StartError, unreadable};
use crate::socket::{BindError, Socket};
use crate::upstream::Upstream;

mod secrets;

use secrets::{secret, signer};

/// What `build.rs` found.
const BUILD: &str = env!("SLUICE_BUILD");

/// Everything open that has to be, and everything else out of reach; no thread yet.
#[derive(Debug)]
pub struct Opened {
    upstream: Arc<Upstream>,
    relay: Option<Relay>,
    injector: Injector,
    key: Secret,
    audit: Log,
    signer: Option<AuditSigner>,
    socket: Socket,
    connections: usize,
    uid: u32,
    capabilities: Measure,
    landlock: Measure,
}

/// What is left after the start: a socket, and a run behind it.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub struct Started {
    pub socket: Socket,
    pub run: Arc<Run>,
    pub hardening: Hardening,
    /// The user that the process has become.
    pub uid: u32,
    /// How many connections may be open at once.
    pub connections: usize,
}

/// Reads the key of the upstream.
///
/// # Errors
/// Of `--key-file`.
pub fn key(settings: &Settings) -> Result<Secret, StartError> {
    secret("--key-file", settings.key_file.as_deref())
}

/// Opens, in order: the way out, the audit log, the socket; then gives up its user, its capabilities and all other files,
/// while there is one thread: those that come inherit it.
///
/// # Errors
/// The first thing that cannot be.
pub fn open(settings: &Settings, key: Secret) -> Result<Opened, StartError> {
    let upstream = upstream("--upstream", &settings.upstream, settings)?;
    let relay = relay(settings)?;
    let host = HeaderValue::from_str(&settings.upstream.authority)
        .map_err(|e| StartError::caused("--upstream", Exit::Usage, &e))?;
    let injector = Injector::new(&settings.identity, host, key.bearer(), settings.betas.clone())
        .map_err(|error| StartError::caused("--metadata", Exit::Config, &error))?;

    // Before the audit file is made: a start that fails here leaves none behind.
    crate::socket::check(&settings.socket).map_err(|error| bind_error(&settings.socket, &error))?;
    apart(settings)?;
    let signer = signer(settings)?;
    let audit = audit::open(&settings.audit, &owner(settings)).map_err(|error| audit_error(&settings.audit, &error))?;
    let socket =
        Socket::bind(&settings.socket, settings.socket_mode).map_err(|error| bind_error(&settings.socket, &error))?;

    if let Some(bytes) = settings.max_memory {
        memory::limit(bytes).map_err(|error| StartError::caused("--max-memory", Exit::Software, &error))?;
    }
    let connections = connections_max(settings.caps.concurrency)
        .map_err(|error| StartError::caused("descriptors", Exit::Software, &error))?;
    let capabilities = harden::privileges(settings.user).map_err(|error| harden_error(&error))?;
    // Asked here: the filter of system calls does not allow the question.
    let uid = Uid::effective().as_raw();
    let landlock = harden::files(&needs(settings)).map_err(|error| harden_error(&error))?;
    Ok(Opened { upstream, relay, injector, key, audit, signer, socket, connections, uid, capabilities, landlock })
}

/// Begins the audit log, and its thread; then gives up the system calls that nobody makes any more.
///
/// # Errors
/// Of `--audit`, when the first record cannot be written.
pub fn begin(settings: &Settings, opened: Opened) -> Result<Started, StartError> {
    let Opened { upstream, relay, injector, key, audit, signer, socket, connections, uid, capabilities, landlock } =
        opened;
    let identity = &settings.identity;
    let used = audit.past.as_ref().map(|plan| Used::of(&plan.log)).unwrap_or_default();
    let terms = Terms { run_id: identity.run_id.clone(), attempt: identity.attempt, mode: settings.audit_sync, signer };
    let journal = Journal::begin(terms, audit, |stamp| Open {
        attempt: stamp.attempt,
        billing_account_id: identity.account.to_string().into(),
        boot_id: std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned().into(),
        build: BUILD.into(),
        graph_id: identity.graph_id.clone().into(),
        kind: Open::KIND.into(),
        limits: settings.limits(),
        pid: std::process::id(),
        policy: policy_digest(settings).into(),
        prev: stamp.prev.into(),
        proxy_version: env!("CARGO_PKG_VERSION").into(),
        run_id: stamp.run_id.to_owned().into(),
        seq: stamp.seq,
        sync: settings.audit_sync.as_str().into(),
        ts: stamp.ts.into(),
        upstream: settings.upstream.to_string().into(),
        v: SCHEMA,
    })
    .map_err(|error| {
        StartError::new(
            "--audit",
            Exit::Audit,
            format!("cannot write {}: {error}; free some room", settings.audit.display()),
        )
    })?;
    let seccomp = harden::system_calls(calls(settings)).map_err(|error| harden_error(&error))?;

    let run = Run {
        run_id: identity.run_id.clone(),
        policy: Policy::new(&settings.routes, settings.relay.as_ref().map(|_| identity.run_id.as_str())),
        body: body_policy(settings),
        bounds: Bounds {
            max: settings.max_body,
            idle: settings.timeouts.idle,
            room: Room::new(memory::bodies(settings.max_body)),
        },
        injector,
        pass_response_headers: settings.pass_response_headers.clone(),
        caps: Caps::resume(settings.caps, used),
        cap_wait: settings.cap_wait,
        prices: settings.prices.clone(),
        journal,
        key,
        address: settings.upstream.clone(),
        upstream,
        relay,
        abort: settings.abort,
        peer_uids: settings.peer_uids.clone(),
        call_ids: CallIds::default(),
        known_ids: Mutex::default(),
        ending: Ending::default(),
    };
    let hardening = Hardening {
        capabilities,
        no_core: Measure::Applied,
        no_new_privileges: Measure::Applied,
        non_dumpable: Measure::Applied,
        landlock,
        seccomp,
    };
    Ok(Started { socket, run: Arc::new(run), hardening, uid, connections })
}

/// `sluice-proxy check`: what would be done, and whether it could be, without doing it.
///
/// # Errors
/// What `start` would run into, as far as that shows from outside.
pub fn check(settings: &Settings) -> Result<serde_json::Value, StartError> {
    let config = |error: StartError| StartError { exit: Exit::Config, ..error };
    upstream("--upstream", &settings.upstream, settings).map_err(config)?;
    relay(settings).map_err(config)?;
    if settings.key_file.is_some() {
        key(settings).map_err(config)?;
    }
    Injector::new(&settings.identity, HeaderValue::from_static("x"), HeaderValue::from_static("x"), Vec::new())
        .map_err(|error| StartError::caused("--metadata", Exit::Config, &error))?;
    crate::socket::check(&settings.socket).map_err(|error| config(bind_error(&settings.socket, &error)))?;
    apart(settings).map_err(config)?;
    signer(settings).map_err(config)?;
    audit::check(&settings.audit, &owner(settings)).map_err(|error| config(audit_error(&settings.audit, &error)))?;
    if let (Some(user), false) = (settings.user, settings.is_root) {
        let source = nix::errno::Errno::EPERM;
        return Err(config(harden_error(&HardenError::User { user, source })));
    }
    if let Err(error) = access(directory(&settings.audit), AccessFlags::W_OK | AccessFlags::X_OK) {
        return Err(config(audit_error(&settings.audit, &OpenError::Create(error.into()))));
    }
    Ok(serde_json::json!({
        "event": "checked",
        "run_id": settings.identity.run_id.as_str(),
        "account": settings.identity.account.as_str(),
        "socket": settings.socket,
        "upstream": settings.upstream.to_string(),
        "audit": settings.audit,
        "audit_sync": settings.audit_sync.as_str(),
        "policy": policy_digest(settings),
        "rules": settings.policy(),
        "warnings": settings.warnings(),
    }))
}

/// The line that says that calls are taken.
#[must_use]
pub fn ready_line(settings: &Settings, started: &Started) -> String {
    let ready = ReadyLine {
        build: BUILD.into(),
        event: ReadyEvent::Ready,
        hardening: Some(started.hardening),
        max_memory: settings.max_memory,
        pid: std::process::id(),
        policy: policy_digest(settings).into(),
        run_id: settings.identity.run_id.as_str().into(),
        socket: settings.socket.to_string_lossy(),
        uid: started.uid,
        version: env!("CARGO_PKG_VERSION").into(),
    };
    ready.to_line()
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

fn policy_digest(settings: &Settings) -> String {
    format!("sha256:{}", Hash::of(settings.policy().to_string().as_bytes()))
}

fn body_policy(settings: &Settings) -> BodyPolicy {
    BodyPolicy {
        models: settings.models.clone(),
        params: settings.params.clone(),
        tools: settings.tools.clone(),
        server: settings.server,
        remote_media: settings.remote_media,
        account_json: serde_json::Value::from(settings.identity.account.as_str()).to_string(),
    }
}

fn upstream(flag: &'static str, address: &Address, settings: &Settings) -> Result<Arc<Upstream>, StartError> {
    let connector =
        Connector::new(address.clone(), settings.ca.as_deref()).map_err(|error| match (&error, &settings.ca) {
            (SetupError::Tls(TlsError::File(source)), Some(path)) => unreadable("--ca", path, source),
            (SetupError::Tls(TlsError::Certificates(_) | TlsError::NoRoots), Some(_)) => {
                StartError::caused("--ca", Exit::Config, &error)
            }
            _ => StartError::caused(flag, Exit::Config, &error),
        })?;
    Ok(Upstream::new(connector, settings.timeouts))
}

fn relay(settings: &Settings) -> Result<Option<Relay>, StartError> {
    let Some((address, token)) = &settings.relay else {
        return Ok(None);
    };
    let upstream = upstream("--relay", address, settings)?;
    Ok(Some(Relay { address: address.clone(), upstream, token: secret("--relay-token-file", Some(token))? }))
}

/// A sandbox sees the directory of its socket, and must not see its audit file.
fn apart(settings: &Settings) -> Result<(), StartError> {
    let real = |path: &Path| directory(path).canonicalize();
    match (real(&settings.audit), real(&settings.socket)) {
        (Ok(audit), Ok(socket)) if audit.starts_with(&socket) => Err(StartError::new(
            "--audit",
            Exit::Config,
            format!(
                "{} is in the directory of the socket, {}, which the sandbox sees; choose another directory",
                settings.audit.display(),
                socket.display()
            ),
        )),
        // A directory that is not there is an error of its own.
        _ => Ok(()),
    }
}

fn owner(settings: &Settings) -> AuditOwner<'_> {
    let identity = &settings.identity;
    AuditOwner {
        run_id: identity.run_id.as_str(),
        attempt: identity.attempt,
        billing_account_id: identity.account.as_str(),
    }
}

/// Files and ports that are still used once everything is open.
fn needs(settings: &Settings) -> Needs {
    // Landlock has no right for the connection to a unix socket by its path: the socket's mode decides.
    let tcp = addresses(settings).filter(|address| !matches!(address.scheme, Scheme::Unix(_)));
    let connect = Some(tcp.map(|address| address.port).chain([53]).collect());
    // At the end, the socket is removed. The audit file stays open, and its directory is out of reach.
    let remove = vec![directory(&settings.socket).to_owned()];
    // A static build has no other way to random bytes than the device.
    let read = ["/etc/hosts", "/etc/resolv.conf", "/dev/urandom", "/dev/random", BOOT_ID].map(PathBuf::from).to_vec();
    Needs { remove, read, connect }
}

/// System calls that depend on where calls go.
fn calls(settings: &Settings) -> Calls {
    Calls {
        unix: addresses(settings).any(|address| matches!(address.scheme, Scheme::Unix(_))),
        resolve: addresses(settings).any(Address::is_name),
    }
}

/// Where calls go: the upstream, and the relay if there is one.
fn addresses(settings: &Settings) -> impl Iterator<Item = &Address> {
    std::iter::once(&settings.upstream).chain(settings.relay.iter().map(|(address, _)| address))
}

fn audit_error(path: &Path, error: &OpenError) -> StartError {
    let fix = match error {
        OpenError::Unusable(Unusable::Damaged(_)) => "; it is left as it is for who looks into it; start a new attempt",
        OpenError::Unusable(_) => "; give each attempt a file of its own",
        OpenError::GoOn(_) => "; it must be readable and writable, with room beside it",
        OpenError::Locked => "; another sidecar is writing it",
        OpenError::NotAFile => "; name a file to create",
        OpenError::Create(_) => "; its directory must exist and be writable",
    };
    let exit = match error {
        OpenError::Create(source) | OpenError::GoOn(source)
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Exit::Permission
        }
        _ => Exit::Audit,
    };
    let StartError { cause, .. } = StartError::caused("--audit", exit, error);
    StartError::new("--audit", exit, format!("{}: {cause}{fix}", path.display()))
}

fn bind_error(path: &Path, error: &BindError) -> StartError {
    let exit = if error.is_permission() { Exit::Permission } else { Exit::CannotCreate };
    let StartError { cause, .. } = StartError::caused("--socket", exit, error);
    StartError::new("--socket", exit, format!("{}: {cause}", path.display()))
}

fn harden_error(error: &HardenError) -> StartError {
    if let HardenError::User { .. } = error {
        return StartError::caused("--user", Exit::Permission, error);
    }
    StartError::caused("hardening", Exit::Software, error)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::settings::Flags;

    fn settings(upstream: &str, relay: Option<&str>) -> Settings {
        let mut words = vec!["sluice-proxy", "--socket", "/run/r1/llm.sock", "--audit", "/log/r1.jsonl"];
        words.extend(["--run-id", "r1", "--account", "a", "--upstream", upstream]);
        words.extend(relay.into_iter().flat_map(|relay| ["--relay", relay, "--relay-token-file", "/token"]));
        Settings::from_flags(Flags::parse_from(words)).expect("the flags are right")
    }

    #[test]
    fn what_stays_in_reach_follows_from_the_addresses() {
        let unix = "unix:/up/litellm.sock";
        for (upstream, relay, ports, expected) in [
            ("http://127.0.0.1:4000", None, &[4000, 53][..], Calls { unix: false, resolve: false }),
            ("https://llm.example", None, &[443, 53], Calls { unix: false, resolve: true }),
            (unix, None, &[53], Calls { unix: true, resolve: false }),
            ("http://[::1]:1", Some("unix:/relay/s.sock"), &[1, 53], Calls { unix: true, resolve: false }),
            (unix, Some("http://controller:8080"), &[8080, 53], Calls { unix: true, resolve: true }),
        ] {
            let settings = settings(upstream, relay);
            let needs = needs(&settings);
            assert_eq!(needs.connect.as_deref(), Some(ports), "{upstream}");
            assert_eq!(calls(&settings), expected, "{upstream}");
            // Neither the audit directory nor that of another socket.
            assert_eq!(needs.remove, [Path::new("/run/r1")], "{upstream}");
            assert!(needs.read.iter().all(|path| path.starts_with("/etc") || !path.is_dir()), "{:?}", needs.read);
        }
    }
}
