//! Reasons why a step of a run failed, and which of them a retry can overcome.

use std::io;
use std::path::PathBuf;

use sluice_git::GitError;
use sluice_litellm::LitellmError;
use sluice_litellm::prices::PriceListError;
use sluice_litellm::virtual_key::GenerateError;
use sluice_state::keys::KeyError;
use sluice_state::layout::LayoutError;
use sluice_state::store::StoreError;

use crate::engine::EngineError;
use crate::exchange::ExchangeError;
use crate::run_clone::CloneError;
use crate::sidecar::SidecarError;
use crate::upstream::UpstreamUnreachable;
use crate::virtual_key::MintError;

/// A step that failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A file or a directory of the run cannot be used.
    #[error("{}", path.display())]
    Directory {
        /// The directory of the run.
        path: PathBuf,
        /// Reason.
        #[source]
        source: io::Error,
    },
    /// Files cannot be brought into the workspace.
    #[error("cannot bring the files into the run")]
    Exchange(#[from] ExchangeError),
    /// The repository cannot be cloned into the workspace.
    #[error("cannot clone the repository into the run")]
    Clone(#[from] CloneError),
    /// The workspace holds results that were not exported, and cannot be kept.
    #[error("cannot keep the workspace {}, which holds the results of the run", path.display())]
    Workspace {
        /// The workspace.
        path: PathBuf,
        /// Reason.
        #[source]
        source: io::Error,
    },
    /// The user of the sidecar cannot be read from the run's directories.
    #[error(transparent)]
    SidecarUser(io::Error),
    /// An earlier run had the same id.
    #[error("there is an audit file {} already; a run id is used once", .0.display())]
    IdUsed(PathBuf),
    /// The paths of the run are not usable.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The key that signs the audit log cannot be used.
    #[error(transparent)]
    SigningKey(#[from] KeyError),
    /// The Docker Engine did not do its part.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The sidecar did not start or did not end.
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
    /// The upstream does not accept connections.
    #[error(transparent)]
    Upstream(#[from] UpstreamUnreachable),
    /// The upstream is not usable as a LiteLLM.
    #[error(transparent)]
    Litellm(#[from] LitellmError),
    /// No price list is available for the cap in dollars.
    #[error(transparent)]
    Prices(#[from] PriceListError),
    /// The run got no virtual key.
    #[error(transparent)]
    VirtualKey(#[from] MintError),
}

impl StepError {
    /// Returns true if the same step can succeed later without a change of settings, image or files.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Directory { source, .. } | Self::Workspace { source, .. } | Self::SidecarUser(source) => {
                is_retryable_io(source)
            }
            Self::Exchange(ExchangeError::File { source, .. }) => is_retryable_io(source),
            Self::IdUsed(_) | Self::Exchange(_) => false,
            Self::Layout(error) => matches!(error, LayoutError::State(_, source) if is_retryable_io(source)),
            Self::SigningKey(error) => matches!(error, KeyError::Io(_, source) if is_retryable_io(source)),
            Self::Engine(error) => is_retryable_engine(error),
            Self::Sidecar(error) => match error {
                SidecarError::Spawn(_, source) | SidecarError::Io(source) => is_retryable_io(source),
                SidecarError::NotReady | SidecarError::Unhealthy(_) | SidecarError::Unkillable(_) => true,
                SidecarError::Refused(_) | SidecarError::Unchecked(_) => false,
            },
            // The forge may answer again; git gives no reliable reason.
            Self::Clone(CloneError::Git(error)) => matches!(error, GitError::TimedOut { .. } | GitError::Failed { .. }),
            Self::Clone(CloneError::File { source, .. }) => is_retryable_io(source),
            Self::Clone(_) => false,
            Self::Upstream(error) => match error {
                UpstreamUnreachable::Unreachable { .. } => true,
                UpstreamUnreachable::Address { .. }
                | UpstreamUnreachable::Denied { .. }
                | UpstreamUnreachable::Tls { .. } => false,
            },
            Self::Litellm(error) => is_retryable_litellm(error),
            Self::Prices(PriceListError::Write(_, source)) => is_retryable_io(source),
            Self::Prices(PriceListError::Unusable(_)) => false,
            Self::Prices(PriceListError::Litellm(error)) => is_retryable_litellm(error),
            Self::VirtualKey(error) => match error {
                MintError::Generate(GenerateError::Litellm(error)) => is_retryable_litellm(error),
                MintError::Generate(GenerateError::NoKey) => false,
                MintError::Record(error) => matches!(error, StoreError::Sqlite(_) | StoreError::Closed),
            },
        }
    }
}

/// Returns true for errors of a system that has too few resources at the moment.
fn is_retryable_io(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, Interrupted, OutOfMemory, QuotaExceeded, ResourceBusy, StorageFull,
        TimedOut, WouldBlock,
    };
    const TOO_MANY_FILES: [i32; 2] = [nix::libc::EMFILE, nix::libc::ENFILE];
    matches!(
        error.kind(),
        ConnectionRefused
            | ConnectionReset
            | Interrupted
            | OutOfMemory
            | QuotaExceeded
            | ResourceBusy
            | StorageFull
            | TimedOut
            | WouldBlock
    ) || error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code))
}

