//! The start of the control socket, and the limits that it may have raised before a restart.

use nix::unistd::Uid;
use sluice_contract::recovery::RecoveryPlan;

use super::errors::bind_error;
use super::hidden;
use crate::caps::{Caps, Raisable};
use crate::hold::{Holds, OnCap};
use crate::settings::ProxySettings;
use crate::socket::{self, ListeningSocket};
use crate::start_error::{SidecarExit, StartError};

/// Mode of the control socket, whatever `--socket-mode` says.
const MODE: u32 = 0o600;

/// The control socket, and the user that may connect to it.
#[derive(Debug)]
#[allow(missing_docs, reason = "said above")]
pub struct ControlSocket {
    pub socket: ListeningSocket,
    pub uid: u32,
}

/// Checks that the control socket could be bound, in a directory that the sandbox does not see.
pub(super) fn check(settings: &ProxySettings) -> Result<(), StartError> {
    let Some(path) = &settings.control else { return Ok(()) };
    socket::check(path).map_err(|error| bind_error("--control", path, &error))?;
    hidden("--control", path, &settings.socket)
}

/// Refuses to let calls wait for an operator who has no way to decide. Only a start is refused: a launcher checks flags
/// before it knows the path of the socket.
pub(super) fn is_needed(settings: &ProxySettings) -> Result<(), StartError> {
    if settings.on_cap == OnCap::Ask && settings.control.is_none() {
        let cause = "ask needs --control: the operator raises caps, or denies calls, by that socket";
        return Err(StartError::new("--on-cap", SidecarExit::Usage, cause));
    }
    Ok(())
}

/// Binds the control socket. To be called before the process changes its user: the user before the change may connect.
pub(super) fn open(settings: &ProxySettings) -> Result<Option<ControlSocket>, StartError> {
    let Some(path) = &settings.control else { return Ok(None) };
    let socket = ListeningSocket::bind(path, MODE).map_err(|error| bind_error("--control", path, &error))?;
    Ok(Some(ControlSocket { socket, uid: Uid::effective().as_raw() }))
}

/// Returns the table of held calls, with the pause that the audit file of an earlier process has.
pub(super) fn holds(settings: &ProxySettings, past: Option<&RecoveryPlan>, caps: &Caps) -> Holds {
    Holds::new(settings.on_cap, settings.hold, past.map(|plan| &plan.log), caps)
}

/// Returns the limits of the flags, with the raises that the audit file of an earlier process has.
pub(super) fn limits(settings: &ProxySettings, past: Option<&RecoveryPlan>) -> Raisable {
    let limits = settings.caps.raisable(settings.deadline);
    past.map_or(limits, |plan| limits.with_recorded(&plan.log))
}
