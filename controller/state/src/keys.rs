//! The keys of a state directory: one private key, in a file that only its owner can read, and all public keys.
//!
//! The private key does not sign audit files. It certifies a key for each attempt of each run, and the sidecar of that
//! attempt signs with its own key. A public key is never removed.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sluice_contract::{PrivateKey, PublicKey, RunKey, certificate, hex};
use zeroize::Zeroizing;

use crate::file;
use crate::store::is_retryable_io;

/// The keys in `STATE/keys/{signing,public/ID}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    directory: PathBuf,
}

/// Error of reading or writing a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A file or directory cannot be used.
    #[error("cannot use {0}")]
    Io(PathBuf, #[source] io::Error),
    /// The kernel returned no random bytes.
    #[error("cannot create a key: no random bytes: {0}")]
    Random(String),
    /// The file is not a file of public keys.
    #[error("{0} holds no public key: one line of 64 hex digits each")]
    NotAKey(PathBuf),
    /// The file of the private key does not hold a key.
    #[error("{0} holds no key; move it away, and the next run makes a new one")]
    NotASigningKey(PathBuf),
    /// No public key exists, so no signature can be verified.
    #[error("there is no public key in {0}; bring back the keys that have signed, or the next run makes a new one")]
    None(PathBuf),
}

impl KeyError {
    /// Returns true if the same request may succeed later without a change by the operator.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Io(_, error) => is_retryable_io(error),
            Self::Random(_) | Self::NotAKey(_) | Self::NotASigningKey(_) | Self::None(_) => false,
        }
    }
}

impl Keys {
    /// Returns the keys of a state directory, which may not exist.
    #[must_use]
    pub fn at(state: &Path) -> Self {
        Self { directory: state.join("keys") }
    }

    /// Returns the keys of a state directory. The first call creates the private key.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn open(state: &Path) -> Result<Self, KeyError> {
        let keys = Self::at(state);
        for path in [&keys.directory, &keys.public_directory()] {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| KeyError::Io(path.clone(), e))?;
        }
        let _lock = keys.lock()?;
        if fs::symlink_metadata(keys.signing()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            keys.make()?;
            // If a power cut removed the name of a key, every file that it signed would seem altered.
            file::sync_directory(state).map_err(|error| KeyError::Io(state.to_owned(), error))?;
        } else {
            keys.publish(&keys.current()?)?;
        }
        Ok(keys)
    }

    /// Returns the path of the private key. No sidecar reads it.
    #[must_use]
    pub fn signing(&self) -> PathBuf {
        self.directory.join("signing")
    }

    /// Returns the key that certifies now.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn current(&self) -> Result<PublicKey, KeyError> {
        self.certifier().map(|key| key.public())
    }

    /// Creates a key for one attempt of one run, and writes it with its certificate to a new file that only its owner can read.
    ///
    /// # Errors
    /// [`KeyError`], also when the file exists.
    pub fn write_run_key(&self, run: &RunKey, path: &Path) -> Result<(), KeyError> {
        let file = certificate::key_file(&*random_seed()?, run.run_id.as_str(), run.attempt, &self.certifier()?);
        let put = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        put.and_then(|mut out| out.write_all(file.as_bytes())).map_err(|e| KeyError::Io(path.to_owned(), e))
    }

    /// Returns the key that signs lines of the budget log.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn budget_signer(&self) -> Result<PrivateKey, KeyError> {
        self.certifier()
    }

    /// Returns the key that signs lines of the log of decisions.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn decision_signer(&self) -> Result<PrivateKey, KeyError> {
        self.certifier()
    }

    /// Returns the key that signs lines of the control log.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn control_signer(&self) -> Result<PrivateKey, KeyError> {
        self.certifier()
    }

    /// Adds the public key of another host: audit files that it certifies are verified and billed here.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn import(&self, key: &PublicKey) -> Result<(), KeyError> {
        let _lock = self.lock()?;
        self.publish(key)
    }

    fn certifier(&self) -> Result<PrivateKey, KeyError> {
        let path = self.signing();
        let line = Zeroizing::new(fs::read(&path).map_err(|e| KeyError::Io(path.clone(), e))?);
        PrivateKey::parse(&line).map_err(|_| KeyError::NotASigningKey(path))
    }

    /// Returns all public keys that this host knows, in the order of their ids; at least one.
    ///
    /// # Errors
    /// [`KeyError`], also if there is no key: then no signature could be checked.
    pub fn public(&self) -> Result<Vec<PublicKey>, KeyError> {
        let directory = self.public_directory();
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => KeyError::None(directory.clone()),
            _ => KeyError::Io(directory.clone(), error),
        };
        let mut keys = Vec::new();
        for entry in fs::read_dir(&directory).map_err(failed)? {
            keys.extend(read_public(&entry.map_err(failed)?.path())?);
        }
        if keys.is_empty() {
            return Err(KeyError::None(directory));
        }
        keys.sort_by_key(PublicKey::id);
        Ok(keys)
    }

    /// Replaces the private key, and returns the new public key. The old public key stays.
    ///
    /// # Errors
    /// [`KeyError`]; then the old key is still in use.
    pub fn rotate(&self) -> Result<PublicKey, KeyError> {
        let _lock = self.lock()?;
        self.make()
    }

    /// Creates the private key that is used from now on. Its public key is stored before it can sign.
    fn make(&self) -> Result<PublicKey, KeyError> {
        let seed = random_seed()?;
        let key = PrivateKey::from_seed(&seed).public();
        self.publish(&key)?;
        // Allocated with its final size, so that no copy stays in freed memory.
        let mut line = Zeroizing::new(String::with_capacity(2 * seed.len()));
        hex::push(&mut line, &*seed);
        self.put(&self.signing(), line.as_bytes())?;
        Ok(key)
    }

    fn publish(&self, key: &PublicKey) -> Result<(), KeyError> {
        let path = self.public_directory().join(key.id());
        if path.exists() { Ok(()) } else { self.put(&path, format!("{key}\n").as_bytes()) }
    }

    /// Replaces a file. Needs the lock.
    fn put(&self, path: &Path, content: &[u8]) -> Result<(), KeyError> {
        file::replace(path, &self.temporary(), content).map_err(|error| KeyError::Io(path.to_owned(), error))
    }

    /// Locks the keys: one process at a time creates keys, so that each private key has its public key stored.
    fn lock(&self) -> Result<fs::File, KeyError> {
        let failed = |error| KeyError::Io(self.directory.clone(), error);
        let lock = fs::File::open(&self.directory).map_err(failed)?;
        lock.lock().map_err(failed)?;
        // A killed process may have left it.
        let _ = fs::remove_file(self.temporary());
        Ok(lock)
    }

    fn temporary(&self) -> PathBuf {
        self.directory.join("fresh")
    }

    fn public_directory(&self) -> PathBuf {
        self.directory.join("public")
    }
}

