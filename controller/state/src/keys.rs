//! The keys of a state directory: the private one, in a file that only its owner reads, and all public ones, for ever.
//!
//! The private key does not sign audit files. It certifies a key for each attempt of each run, and the sidecar of that
//! attempt signs with it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sluice_contract::{PrivateKey, PublicKey, RunKey, certificate};
use zeroize::Zeroizing;

/// `STATE/keys/{signing,public/ID}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    directory: PathBuf,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A file or directory cannot be used.
    #[error("cannot use {0}")]
    Io(PathBuf, #[source] io::Error),
    /// A file holds something else.
    #[error("{0} holds no public key: one line of 64 hex digits each")]
    NotAKey(PathBuf),
    /// The private key's file holds something else.
    #[error("{0} holds no key; move it away, and the next run makes a new one")]
    NotASigningKey(PathBuf),
    /// There is no public key, and so nothing to check signatures by.
    #[error("there is no public key in {0}; the next run makes one, or bring back those that have signed")]
    None(PathBuf),
}

impl Keys {
    /// The keys of a state directory, made or not.
    #[must_use]
    pub fn at(state: &Path) -> Self {
        Self { directory: state.join("keys") }
    }

    /// The keys of a state directory; the first call makes one.
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
            // A key whose name is lost in a power cut would make every file that it has signed look altered.
            sync(state)?;
        } else {
            keys.publish(&keys.current()?)?;
        }
        Ok(keys)
    }

    /// The private key's file. No other process reads it.
    #[must_use]
    pub fn signing(&self) -> PathBuf {
        self.directory.join("signing")
    }

    /// The key that certifies now.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn current(&self) -> Result<PublicKey, KeyError> {
        self.certifier().map(|key| key.public())
    }

    /// Makes a key for one attempt of one run, and writes it with its certificate to a file that only its owner reads.
    ///
    /// # Errors
    /// [`KeyError`]; also when the file exists.
    pub fn write_run_key(&self, run: &RunKey, path: &Path) -> Result<(), KeyError> {
        let file = certificate::key_file(&*random_seed()?, run.run_id.as_str(), run.attempt, &self.certifier()?);
        let put = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        put.and_then(|mut out| out.write_all(file.as_bytes())).map_err(|e| KeyError::Io(path.to_owned(), e))
    }

    /// The key that signs lines of the budget log.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn budget_signer(&self) -> Result<PrivateKey, KeyError> {
        self.certifier()
    }

    /// Trusts the public key of another host from now on: files that it certifies are verified and billed here.
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

    /// All keys that have ever signed here; at least one.
    ///
    /// # Errors
    /// [`KeyError`]; without keys nothing could be checked, and all would pass.
    pub fn public(&self) -> Result<Vec<PublicKey>, KeyError> {
        let directory = self.public_directory();
        let failed = |error| KeyError::Io(directory.clone(), error);
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

    /// Takes a new key from now on; the old private one is gone, its public half stays.
    ///
    /// # Errors
    /// [`KeyError`]; then the old one is still in use.
    pub fn rotate(&self) -> Result<PublicKey, KeyError> {
        let _lock = self.lock()?;
        self.make()
    }

    /// Makes the key that signs from now on. Its public half is kept before anybody can sign with it.
    fn make(&self) -> Result<PublicKey, KeyError> {
        let seed = random_seed()?;
        let key = PrivateKey::from_seed(&seed).public();
        self.publish(&key)?;
        let line: Zeroizing<String> = Zeroizing::new(seed.iter().map(|byte| format!("{byte:02x}")).collect());
        self.put(&self.signing(), line.as_bytes())?;
        Ok(key)
    }

    fn publish(&self, key: &PublicKey) -> Result<(), KeyError> {
        let path = self.public_directory().join(key.id());
        if path.exists() { Ok(()) } else { self.put(&path, format!("{key}\n").as_bytes()) }
    }

    /// Puts a file in its place, whole or not at all. Needs the lock.
    fn put(&self, path: &Path, content: &[u8]) -> Result<(), KeyError> {
        let fresh = self.directory.join("fresh");
        let put = write(&fresh, content)
            .and_then(|()| fs::rename(&fresh, path).map_err(|e| KeyError::Io(path.to_owned(), e)));
        if put.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        put?;
        sync(path.parent().unwrap_or(&self.directory))
    }

    /// One at a time makes keys, so that nobody signs with one whose public half is not kept.
    fn lock(&self) -> Result<fs::File, KeyError> {
        let failed = |error| KeyError::Io(self.directory.clone(), error);
        let lock = fs::File::open(&self.directory).map_err(failed)?;
        lock.lock().map_err(failed)?;
        // Left by one who was killed in the middle.
        let _ = fs::remove_file(self.directory.join("fresh"));
        Ok(lock)
    }

    fn public_directory(&self) -> PathBuf {
        self.directory.join("public")
    }
}

