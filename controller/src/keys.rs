//! The keys that sign audit files: one private, in a file that only its owner reads; all public ones, for ever.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sluice_contract::{PrivateKey, PublicKey};
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
    #[error("{0} holds no key; move it away, and the next run makes a new one")]
    NotAKey(PathBuf),
}

impl Keys {
    /// The keys of a state directory; the first call makes one.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn open(state: &Path) -> Result<Self, KeyError> {
        let keys = Self { directory: state.join("keys") };
        for path in [&keys.directory, &keys.public_directory()] {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| KeyError::Io(path.clone(), e))?;
        }
        if !keys.signing().exists() {
            let fresh = keys.fresh()?;
            // Linked and not renamed: of two first starts one wins, and both sign with its key.
            let linked = fs::hard_link(&fresh, keys.signing());
            fs::remove_file(&fresh).map_err(|e| KeyError::Io(fresh, e))?;
            match linked {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(KeyError::Io(keys.signing(), error));
                }
                _ => {}
            }
        }
        Ok(keys)
    }

    /// The private key's file, for sidecars.
    #[must_use]
    pub fn signing(&self) -> PathBuf {
        self.directory.join("signing")
    }

    /// The key that signs now.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn current(&self) -> Result<PublicKey, KeyError> {
        let path = self.signing();
        let line = Zeroizing::new(fs::read(&path).map_err(|e| KeyError::Io(path.clone(), e))?);
        PrivateKey::parse(&line).map(|key| key.public()).map_err(|_| KeyError::NotAKey(path))
    }

    /// All keys that have ever signed here.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn public(&self) -> Result<Vec<PublicKey>, KeyError> {
        let directory = self.public_directory();
        let failed = |error| KeyError::Io(directory.clone(), error);
        let mut keys = Vec::new();
        for entry in fs::read_dir(&directory).map_err(failed)? {
            keys.extend(read_public(&entry.map_err(failed)?.path())?);
        }
        keys.sort_by_key(PublicKey::id);
        Ok(keys)
    }

    /// Takes a new key from now on; the old private one is gone, its public half stays.
    ///
    /// # Errors
    /// [`KeyError`]; then the old one is still in use.
    pub fn rotate(&self) -> Result<PublicKey, KeyError> {
        let fresh = self.fresh()?;
        fs::rename(&fresh, self.signing()).map_err(|e| KeyError::Io(self.signing(), e))?;
        sync(&self.directory)?;
        self.current()
    }

    /// Makes a key, in a file of its own. Its public half is kept before anybody can sign with it.
    fn fresh(&self) -> Result<PathBuf, KeyError> {
        let mut seed = Zeroizing::new([0; 32]);
        let random = Path::new("/dev/urandom");
        io::Read::read_exact(&mut fs::File::open(random).map_err(|e| KeyError::Io(random.into(), e))?, &mut *seed)
            .map_err(|e| KeyError::Io(random.into(), e))?;
        let key = PrivateKey::from_seed(&seed).public();
        write(&self.public_directory().join(key.id()), format!("{key}\n").as_bytes())?;
        sync(&self.public_directory())?;
        let line: Zeroizing<String> = Zeroizing::new(seed.iter().map(|byte| format!("{byte:02x}")).collect());
        let aside = self.directory.join(format!("signing.{}", uuid::Uuid::new_v4().simple()));
        write(&aside, line.as_bytes())?;
        Ok(aside)
    }

    fn public_directory(&self) -> PathBuf {
        self.directory.join("public")
    }
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
    fn a_file_without_a_key_is_refused() {
        let scratch = Scratch::new("broken");
        let keys = Keys::open(&scratch.0).expect("there is room");
        fs::write(keys.signing(), "hello").expect("it is ours");
        assert!(matches!(keys.current(), Err(KeyError::NotAKey(_))));
    }
}
