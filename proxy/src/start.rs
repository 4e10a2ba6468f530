//! The way from settings to a run that is ready: each step that can fail, fails here, with the name of its flag.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use http::HeaderValue;
use nix::unistd::Uid;
use sluice_contract::ready::{Hardening, Measure};
use sluice_contract::record::{Open, SCHEMA, Stamp};
use sluice_contract::recovery::AuditOwner;
use sluice_contract::{AuditSigner, Hash, PublicKey};
use sluice_upstream::{Address, Connector, Scheme, SetupError, TlsError};

use crate::audit::{self, Journal, JournalConfig, OpenLog, directory};
use crate::body::BodyPolicy;
use crate::body_budget::BodyBudget;
use crate::caps::{Caps, PriorUsage};
use crate::deadline::Deadline;
use crate::harden::{self, HardeningNeeds, SyscallNeeds, User};
use crate::headers::Injector;
use crate::ids::CallIds;
use crate::injection::Injections;
use crate::intake::BodyLimits;
use crate::interrupts::Interrupts;
use crate::key_refusals::KeyRefusals;
use crate::memory;
use crate::policy::Policy;
use crate::relay::Relay;
use crate::run::{RunContext, ShutdownState};
use crate::secret::Secret;
use crate::server::connections_max;
use crate::settings::ProxySettings;
use crate::socket::ListeningSocket;
use crate::start_error::{SidecarExit, StartError, unreadable};
use crate::upstream::Upstream;

mod check;
mod control;
mod errors;
mod ready;
mod secrets;
mod user_rights;

pub use check::check;
pub use control::ControlSocket;
pub use ready::ready_line;

use errors::{audit_error, bind_error, harden_error};
use secrets::{secret, signer};

/// Build id that `build.rs` found.
const BUILD: &str = env!("SLUICE_BUILD");

/// Resources that are open before all other files are given up; no other thread runs yet.
#[derive(Debug)]
pub struct OpenedResources {
    upstream: Arc<Upstream>,
    relay: Option<Relay>,
    injector: Injector,
    key: Secret,
    audit: OpenLog,
    signer: Option<AuditSigner>,
    socket: ListeningSocket,
    control: Option<ControlSocket>,
    connections: usize,
    uid: u32,
    capabilities: Measure,
    landlock: Measure,
    warnings: Vec<String>,
}

/// Result of the start: a socket, and the run that serves it.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub struct Started {
    pub socket: ListeningSocket,
    pub control: Option<ControlSocket>,
    pub run: Arc<RunContext>,
    pub hardening: Hardening,
    /// Public key of the signature at the end of the audit file.
    pub audit_public_key: Option<PublicKey>,
    /// User that the process runs as.
    pub uid: u32,
    /// Maximum number of open connections.
    pub connections: usize,
    /// Warnings about rights that the process lost with its user.
    pub warnings: Vec<String>,
}

/// Reads the upstream's key.
///
/// # Errors
/// The error of `--key-file`.
pub fn key(settings: &ProxySettings) -> Result<Secret, StartError> {
    secret("--key-file", settings.key_file.as_deref())
}

/// Opens, in this order, the upstream, the audit log and the socket. Then gives up the user, the capabilities and all
/// other files, while there is one thread: later threads inherit that.
///
/// # Errors
/// The first step that fails.
pub fn open(settings: &ProxySettings, key: Secret) -> Result<OpenedResources, StartError> {
    let upstream = upstream("--upstream", &settings.upstream, settings)?;
    let relay = relay(settings)?;
    let host = HeaderValue::from_str(&settings.upstream.authority)
        .map_err(|e| StartError::caused("--upstream", SidecarExit::Usage, &e))?;
    let injector = Injector::new(&settings.identity, host, key.bearer(), settings.betas.clone())
        .map_err(|error| StartError::caused("--metadata", SidecarExit::Config, &error))?;

    // Before the audit file is created: a start that fails here leaves none.
    crate::socket::check(&settings.socket).map_err(|error| bind_error("--socket", &settings.socket, &error))?;
    apart(settings)?;
    control::check(settings)?;
    control::is_needed(settings)?;
    let signer = signer(settings)?;
    let audit = audit::open(&settings.audit, &owner(settings)).map_err(|error| audit_error(&settings.audit, &error))?;
    let socket = ListeningSocket::bind(&settings.socket, settings.socket_mode)
        .map_err(|error| bind_error("--socket", &settings.socket, &error))?;
    let control = control::open(settings)?;

    if let Some(bytes) = settings.max_memory {
        memory::limit(bytes).map_err(|error| StartError::caused("--max-memory", SidecarExit::Software, &error))?;
    }
    let connections = connections_max(settings.caps.concurrency)
        .map_err(|error| StartError::caused("descriptors", SidecarExit::Software, &error))?;
    // Without these capabilities, the process could not become that user, or a later start could not use the directory.
    if settings.user == Some(User::UNPRIVILEGED) && harden::may_become_user() && harden::ignores_modes() {
        // If that fails, the socket stays at the end, and a warning says so.
        let _ = socket.give_directory(User::UNPRIVILEGED);
    }
    let capabilities = harden::privileges(settings.user).map_err(|error| harden_error(&error))?;
    // Read here, because the filter of system calls does not allow it later.
    let uid = Uid::effective().as_raw();
    let warnings = user_rights::missing(settings, &socket);
    let landlock = harden::files(&needs(settings)).map_err(|error| harden_error(&error))?;
    Ok(OpenedResources {
        upstream,
        relay,
        injector,
        key,
        audit,
        signer,
        socket,
        control,
        connections,
        uid,
        capabilities,
        landlock,
        warnings,
    })
}