/// Returns a random seed.
fn random_seed() -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(|error| KeyError::Random(error.to_string()))?;
    Ok(seed)
}

/// Reads public keys, one on each line.
///
/// # Errors
/// [`KeyError`].
pub fn read_public(path: &Path) -> Result<Vec<PublicKey>, KeyError> {
    let text = fs::read_to_string(path).map_err(|e| KeyError::Io(path.to_owned(), e))?;
    let keys: Result<Vec<_>, _> = text.lines().map(str::parse).collect();
    keys.ok().filter(|keys| !keys.is_empty()).ok_or_else(|| KeyError::NotAKey(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use sluice_contract::AuditSigner;

    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().expect("there is room")
    }

    #[test]
    fn the_first_use_makes_a_key_that_stays() {
        let scratch = scratch();
        let keys = Keys::open(scratch.path()).expect("there is room");
        let first = keys.current().expect("it was made");
        assert_eq!(Keys::open(scratch.path()).and_then(|keys| keys.current()).expect("it is there"), first);
        assert_eq!(keys.public().expect("it was kept"), [first]);
        assert_eq!(fs::metadata(keys.signing()).expect("it is there").mode() & 0o777, 0o600);
    }

    #[test]
    fn a_rotation_keeps_the_old_public_key() {
        let scratch = scratch();
        let keys = Keys::open(scratch.path()).expect("there is room");
        let old = keys.current().expect("it was made");
        let new = keys.rotate().expect("there is room");
        assert_ne!(new, old);
        assert_eq!(keys.current().expect("it is there"), new);
        let public = keys.public().expect("they were kept");
        assert!(public.contains(&old) && public.contains(&new) && public.len() == 2);
        let private = fs::read_dir(&keys.directory).expect("it is there").count();
        assert_eq!(private, 2, "the private key and the directory of public ones, no other");
    }

    #[test]
    fn an_incomplete_key_of_a_killed_start_is_removed() {
        let scratch = scratch();
        let keys = Keys::open(scratch.path()).expect("there is room");
        let key = keys.current().expect("it was made");
        fs::write(keys.directory.join("fresh"), "half a se").expect("it is ours");
        // As if the public key had been lost, or never written.
        fs::remove_file(keys.public_directory().join(key.id())).expect("it was kept");
        assert!(matches!(keys.public(), Err(KeyError::None(_))));
        let again = Keys::open(scratch.path()).expect("there is room");
        assert_eq!(again.public().expect("it was kept"), [key]);
        assert_eq!(fs::read_dir(&keys.directory).expect("it is there").count(), 2);
    }

    #[test]
    fn concurrent_first_starts_share_one_key() {
        let scratch = scratch();
        let all: Vec<_> = std::thread::scope(|scope| {
            let open = || Keys::open(scratch.path()).and_then(|keys| keys.current()).expect("there is room");
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        assert_eq!(all, [all[0]; 8]);
        assert_eq!(Keys::at(scratch.path()).public().expect("it was kept"), [all[0]]);
    }

    #[test]
    fn each_attempt_has_its_own_certified_key() {
        let scratch = scratch();
        let keys = Keys::open(scratch.path()).expect("there is room");
        let state_key = keys.current().expect("it was made");
        let mut made = Vec::new();
        for (name, run) in [("one", "run-1.0"), ("two", "run-1.1")] {
            let (run, path): (RunKey, _) = (run.parse().expect("a run"), scratch.path().join(name));
            keys.write_run_key(&run, &path).expect("there is room");
            assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
            assert!(keys.write_run_key(&run, &path).is_err(), "it never writes over a key");
            let signer = AuditSigner::parse(&fs::read(&path).expect("it is ours")).expect("a key file");
            let certificate = signer.certificate().expect("it is certified");
            assert!(state_key.certifies("run-1", run.attempt, certificate));
            made.push(signer.key().public());
        }
        assert!(made[0] != made[1] && !made.contains(&state_key));
        assert_eq!(keys.public().expect("they were kept"), [state_key], "keys of runs are not kept");
    }

    #[test]
    fn a_file_without_a_key_is_refused() {
        let scratch = scratch();
        let keys = Keys::open(scratch.path()).expect("there is room");
        fs::write(keys.signing(), "hello").expect("it is ours");
        assert!(matches!(keys.current(), Err(KeyError::NotASigningKey(_))));
        assert!(matches!(Keys::open(scratch.path()), Err(KeyError::NotASigningKey(_))));
        fs::write(keys.public_directory().join("other"), "hello").expect("it is ours");
        assert!(matches!(keys.public(), Err(KeyError::NotAKey(_))));
    }
}
