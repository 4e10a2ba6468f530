//! Checks of git and of the credentials, for projects with a repository.

use std::path::Path;

use sluice_contract::text::error_chain;
use sluice_git::GitHome;
use sluice_git::forge::scope_warning;
use sluice_runs::project_access;
use sluice_runs::project_repository::{ForgeKind, ProjectRepository};

use super::git_version::{Corrections, corrections, package_version};
use super::host_checks::read;
use super::scratch_state::ScratchState;
use super::{Check, fail, pass, warn};
use crate::settings::Settings;

/// Name of the check of git.
pub(super) const GIT: &str = "git";
/// Name of the check of the credentials.
pub(super) const CREDENTIALS: &str = "credentials";
const SCOPES: &str = "token scopes";

/// Checks git, if a project has a repository. It starts in the same way as for runs, so missing rights of the daemon
/// are found. It works in a state directory of its own: the daemon has not made the real one yet.
pub(super) async fn git(settings: &Settings, home: fn(&Path) -> GitHome) -> Option<Check> {
    repositories(settings).next()?;
    let scratch = match ScratchState::new() {
        Ok(scratch) => scratch,
        Err(error) => return Some(fail(GIT, error_chain(&error))),
    };
    let home = home(scratch.layout().state());
    let version = match home.version().await {
        Ok(version) => version,
        Err(error) => return Some(fail(GIT, error_chain(&error))),
    };
    let status = read("/var/lib/dpkg/status");
    // A git in another directory does not belong to the package.
    let package = home.program_path().starts_with("/usr/bin").then(|| package_version(&status)).flatten();
    let stated = package.map_or_else(|| version.clone(), |package| format!("{version} (package {package})"));
    Some(match corrections(&version, package) {
        Corrections::Present => pass(GIT, format!("{stated}, starts without rights")),
        Corrections::Absent => {
            fail(GIT, format!("{stated} lacks the correction of CVE-2025-48384; update the package"))
        }
        Corrections::Unknown => warn(
            GIT,
            format!(
                "{stated} is not known to have the correction of CVE-2025-48384; use 2.50.1 or later, or make sure that your \
                 distribution has added it"
            ),
        ),
    })
}

/// Checks that the credentials or the app's key of each project can be read, and only by their owner.
pub(super) fn credentials(settings: &Settings) -> Option<Check> {
    let mut count = 0;
    for (name, repository) in repositories(settings) {
        match project_access::check_files(repository) {
            Ok(has_some) => count += usize::from(has_some),
            Err(error) => return Some(fail(CREDENTIALS, format!("project {name}: {}", error_chain(&error)))),
        }
    }
    (count > 0).then(|| pass(CREDENTIALS, format!("{count} can be read, by their owner alone")))
}

/// Asks GitHub for the scopes of tokens. A token with permissions instead of scopes has none.
pub(super) async fn scopes(settings: &Settings, home: &GitHome) -> Vec<Check> {
    let mut checks = Vec::new();
    for (name, repository) in repositories(settings).filter(|(_, one)| one.forge.kind == ForgeKind::GitHub) {
        let Ok(forge) = project_access::forge(repository, home) else { continue };
        checks.push(match forge.token_scopes().await {
            Ok(scopes) => match scopes.as_deref().and_then(scope_warning) {
                Some(warning) => warn(SCOPES, format!("project {name}: {warning}")),
                None => pass(SCOPES, format!("project {name}: the scope workflow is not among them")),
            },
            Err(error) => warn(SCOPES, format!("project {name}: {}", error_chain(&error))),
        });
    }
    checks
}

fn repositories(settings: &Settings) -> impl Iterator<Item = (&str, &ProjectRepository)> {
    settings.projects.iter().filter_map(|project| Some((project.name.as_str(), project.repository.as_ref()?)))
}
