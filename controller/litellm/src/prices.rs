//! What calls cost, for the cap of a run in dollars: LiteLLM's own list, kept for a while, for sidecars to read.
//!
//! Only what a sidecar reads of it is kept: the list also names hosts and ids. The file is private to this user, and
//! outside of all that a sandbox sees.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};

use crate::client::{Litellm, LitellmError};

mod list;

/// How old a list may be before LiteLLM is asked again.
pub const FRESH: Duration = Duration::from_secs(10 * 60);
/// How old it may be where LiteLLM cannot be asked.
pub const USABLE: Duration = Duration::from_secs(24 * 3600);

/// The question.
const PATH: &str = "/model/info";

/// A list for a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentPrices {
    /// Where it is.
    pub file: PathBuf,
    /// What somebody should know about it.
    pub note: Option<String>,
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum PriceListError {
    /// LiteLLM did not give one, and there is none that is young enough.
    #[error("nothing can stop a run at its cap without prices; name a file with them by --prices")]
    RunSpec(#[source] LitellmError),
    /// What it gave is none.
    #[error("nothing can stop a run at its cap without prices, and {PATH} {0}; name a file with them by --prices")]
    UnusablePrices(list::UnusablePrices),
    /// It cannot be kept.
    #[error("cannot write prices to {0}")]
    Write(PathBuf, #[source] io::Error),
}

/// The list kept in this file, or a new one in its place.
///
/// # Errors
/// [`PriceListError`]
pub async fn current(litellm: &Litellm, file: &Path) -> Result<CurrentPrices, PriceListError> {
    let kept = age(file);
    if kept.is_some_and(|age| age < FRESH) {
        return Ok(CurrentPrices { file: file.to_owned(), note: None });
    }
    let why = match fetch(litellm, file).await {
        Ok(()) => return Ok(CurrentPrices { file: file.to_owned(), note: None }),
        Err(why) => why,
    };
    match kept {
        Some(age) if age < USABLE => {
            let age = humantime::format_duration(Duration::from_secs(age.as_secs()));
            let note =
                format!("the cap rests on prices that are {age} old: {}", sluice_contract::text::error_chain(&why));
            Ok(CurrentPrices { file: file.to_owned(), note: Some(note) })
        }
        _ => Err(why),
    }
}

/// How long ago a list was kept, if there is one. A time to come counts as none.
fn age(file: &Path) -> Option<Duration> {
    SystemTime::now().duration_since(fs::metadata(file).ok()?.modified().ok()?).ok()
}

async fn fetch(litellm: &Litellm, file: &Path) -> Result<(), PriceListError> {
    let answer = litellm.get(PATH).await.map_err(PriceListError::RunSpec)?;
    let list = list::distil(&answer).map_err(PriceListError::UnusablePrices)?;
    keep(file, &list).map_err(|error| PriceListError::Write(file.to_owned(), error))
}

/// Whole or not at all: sidecars of other runs read it at any time.
fn keep(file: &Path, list: &str) -> io::Result<()> {
    let directory = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    // Of several that come at once one goes first; what one left that was killed here is written over.
    let _alone = Flock::lock(File::open(directory)?, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
    let aside = file.with_extension("new");
    let mut new = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    new.write_all(list.as_bytes())?;
    new.sync_all()?;
    fs::rename(&aside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_the_place_of_another_and_of_what_a_killed_writer_left() {
        let directory = std::env::temp_dir().join(format!("sluice-prices-{}", std::process::id()));
        fs::create_dir(&directory).expect("it is not there yet");
        let file = directory.join("a.json");
        fs::write(directory.join("a.new"), "half of a lon").expect("it is ours");
        for list in ["longer", "new"] {
            keep(&file, list).expect("it is ours");
            assert_eq!(fs::read_to_string(&file).expect("it is there"), list);
        }
        assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 1);
        fs::remove_dir_all(directory).expect("it is ours");
    }
}