/// Draws a seed that nobody can guess.
fn random_seed() -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let mut seed = Zeroizing::new([0; 32]);
    let random = Path::new("/dev/urandom");
    io::Read::read_exact(&mut fs::File::open(random).map_err(|e| KeyError::Io(random.into(), e))?, &mut *seed)
        .map_err(|e| KeyError::Io(random.into(), e))?;
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

fn write(path: &Path, content: &[u8]) -> Result<(), KeyError> {
    let failed = |error| KeyError::Io(path.to_owned(), error);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(failed)
}

fn sync(directory: &Path) -> Result<(), KeyError> {
    fs::File::open(directory).and_then(|file| file.sync_all()).map_err(|e| KeyError::Io(directory.to_owned(), e))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use sluice_contract::AuditSigner;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sluice-keys-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("it is not there yet");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_first_use_makes_a_key_that_stays() {
        let scratch = Scratch::new("first");
        let keys = Keys::open(&scratch.0).expect("there is room");
        let first = keys.current().expect("it was made");
        assert_eq!(Keys::open(&scratch.0).and_then(|keys| keys.current()).expect("it is there"), first);
        assert_eq!(keys.public().expect("it was kept"), [first]);
        assert_eq!(fs::metadata(keys.signing()).expect("it is there").mode() & 0o777, 0o600);
    }

    #[test]
    fn a_rotated_key_leaves_its_public_half() {
        let scratch = Scratch::new("rotate");
        let keys = Keys::open(&scratch.0).expect("there is room");
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
    fn what_a_killed_start_has_left_is_cleared_and_never_a_key() {
        let scratch = Scratch::new("killed");
        let keys = Keys::open(&scratch.0).expect("there is room");
        let key = keys.current().expect("it was made");
        fs::write(keys.directory.join("fresh"), "half a se").expect("it is ours");
        // As if the public half had been lost, or never written.
        fs::remove_file(keys.public_directory().join(key.id())).expect("it was kept");
        assert!(matches!(keys.public(), Err(KeyError::None(_))));
        let again = Keys::open(&scratch.0).expect("there is room");
        assert_eq!(again.public().expect("it was kept"), [key]);
        assert_eq!(fs::read_dir(&keys.directory).expect("it is there").count(), 2);
    }

    #[test]
    fn of_many_first_starts_all_have_one_key() {
        let scratch = Scratch::new("many");
        let all: Vec<_> = std::thread::scope(|scope| {
            let open = || Keys::open(&scratch.0).and_then(|keys| keys.current()).expect("there is room");
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        assert_eq!(all, [all[0]; 8]);
        assert_eq!(Keys::at(&scratch.0).public().expect("it was kept"), [all[0]]);
    }

    #[test]
    fn each_attempt_gets_a_certified_key_of_its_own() {
        let scratch = Scratch::new("run");
        let keys = Keys::open(&scratch.0).expect("there is room");
        let state_key = keys.current().expect("it was made");
        let mut made = Vec::new();
        for (name, run) in [("one", "run-1.0"), ("two", "run-1.1")] {
            let (run, path): (RunKey, _) = (run.parse().expect("a run"), scratch.0.join(name));
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
        let scratch = Scratch::new("broken");
        let keys = Keys::open(&scratch.0).expect("there is room");
        fs::write(keys.signing(), "hello").expect("it is ours");
        assert!(matches!(keys.current(), Err(KeyError::NotASigningKey(_))));
        assert!(matches!(Keys::open(&scratch.0), Err(KeyError::NotASigningKey(_))));
        fs::write(keys.public_directory().join("other"), "hello").expect("it is ours");
        assert!(matches!(keys.public(), Err(KeyError::NotAKey(_))));
    }
}
