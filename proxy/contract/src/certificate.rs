//! Certificates: how the key of a state directory lets the key of one run sign that run's audit file.
//!
//! Pure. A sidecar gets a key for one attempt of one run. An attacker who takes that key from it can sign no other
//! file.

use std::borrow::Cow;
use std::fmt::{self, Write};

use ed25519_dalek::Signer;
use zeroize::Zeroizing;

use crate::hex;
use crate::record::Certificate;
use crate::seal::{NotAKey, PrivateKey, PublicKey, one_line};

/// The first line of every certified statement. It differs from the first line of a signed head, so that neither
/// signature can be used as the other.
const CONTEXT: &str = "sluice audit run key v1\n";

/// Length of the longest key file: two lines, each with a carriage return and a newline.
pub const KEY_FILE_MAX: usize = 64 + 2 + CERTIFICATE_LEN + 2;

/// Length of the second line: a key id, a space and a signature.
const CERTIFICATE_LEN: usize = 32 + 1 + 128;

/// The key that signs an audit file, and its certificate if the key belongs to one run.
pub struct AuditSigner {
    key: PrivateKey,
    certificate: Option<Certificate<'static>>,
}

/// The content of a key file is not a key, or its certificate is malformed. The message never quotes the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an Ed25519 key: want one line of 64 hex digits, and for a certified key a second line with KEY_ID SIGNATURE"
)]
pub struct NotASigner;

impl AuditSigner {
    /// Parses a key file: the line of the seed, and the line of the certificate if there is one.
    ///
    /// # Errors
    /// [`NotASigner`]
    pub fn parse(file: &[u8]) -> Result<Self, NotASigner> {
        let second = file.iter().position(|byte| *byte == b'\n').map_or(file.len(), |at| at + 1);
        let (seed, certificate) = file.split_at(second);
        let key = PrivateKey::parse(seed).map_err(|NotAKey| NotASigner)?;
        let certificate = match certificate {
            [] => None,
            line => Some(parse_certificate(one_line(line), &key.public()).ok_or(NotASigner)?),
        };
        Ok(Self { key, certificate })
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// Returns the certificate, which `close` carries.
    #[must_use]
    pub fn certificate(&self) -> Option<&Certificate<'static>> {
        self.certificate.as_ref()
    }
}

impl From<PrivateKey> for AuditSigner {
    /// Returns a signer for a key that verifiers trust directly.
    fn from(key: PrivateKey) -> Self {
        Self { key, certificate: None }
    }
}

impl fmt::Debug for AuditSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditSigner").field("key", &self.key).field("certificate", &self.certificate).finish()
    }
}

impl PrivateKey {
    /// Certifies the key of one attempt of one run.
    #[must_use]
    pub fn certify(&self, run_id: &str, attempt: u32, key: &PublicKey) -> Certificate<'static> {
        let public_key = key.to_string();
        let signature = hex::encode(&self.0.sign(statement(run_id, attempt, &public_key).as_bytes()).to_bytes());
        Certificate { key_id: self.public().id().into(), public_key: public_key.into(), signature: signature.into() }
    }
}

impl PublicKey {
    /// Returns whether this key signed the certificate for this attempt of this run.
    #[must_use]
    pub fn certifies(&self, run_id: &str, attempt: u32, certificate: &Certificate<'_>) -> bool {
        self.has_signed(&statement(run_id, attempt, &certificate.public_key), &certificate.signature)
    }
}

/// Returns the key file of one attempt of one run, certified by the key of the state directory.
#[must_use]
pub fn key_file(seed: &[u8; 32], run_id: &str, attempt: u32, certifier: &PrivateKey) -> Zeroizing<String> {
    let certificate = certifier.certify(run_id, attempt, &PrivateKey::from_seed(seed).public());
    // The capacity is reserved: growth would leave a copy of the seed in freed memory.
    let mut file = Zeroizing::new(String::with_capacity(KEY_FILE_MAX));
    hex::push(&mut file, seed);
    write!(file, "\n{} {}\n", certificate.key_id, certificate.signature).expect("a String takes all");
    file
}

/// Returns the text that a certificate signs. The run id is between lines that cannot contain a newline, so that no two
/// statements have the same text.
fn statement(run_id: &str, attempt: u32, public_key: &str) -> String {
    format!("{CONTEXT}{attempt}\n{run_id}\n{public_key}")
}