/// Begins the audit log, and its thread. Then gives up the system calls that are no longer needed.
///
/// # Errors
/// The error of `--audit`, if the first record cannot be written.
pub fn begin(settings: &ProxySettings, opened: OpenedResources) -> Result<Started, StartError> {
    let OpenedResources {
        upstream,
        relay,
        injector,
        key,
        audit,
        signer,
        socket,
        control,
        connections,
        uid,
        capabilities,
        landlock,
        warnings,
    } = opened;
    let identity = &settings.identity;
    let audit_public_key = signer.as_ref().map(|signer| signer.key().public());
    let limits = control::limits(settings, audit.past.as_ref());
    let used = audit.past.as_ref().map(|plan| PriorUsage::of(&plan.log)).unwrap_or_default();
    let caps = Caps::resume(limits.in_caps(settings.caps), used);
    let holds = control::holds(settings, audit.past.as_ref(), &caps);
    let config = JournalConfig {
        run_id: identity.run_id.clone(),
        attempt: identity.attempt,
        account: identity.account.clone(),
        mode: settings.audit_sync,
        signer,
    };
    let journal = Journal::begin(config, audit, |stamp| open_record(settings, stamp)).map_err(|error| {
        StartError::new(
            "--audit",
            SidecarExit::Audit,
            format!("cannot write {}: {error}; free some disk space", settings.audit.display()),
        )
    })?;
    let seccomp = harden::system_calls(syscall_needs(settings)).map_err(|error| harden_error(&error))?;

    let run = RunContext {
        run_id: identity.run_id.clone(),
        policy: Policy::new(&settings.routes, settings.relay.as_ref().map(|_| identity.run_id.as_str())),
        body: body_policy(settings),
        limits: BodyLimits {
            max: settings.max_body,
            idle: settings.timeouts.idle,
            budget: BodyBudget::new(memory::bodies(settings.max_body)),
        },
        injector,
        pass_response_headers: settings.pass_response_headers.clone(),
        caps,
        deadline: Deadline::start(limits.deadline),
        cap_wait: settings.cap_wait,
        holds,
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
        shutdown: ShutdownState::default(),
        injections: Injections::new(settings.control.is_some()),
        interrupts: Interrupts::new(settings.control.is_some()),
        key_refusals: KeyRefusals::default(),
        changing: tokio::sync::Mutex::default(),
    };
    let hardening = Hardening {
        capabilities,
        no_core: Measure::Applied,
        no_new_privileges: Measure::Applied,
        non_dumpable: Measure::Applied,
        landlock,
        seccomp,
    };
    Ok(Started { socket, control, run: Arc::new(run), hardening, audit_public_key, uid, connections, warnings })
}

