//! The directories and files of the host that a run mounts.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_runs::blueprint::{MountAccess, REPOSITORY, Volume, reserved_target};
use sluice_runs::forbidden_mounts::{ForbiddenPlaces, forbidden};
use sluice_runs::mount_rights::{self, MountFault};
use sluice_runs::rundir::SANDBOX_UID;

use super::args::RunArgs;
use super::clone::is_cloned;
use super::request_error::RequestError;
use crate::cli::forbidden_places::forbidden_places;
use crate::settings::{InvalidValue, Settings};

/// Flag of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MountFlag {
    /// `--repo`: a directory, at a fixed path.
    Repo,
    /// `--volume`: a directory or a file, at a given path.
    Volume,
}

/// Returns the mounts of a run.
///
/// # Errors
/// The first flag that is not valid, or names something that a sandbox may not see or cannot use.
pub(super) fn volumes(args: &RunArgs, settings: &Settings) -> Result<Vec<Volume>, RequestError> {
    let places = forbidden_places(settings);
    // A run that may change the repository works on a copy.
    let repo = args.repo.iter().filter(|_| !is_copied(args) && !is_cloned(args)).map(|given| (MountFlag::Repo, given));
    let mut volumes: Vec<Volume> = Vec::new();
    for (flag, given) in repo.chain(args.volume.iter().map(|given| (MountFlag::Volume, given))) {
        let mount = volume(flag, given, &places).and_then(|volume| {
            check_conflicts(&volume, &volumes)?;
            Ok(volume)
        });
        let invalid = |reason| RequestError::Volume { flag: flag.name(), given: given.clone(), reason };
        volumes.push(mount.map_err(invalid)?);
    }
    Ok(volumes)
}

/// Returns whether the run gets a copy of the repository instead of a mount.
pub(super) fn is_copied(args: &RunArgs) -> bool {
    !is_cloned(args)
        && (args.patch.is_some()
            || args.repo.as_ref().is_some_and(|given| split_access(given).1 == MountAccess::ReadWrite))
}

/// Splits the access from the value of a flag.
pub(super) fn split_access(given: &str) -> (&str, MountAccess) {
    match given.rsplit_once(':') {
        Some((rest, "rw")) => (rest, MountAccess::ReadWrite),
        Some((rest, "ro")) => (rest, MountAccess::ReadOnly),
        _ => (given, MountAccess::ReadOnly),
    }
}

fn volume(flag: MountFlag, given: &str, places: &ForbiddenPlaces) -> Result<Volume, InvalidValue> {
    let (rest, access) = split_access(given);
    let (source, target) = match flag {
        MountFlag::Repo => (rest, REPOSITORY),
        MountFlag::Volume => rest.split_once(':').ok_or_else(|| InvalidValue::new("write DIR:PATH, or DIR:PATH:rw"))?,
    };
    // A third part that is not a mode would be a part of the path.
    if target.starts_with('/') && target.contains(':') {
        return Err(InvalidValue::new("the mode is ro or rw"));
    }
    if let Some(reason) = reserved_target(target) {
        return Err(InvalidValue::new(format!("{target} {reason}")));
    }
    let source = source_of(flag, source)?;
    if let Some(reason) = forbidden(&source, places) {
        return Err(InvalidValue::new(format!("{} {reason}", source.display())));
    }
    Ok(Volume { source, target: target.trim_end_matches('/').to_owned(), access })
}

/// Returns the real path of a source, if it is of the type that the flag takes.
fn source_of(flag: MountFlag, given: &str) -> Result<PathBuf, InvalidValue> {
    let source = fs::canonicalize(given).map_err(|error| InvalidValue::new(format!("{given}: {error}")))?;
    let (is_valid, otherwise) = match flag {
        MountFlag::Repo => (source.is_dir(), "not a directory"),
        MountFlag::Volume => (source.is_dir() || source.is_file(), "neither a directory nor a regular file"),
    };
    if is_valid { Ok(source) } else { Err(InvalidValue::new(format!("{} is {otherwise}", source.display()))) }
}

/// Checks that no two targets overlap, and that the sandbox can use the source.
fn check_conflicts(volume: &Volume, others: &[Volume]) -> Result<(), InvalidValue> {
    let target = &volume.target;
    let contains = |one: &str, other: &str| Path::new(one).starts_with(other);
    if let Some(other) = others.iter().find(|it| contains(&it.target, target) || contains(target, &it.target)) {
        return Err(InvalidValue::new(format!("{target} and {} are one, or inside each other", other.target)));
    }
    match mount_rights::fault(volume, SANDBOX_UID) {
        Some(MountFault::Useless(reason)) => Err(InvalidValue::new(reason)),
        Some(MountFault::Limited(_)) | None => Ok(()),
    }
}

impl MountFlag {
    fn name(self) -> &'static str {
        match self {
            Self::Repo => "repo",
            Self::Volume => "volume",
        }
    }
}