fn is_retryable_engine(error: &EngineError) -> bool {
    match error {
        EngineError::Unreachable { .. } | EngineError::Late(_) | EngineError::Transport(_) => true,
        EngineError::Remote(_)
        | EngineError::NoImage(_)
        | EngineError::NameTaken(_)
        | EngineError::NameOfOtherRun(_)
        | EngineError::NameOfEarlierRun(_)
        | EngineError::Refused(_)
        | EngineError::Terminal(_) => false,
    }
}

fn is_retryable_litellm(error: &LitellmError) -> bool {
    match error {
        LitellmError::Unreachable(..) | LitellmError::Broken(..) | LitellmError::Late(..) => true,
        LitellmError::Status(_, status) => *status == 429 || *status >= 500,
        // The address, the key, a budget or a bound has to be changed first.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_contract::text::error_chain;

    use super::*;

    fn io_error(kind: io::ErrorKind) -> io::Error {
        kind.into()
    }

    #[test]
    fn errors_of_the_moment_are_retryable() {
        let directory = |kind| StepError::Directory { path: "/r".into(), source: io_error(kind) };
        let rows: [(StepError, bool); 14] = [
            (directory(io::ErrorKind::StorageFull), true),
            (directory(io::ErrorKind::AlreadyExists), false),
            (directory(io::ErrorKind::PermissionDenied), false),
            (StepError::SidecarUser(io::Error::from_raw_os_error(nix::libc::EMFILE)), true),
            (StepError::IdUsed("/a.jsonl".into()), false),
            (EngineError::Late("create the container").into(), true),
            (EngineError::NoImage("x".into()).into(), false),
            (EngineError::Refused("no such option".into()).into(), false),
            (SidecarError::NotReady.into(), true),
            (SidecarError::Refused("no".into()).into(), false),
            (LitellmError::Status("GET /model/info".into(), 503).into(), true),
            (LitellmError::Denied("GET /model/info".into(), 401).into(), false),
            (MintError::Generate(LitellmError::Late("POST".into(), Duration::ZERO).into()).into(), true),
            (MintError::Record(StoreError::Closed).into(), true),
        ];
        for (error, expected) in rows {
            assert_eq!(error.is_retryable(), expected, "{error:?}");
        }
    }

    #[test]
    fn a_message_has_each_cause_once() {
        let directory = StepError::Directory { path: "/r".into(), source: io::Error::other("no room") };
        assert_eq!(error_chain(&directory), "/r: no room");
        let mint = StepError::from(MintError::Generate(GenerateError::NoKey));
        assert_eq!(
            error_chain(&mint),
            "cannot get a virtual key for the run; --key-mode master uses the key of key_file: LiteLLM's answer to POST \
             /key/generate holds no key"
        );
    }
}
