//! LiteLLM's price list in a file, for sidecars of runs with a cap in dollars.
//!
//! The file contains only the fields that a sidecar reads: LiteLLM's list also names hosts and ids. The file is private
//! to this user, and no sandbox can see it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};

use crate::client::{Litellm, LitellmError};

mod extract;

pub use extract::UnusablePrices;

/// Age of a list after which LiteLLM is asked again.
pub const FRESH: Duration = Duration::from_secs(10 * 60);
/// Maximum age of a list if LiteLLM does not answer.
pub const USABLE: Duration = Duration::from_secs(24 * 3600);

/// Route of LiteLLM's list of models.
const PATH: &str = "/model/info";

/// A price list for a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentPrices {
    /// Path of the file.
    pub file: PathBuf,
    /// Warning for the user.
    pub note: Option<String>,
}

/// Reason why a run with a cap in dollars has no price list.
#[derive(Debug, thiserror::Error)]
pub enum PriceListError {
    /// LiteLLM gave no list, and the list in the file is too old or does not exist.
    #[error("nothing can stop a run at its cap without prices; name a file with them by --prices")]
    Litellm(#[source] LitellmError),
    /// LiteLLM's answer is not a price list.
    #[error("nothing can stop a run at its cap without prices, and {PATH} {0}; name a file with them by --prices")]
    Unusable(UnusablePrices),
    /// The file cannot be written.
    #[error("cannot write prices to {0}")]
    Write(PathBuf, #[source] io::Error),
}

/// Returns the list in this file if it is fresh, else a new one that replaces it. If there is no new one, an older list
/// is returned with a note, up to the age [`USABLE`].
///
/// # Errors
/// [`PriceListError`]
pub async fn current(litellm: &Litellm, file: &Path) -> Result<CurrentPrices, PriceListError> {
    let age = age(file);
    if age.is_some_and(|age| age < FRESH) {
        return Ok(CurrentPrices { file: file.to_owned(), note: None });
    }
    let why = match fetch(litellm, file).await {
        Ok(()) => return Ok(CurrentPrices { file: file.to_owned(), note: None }),
        Err(why) => why,
    };
    match age {
        Some(age) if age < USABLE => {
            let age = humantime::format_duration(Duration::from_secs(age.as_secs()));
            let note =
                format!("the cap rests on prices that are {age} old: {}", sluice_contract::text::error_chain(&why));
            Ok(CurrentPrices { file: file.to_owned(), note: Some(note) })
        }
        _ => Err(why),
    }
}

/// Returns the age of a file; `None` if the file does not exist, or if its time is in the future.
fn age(file: &Path) -> Option<Duration> {
    SystemTime::now().duration_since(fs::metadata(file).ok()?.modified().ok()?).ok()
}

async fn fetch(litellm: &Litellm, file: &Path) -> Result<(), PriceListError> {
    let answer = litellm.get(PATH).await.map_err(PriceListError::Litellm)?;
    let list = extract::extract_prices(&answer).map_err(PriceListError::Unusable)?;
    replace(file, &list).map_err(|error| PriceListError::Write(file.to_owned(), error))
}

/// Replaces the file atomically: sidecars of other runs read it at any time.
fn replace(file: &Path, list: &str) -> io::Result<()> {
    let directory = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    // One writer at a time. The lock also covers the file that a killed writer left, which is overwritten.
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
    fn a_list_replaces_another_and_a_killed_writers_file() {
        let directory = std::env::temp_dir().join(format!("sluice-prices-{}", std::process::id()));
        fs::create_dir(&directory).expect("it is not there yet");
        let file = directory.join("a.json");
        fs::write(directory.join("a.new"), "half of a lon").expect("it is ours");
        for list in ["longer", "new"] {
            replace(&file, list).expect("it is ours");
            assert_eq!(fs::read_to_string(&file).expect("it is there"), list);
        }
        assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 1);
        fs::remove_dir_all(directory).expect("it is ours");
    }
}