/// Returns the first record of the audit log.
fn open_record(settings: &ProxySettings, stamp: Stamp<'_>) -> Open<'static> {
    let identity = &settings.identity;
    Open {
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
    }
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

fn policy_digest(settings: &ProxySettings) -> String {
    format!("sha256:{}", Hash::of(settings.policy().to_string().as_bytes()))
}

fn body_policy(settings: &ProxySettings) -> BodyPolicy {
    BodyPolicy {
        models: settings.models.clone(),
        params: settings.params.clone(),
        tools: settings.tools.clone(),
        server: settings.server,
        remote_media: settings.remote_media,
        account_json: serde_json::Value::from(settings.identity.account.as_str()).to_string(),
    }
}

fn upstream(flag: &'static str, address: &Address, settings: &ProxySettings) -> Result<Arc<Upstream>, StartError> {
    let connector =
        Connector::new(address.clone(), settings.ca.as_deref()).map_err(|error| match (&error, &settings.ca) {
            (SetupError::Tls(TlsError::File(source)), Some(path)) => unreadable("--ca", path, source),
            (SetupError::Tls(TlsError::Certificates(_) | TlsError::NoRoots), Some(_)) => {
                StartError::caused("--ca", SidecarExit::Config, &error)
            }
            _ => StartError::caused(flag, SidecarExit::Config, &error),
        })?;
    Ok(Upstream::new(connector, settings.timeouts))
}

fn relay(settings: &ProxySettings) -> Result<Option<Relay>, StartError> {
    let Some((address, token)) = &settings.relay else {
        return Ok(None);
    };
    let upstream = upstream("--relay", address, settings)?;
    Ok(Some(Relay::new(address.clone(), upstream, secret("--relay-token-file", Some(token))?)))
}

/// Refuses an audit file that the sandbox would see, in the directory of the socket.
fn apart(settings: &ProxySettings) -> Result<(), StartError> {
    hidden("--audit", &settings.audit, &settings.socket)
}

/// Refuses a file in the directory of the socket, which the sandbox sees.
fn hidden(flag: &'static str, path: &Path, socket: &Path) -> Result<(), StartError> {
    let real = |path: &Path| directory(path).canonicalize();
    match (real(path), real(socket)) {
        (Ok(own), Ok(seen)) if own.starts_with(&seen) => {
            let (path, seen) = (path.display(), seen.display());
            let cause = format!(
                "{path} is in the directory of the socket, {seen}, which the sandbox sees; choose another directory"
            );
            Err(StartError::new(flag, SidecarExit::Config, cause))
        }
        // A missing directory is an error of its own.
        _ => Ok(()),
    }
}

fn owner(settings: &ProxySettings) -> AuditOwner<'_> {
    let identity = &settings.identity;
    AuditOwner {
        run_id: identity.run_id.as_str(),
        attempt: identity.attempt,
        billing_account_id: identity.account.as_str(),
    }
}

/// Returns the files and ports that are still used once everything is open.
fn needs(settings: &ProxySettings) -> HardeningNeeds {
    // Landlock has no right for a connection to a unix socket by its path: the socket's mode decides.
    let tcp = addresses(settings).filter(|address| !matches!(address.scheme, Scheme::Unix(_)));
    let connect = Some(tcp.map(|address| address.port).chain([53]).collect());
    // The socket is removed at the end. The audit file stays open, and its directory is out of reach.
    let remove = vec![directory(&settings.socket).to_owned()];
    // A static build gets random bytes only from the device.
    let read = ["/etc/hosts", "/etc/resolv.conf", "/dev/urandom", "/dev/random", BOOT_ID].map(PathBuf::from).to_vec();
    HardeningNeeds { remove, read, connect }
}

/// Returns the system calls that depend on the destination of calls.
fn syscall_needs(settings: &ProxySettings) -> SyscallNeeds {
    SyscallNeeds {
        unix: addresses(settings).any(|address| matches!(address.scheme, Scheme::Unix(_))),
        resolve: addresses(settings).any(Address::is_name),
    }
}

/// Returns the destinations of calls: the upstream, and the relay if there is one.
fn addresses(settings: &ProxySettings) -> impl Iterator<Item = &Address> {
    std::iter::once(&settings.upstream).chain(settings.relay.iter().map(|(address, _)| address))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::settings::ProxyFlags;

    fn settings(upstream: &str, relay: Option<&str>) -> ProxySettings {
        let mut words = vec!["sluice-proxy", "--socket", "/run/r1/llm.sock", "--audit", "/log/r1.jsonl"];
        words.extend(["--run-id", "r1", "--account", "a", "--upstream", upstream]);
        words.extend(relay.into_iter().flat_map(|relay| ["--relay", relay, "--relay-token-file", "/token"]));
        ProxySettings::from_flags(ProxyFlags::parse_from(words)).expect("the flags are right")
    }

    #[test]
    fn the_addresses_decide_what_stays_reachable() {
        let unix = "unix:/up/litellm.sock";
        for (upstream, relay, ports, expected) in [
            ("http://127.0.0.1:4000", None, &[4000, 53][..], SyscallNeeds { unix: false, resolve: false }),
            ("https://llm.example", None, &[443, 53], SyscallNeeds { unix: false, resolve: true }),
            (unix, None, &[53], SyscallNeeds { unix: true, resolve: false }),
            ("http://[::1]:1", Some("unix:/relay/s.sock"), &[1, 53], SyscallNeeds { unix: true, resolve: false }),
            (unix, Some("http://controller:8080"), &[8080, 53], SyscallNeeds { unix: true, resolve: true }),
        ] {
            let settings = settings(upstream, relay);
            let needs = needs(&settings);
            assert_eq!(needs.connect.as_deref(), Some(ports), "{upstream}");
            assert_eq!(syscall_needs(&settings), expected, "{upstream}");
            // Neither the audit directory nor that of another socket: keys of the daemon may be beside the relay's.
            assert_eq!(needs.remove, [Path::new("/run/r1")], "{upstream}");
            assert!(needs.read.iter().all(|path| path.starts_with("/etc") || !path.is_dir()), "{:?}", needs.read);
            let opened = needs.remove.iter().chain(&needs.read);
            assert!(opened.into_iter().all(|path| !path.starts_with("/relay") && !path.starts_with("/up")));
        }
    }
}