fn parse_certificate(line: &[u8], key: &PublicKey) -> Option<Certificate<'static>> {
    let (key_id, signature) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let certificate = Certificate {
        key_id: Cow::Owned(key_id.to_owned()),
        public_key: key.to_string().into(),
        signature: Cow::Owned(signature.to_owned()),
    };
    is_well_formed(&certificate, &key.id()).then_some(certificate)
}

/// Returns whether the certificate is well-formed and certifies the key with this id. No signature is checked.
pub(crate) fn is_well_formed(certificate: &Certificate<'_>, key_id: &str) -> bool {
    hex::decode::<16>(certificate.key_id.as_bytes()).is_some()
        && hex::decode::<64>(certificate.signature.as_bytes()).is_some()
        && hex::decode::<32>(certificate.public_key.as_bytes()).is_some_and(|key| crate::seal::id_of(&key) == key_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_key() -> PrivateKey {
        PrivateKey::from_seed(&[42; 32])
    }

    fn certified() -> AuditSigner {
        AuditSigner::parse(key_file(&[5; 32], "run-1", 0, &state_key()).as_bytes()).expect("a key file")
    }

    #[test]
    fn a_certificate_names_one_run_and_attempt() {
        let signer = certified();
        let certificate = signer.certificate().expect("it is certified");
        assert_eq!(*certificate, state_key().certify("run-1", 0, &signer.key().public()));
        assert!(state_key().public().certifies("run-1", 0, certificate));
        for (run_id, attempt) in [("run-1", 1), ("run-2", 0), ("0\nrun-1", 0), ("", 0)] {
            assert!(!state_key().public().certifies(run_id, attempt, certificate), "{run_id:?}, {attempt}");
        }
        assert!(!PrivateKey::from_seed(&[1; 32]).public().certifies("run-1", 0, certificate));
        let other = Certificate { public_key: state_key().public().to_string().into(), ..certificate.clone() };
        assert!(!state_key().public().certifies("run-1", 0, &other), "another key under the same signature");
    }

    #[test]
    fn a_signature_over_a_head_is_not_a_certificate() {
        let run_key = PrivateKey::from_seed(&[5; 32]).public();
        let head = crate::Hash::of(statement("run-1", 0, &run_key.to_string()).as_bytes());
        let mut certificate = state_key().certify("run-1", 0, &run_key);
        certificate.signature = state_key().sign(head).into();
        assert!(!state_key().public().certifies("run-1", 0, &certificate));
        assert!(!run_key.verifies(head, &state_key().certify("run-1", 0, &run_key).signature));
    }

    #[test]
    fn key_files_with_one_line_are_read_as_before() {
        let seed = "05".repeat(32);
        for file in [seed.clone(), format!("{seed}\n"), format!("{seed}\r\n")] {
            let signer = AuditSigner::parse(file.as_bytes()).expect("a key");
            assert_eq!((signer.key().public(), signer.certificate()), (certified().key().public(), None));
        }
        let two = key_file(&[5; 32], "run-1", 0, &state_key());
        assert!(two.len() <= KEY_FILE_MAX);
        let dos = two.replace('\n', "\r\n");
        assert_eq!(dos.len(), KEY_FILE_MAX);
        assert_eq!(AuditSigner::parse(dos.as_bytes()).expect("a key file").certificate(), certified().certificate());
    }

    #[test]
    fn malformed_key_files_are_refused_without_a_quote() {
        let file = key_file(&[5; 32], "run-1", 0, &state_key());
        let certificate = file.lines().nth(1).expect("two lines");
        for bad in [
            String::new(),
            format!("\n{certificate}\n"),
            format!("{}\n\n", "05".repeat(32)),
            format!("{}\n{}\n", "05".repeat(32), &certificate[1..]),
            format!("{}\n{}\n", "05".repeat(32), certificate.to_uppercase()),
            format!("{}\n{}\n", "05".repeat(32), certificate.replace(' ', "\t")),
            format!("{}{certificate}\n", *file),
        ] {
            let error = AuditSigner::parse(bad.as_bytes()).expect_err("it is malformed");
            assert!(!error.to_string().contains(&"05".repeat(8)), "{error}");
        }
    }

    #[test]
    fn debug_shows_no_seed() {
        assert!(!format!("{:?}", certified()).contains(&"05".repeat(8)));
    }
}
