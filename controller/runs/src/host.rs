//! The host of all runs of one controller: state directory, database, engine, sidecar program.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use sluice_git::GitHome;
use sluice_litellm::{ApiKey, Litellm};
use sluice_state::keys::{KeyError, Keys};
use sluice_state::layout::{Layout, LayoutError};
use sluice_state::process::Process;
use sluice_state::state_directory::{self, StateDirectory};
use sluice_state::store::{Store, StoreError};
use sluice_upstream::Upstream;

use crate::engine::{Engine, EngineError};
use crate::sidecar_user::SidecarUsers;

/// Settings that all runs of a controller share.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// State directory.
    pub state_dir: PathBuf,
    /// Address of the Docker Engine.
    pub docker_host: String,
    /// Program of the sidecar; otherwise it is searched for.
    pub proxy: Option<PathBuf>,
    /// Users of the sidecars.
    pub sidecar_users: SidecarUsers,
    /// Address and key of the LiteLLM that makes virtual keys.
    pub litellm: Option<(Upstream, ApiKey)>,
    /// Repositories of runs.
    pub git: GitHome,
}

/// The host of all runs.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "named like their types")]
pub struct Host {
    pub layout: Layout,
    pub instance: String,
    pub store: Store,
    pub engine: Engine,
    pub keys: Keys,
    /// Program of the sidecar; empty for a host that was opened only for reading.
    pub proxy: PathBuf,
    /// Users of the sidecars.
    pub sidecar_users: SidecarUsers,
    /// Address and client of the LiteLLM that makes virtual keys.
    pub litellm: Option<(String, Litellm)>,
    /// Repositories of runs.
    pub git: GitHome,
    /// Process of this controller.
    pub owner: Process,
}

/// A host that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum HostError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    ApiKey(#[from] KeyError),
    #[error("there is no sidecar program {0}; name it with --proxy, or put sluice-proxy beside sluice")]
    NoProxy(PathBuf),
    #[error("only root can give a workspace to user 1001 and take it back; run sluice as root")]
    NotRoot,
    #[error("cannot read the state directory")]
    Io(#[from] std::io::Error),
}

impl Host {
    /// Opens everything that a run needs.
    ///
    /// # Errors
    /// [`HostError`] of the first part that is missing.
    pub async fn open(settings: &HostSettings) -> Result<Self, HostError> {
        if !nix::unistd::Uid::effective().is_root() {
            return Err(HostError::NotRoot);
        }
        let proxy = proxy(settings.proxy.as_deref())?;
        let layout = Layout::open(&settings.state_dir)?;
        layout.check_database()?;
        let instance = layout.instance()?;
        let keys = Keys::open(layout.state())?;
        let store = Store::open(&layout.database())?;
        Ok(Self { proxy, ..Self::with(settings, layout, instance, keys, store).await? })
    }

    /// Opens a host for reading: nothing is created or changed. Returns `None` if no run was ever started.
    ///
    /// # Errors
    /// As of [`Host::open`].
    pub async fn open_to_look(settings: &HostSettings) -> Result<Option<Self>, HostError> {
        if !nix::unistd::Uid::effective().is_root() {
            return Err(HostError::NotRoot);
        }
        if state_directory::inspect(&settings.state_dir).map_err(LayoutError::from)? != StateDirectory::InUse {
            return Ok(None);
        }
        let layout = Layout::at(&std::fs::canonicalize(&settings.state_dir)?);
        layout.check_database()?;
        let Some(instance) = layout.known_instance()?.filter(|_| layout.database().exists()) else { return Ok(None) };
        let (keys, store) = (Keys::at(layout.state()), Store::open_for_queries(&layout.database())?);
        Self::with(settings, layout, instance, keys, store).await.map(Some)
    }

    async fn with(
        settings: &HostSettings,
        layout: Layout,
        instance: String,
        keys: Keys,
        store: Store,
    ) -> Result<Self, HostError> {
        let engine = Engine::connect(&settings.docker_host).await?;
        let litellm = settings.litellm.as_ref();
        let litellm =
            litellm.and_then(|(upstream, key)| Some((upstream.url.clone(), Litellm::new(upstream, key.clone()).ok()?)));
        let (proxy, sidecar_users) = (PathBuf::new(), settings.sidecar_users.clone());
        let (git, owner) = (settings.git.clone(), Process::current()?);
        Ok(Self { layout, instance, store, engine, keys, proxy, sidecar_users, litellm, git, owner })
    }
}

/// Finds the sidecar's program: the named one, else the one beside this program, else the first on PATH.
///
/// # Errors
/// [`HostError::NoProxy`].
pub fn proxy(named: Option<&Path>) -> Result<PathBuf, HostError> {
    let is_executable = |path: &PathBuf| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if let Some(path) = named {
        let path = std::path::absolute(path)?;
        return if is_executable(&path) { Ok(path) } else { Err(HostError::NoProxy(path)) };
    }
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("sluice-proxy")));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&on_path).map(|directory| directory.join("sluice-proxy"));
    beside.into_iter().chain(on_path).find(is_executable).ok_or_else(|| HostError::NoProxy("sluice-proxy".into()))
}
