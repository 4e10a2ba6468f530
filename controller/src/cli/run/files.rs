//! The input files and result files of a run, from the flags.

use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use sluice_runs::blueprint::{MountAccess, OUT, REPOSITORY, Volume, WORKSPACE};
use sluice_runs::exchange::git_names::has_git_name;
use sluice_runs::exchange::{FileExchange, HostDirectory, InputFile, OutputFile, RepositoryCopy, output_directory};
use sluice_runs::forbidden_mounts::{ForbiddenPlaces, forbidden};

use super::args::RunArgs;
use super::clone::is_cloned;
use super::mounts::{is_copied, split_access};
use super::request_error::RequestError;
use crate::cli::forbidden_places::forbidden_places;
use crate::cli::regular_file;
use crate::settings::{InvalidValue, Settings};

/// Maximum size of a file of `--file`.
const FILE_MAX: u64 = 2 << 30;

/// Returns the files of a run. The directory of `--out` is created.
///
/// # Errors
/// The first flag that is not valid.
pub(super) fn exchange(args: &RunArgs, settings: &Settings, volumes: &[Volume]) -> Result<FileExchange, RequestError> {
    let places = forbidden_places(settings);
    let invalid = |flag: &'static str, given: &str| {
        let given = given.to_owned();
        move |reason| RequestError::Volume { flag, given, reason }
    };
    let mut taken: Vec<String> = volumes.iter().map(|volume| volume.target.clone()).collect();
    let repository = match args.repo.as_ref().filter(|_| is_copied(args)) {
        Some(given) => {
            let copy = claim(REPOSITORY, &mut taken).and_then(|()| repository(given, &places));
            Some(copy.map_err(invalid("repo", given))?)
        }
        None => None,
    };
    if is_cloned(args) {
        claim(REPOSITORY, &mut taken).map_err(invalid("repo", args.repo.as_deref().unwrap_or_default()))?;
    }
    let mut inputs = Vec::new();
    for given in &args.file {
        inputs.push(input(given, &places, &mut taken).map_err(invalid("file", given))?);
    }
    let shown = |path: &Path| path.display().to_string();
    let patch = patch(args)?;
    let out = match &args.out {
        Some(path) => {
            let made = claim(OUT, &mut taken).and_then(|()| output_directory(path).map_err(InvalidValue::new));
            Some(made.map_err(invalid("out", &shown(path)))?)
        }
        None => None,
    };
    let (has_clone, keep) = (is_cloned(args), args.keep_workspace);
    Ok(FileExchange { repository, restored: None, inputs, patch, out, keep, has_clone })
}

/// Returns the file of `--patch`.
///
/// # Errors
/// The flag does not name a file, or its directory cannot be opened.
fn patch(args: &RunArgs) -> Result<Option<OutputFile>, RequestError> {
    let Some(path) = &args.patch else { return Ok(None) };
    let invalid = |reason| RequestError::Volume { flag: "patch", given: path.display().to_string(), reason };
    output_file(path).map(Some).map_err(invalid)
}

/// Takes a path in the sandbox, unless it is already used.
fn claim(target: &str, taken: &mut Vec<String>) -> Result<(), InvalidValue> {
    let overlaps = |other: &String| Path::new(target).starts_with(other) || Path::new(other).starts_with(target);
    if let Some(other) = taken.iter().find(|other| overlaps(other)) {
        return Err(InvalidValue::new(format!("{target} and {other} are one, or inside each other")));
    }
    taken.push(target.to_owned());
    Ok(())
}

fn repository(given: &str, places: &ForbiddenPlaces) -> Result<RepositoryCopy, InvalidValue> {
    let (path, access) = split_access(given);
    let path = real(path, places)?;
    if !path.is_dir() {
        return Err(InvalidValue::new(format!("{} is not a directory", path.display())));
    }
    if has_git_name(path.as_os_str().as_encoded_bytes()) {
        return Err(InvalidValue::new(format!("{} is in the metadata of git; name a work tree", path.display())));
    }
    let directory = HostDirectory::open(&path).map_err(InvalidValue::new)?;
    Ok(RepositoryCopy { directory, writes_back: access == MountAccess::ReadWrite })
}

/// Returns the path without links, if a sandbox may see it.
fn real(given: &str, places: &ForbiddenPlaces) -> Result<PathBuf, InvalidValue> {
    let path = fs::canonicalize(given).map_err(|error| InvalidValue::new(format!("{given}: {error}")))?;
    match forbidden(&path, places) {
        Some(reason) => Err(InvalidValue::new(format!("{} {reason}", path.display()))),
        None => Ok(path),
    }
}

fn input(given: &str, places: &ForbiddenPlaces, taken: &mut Vec<String>) -> Result<InputFile, InvalidValue> {
    let (source, name) = match given.rsplit_once(':') {
        Some((source, name)) if !Path::new(given).exists() => (source, Some(name)),
        _ => (given, None),
    };
    let path = real(source, places)?;
    // The name that the user gave, and not the name of a link's target.
    let own_name = Path::new(source).file_name().and_then(|name| name.to_str());
    let name = name.or(own_name).ok_or_else(|| InvalidValue::new("its name is not UTF-8; write FILE:NAME"))?;
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_ours = Path::new(name).starts_with(".sluice");
    if name.is_empty() || is_ours || !Path::new(name).components().all(is_plain) {
        return Err(InvalidValue::new(format!("'{name}' is not a path in the workspace, such as data/input.csv")));
    }
    claim(&format!("{WORKSPACE}/{name}"), taken)?;
    let file = open(&path)?;
    Ok(InputFile { path, file: Arc::new(file), name: name.to_owned() })
}

/// Opens a file that is not too large.
fn open(path: &Path) -> Result<File, InvalidValue> {
    let invalid = |error| InvalidValue::new(format!("{}: {error}", path.display()));
    let file = regular_file::open(path).map_err(invalid)?;
    if file.metadata().map_err(invalid)?.len() > FILE_MAX {
        return Err(InvalidValue::new(format!("{} has more than {FILE_MAX} bytes", path.display())));
    }
    Ok(file)
}

fn output_file(path: &Path) -> Result<OutputFile, InvalidValue> {
    let no_name = || InvalidValue::new("name a file");
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(no_name)?;
    if path.is_dir() {
        return Err(InvalidValue::new("it is a directory; name a file"));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent =
        fs::canonicalize(parent).map_err(|error| InvalidValue::new(format!("{}: {error}", parent.display())))?;
    let directory = HostDirectory::open(&parent).map_err(InvalidValue::new)?;
    Ok(OutputFile { directory, name: name.to_owned() })
}
