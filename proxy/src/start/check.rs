//! `sluice-proxy check`: reports whether a start would succeed, and changes nothing.

use http::HeaderValue;
use nix::unistd::{AccessFlags, access};

use super::errors::{audit_error, bind_error, harden_error};
use super::secrets::signer;
use super::{apart, key, owner, policy_digest, relay, upstream};
use crate::audit::{self, OpenError, directory};
use crate::harden::{self, HardenError};
use crate::headers::Injector;
use crate::settings::ProxySettings;
use crate::start_error::{SidecarExit, StartError};

/// Reports what the start would do, and whether it could, without doing it.
///
/// # Errors
/// The error that a start would give, if it can be found without a start.
pub fn check(settings: &ProxySettings) -> Result<serde_json::Value, StartError> {
    let config = |error: StartError| StartError { exit: SidecarExit::Config, ..error };
    upstream("--upstream", &settings.upstream, settings).map_err(config)?;
    relay(settings).map_err(config)?;
    if settings.key_file.is_some() {
        key(settings).map_err(config)?;
    }
    Injector::new(&settings.identity, HeaderValue::from_static("x"), HeaderValue::from_static("x"), Vec::new())
        .map_err(|error| StartError::caused("--metadata", SidecarExit::Config, &error))?;
    crate::socket::check(&settings.socket).map_err(|error| config(bind_error("--socket", &settings.socket, &error)))?;
    apart(settings).map_err(config)?;
    super::control::check(settings).map_err(config)?;
    let signer = signer(settings).map_err(config)?;
    audit::check(&settings.audit, &owner(settings)).map_err(|error| config(audit_error(&settings.audit, &error)))?;
    if let Some(user) = settings.user.filter(|_| !harden::may_become_user()) {
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
        "audit_public_key": signer.map(|signer| signer.key().public().to_string()),
        "control": settings.control,
        "audit_sync": settings.audit_sync.as_str(),
        "user": settings.user.map(|user| format!("{}:{}", user.uid, user.gid)),
        "policy": policy_digest(settings),
        "rules": settings.policy(),
        "warnings": settings.warnings(),
    }))
}
