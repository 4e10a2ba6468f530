//! The signature of a file: Ed25519 over the head that its `close` states.
//!
//! Pure. A key is one line of 64 hex digits: a private key is the seed of RFC 8032, a public key its point. The id of a
//! key is the beginning of the SHA-256 of the public key.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::hash::Hash;
use crate::hex;

/// Prefix of every signed text, so that a signature is not valid for another kind of text.
const CONTEXT: &str = "sluice audit head v1\n";
/// Prefix of signed records of the budget log.
const BUDGET_CONTEXT: &str = "sluice budget record v1\n";
/// Prefix of signed records of the log of decisions.
const DECISION_CONTEXT: &str = "sluice decision record v1\n";
/// Prefix of signed records of the control log.
const CONTROL_CONTEXT: &str = "sluice control record v1\n";

/// Private key. Its memory is zeroed on drop, and its `Debug` shows the id only.
pub struct PrivateKey(pub(crate) Box<SigningKey>);

/// Public key, which an auditor needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// A text that is not a key. The message never quotes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 key: want one line of 64 hex digits")]
pub struct NotAKey;

impl PrivateKey {
    /// Returns the key of this seed: 32 random bytes.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        // Boxed, since a move leaves a copy in memory.
        Self(Box::new(SigningKey::from_bytes(seed)))
    }

    /// Parses the line of the seed; a final newline is ignored.
    ///
    /// # Errors
    /// [`NotAKey`]
    pub fn parse(line: &[u8]) -> Result<Self, NotAKey> {
        let seed = Zeroizing::new(hex::decode::<32>(one_line(line)).ok_or(NotAKey)?);
        Ok(Self::from_seed(&seed))
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs a head. Returns 128 hex digits.
    #[must_use]
    pub fn sign(&self, head: Hash) -> String {
        hex::encode(&self.0.sign(message(head).as_bytes()).to_bytes())
    }

    /// Signs a record of the budget log. Returns 128 hex digits.
    #[must_use]
    pub fn sign_budget(&self, record: Hash) -> String {
        hex::encode(&self.0.sign(budget_message(record).as_bytes()).to_bytes())
    }

    /// Signs a record of the log of decisions. Returns 128 hex digits.
    #[must_use]
    pub fn sign_decision(&self, record: Hash) -> String {
        hex::encode(&self.0.sign(decision_message(record).as_bytes()).to_bytes())
    }

    /// Signs a record of the control log. Returns 128 hex digits.
    #[must_use]
    pub fn sign_control(&self, record: Hash) -> String {
        hex::encode(&self.0.sign(control_message(record).as_bytes()).to_bytes())
    }
}

impl PublicKey {
    /// Returns the id of the key pair: 32 hex digits.
    #[must_use]
    pub fn id(&self) -> String {
        id_of(self.0.as_bytes())
    }

    /// Returns whether the private key signed this head.
    #[must_use]
    pub fn verifies(&self, head: Hash, signature: &str) -> bool {
        self.has_signed(&message(head), signature)
    }

    /// Returns whether the private key signed this record of the budget log.
    #[must_use]
    pub fn verifies_budget(&self, record: Hash, signature: &str) -> bool {
        self.has_signed(&budget_message(record), signature)
    }

    /// Returns whether the private key signed this record of the log of decisions.
    #[must_use]
    pub fn verifies_decision(&self, record: Hash, signature: &str) -> bool {
        self.has_signed(&decision_message(record), signature)
    }

    /// Returns whether the private key signed this record of the control log.
    #[must_use]
    pub fn verifies_control(&self, record: Hash, signature: &str) -> bool {
        self.has_signed(&control_message(record), signature)
    }

    /// Returns whether the private key signed this text.
    pub(crate) fn has_signed(&self, text: &str, signature: &str) -> bool {
        let signature = hex::decode::<64>(signature.as_bytes()).map(|bytes| Signature::from_bytes(&bytes));
        signature.is_some_and(|signature| self.0.verify_strict(text.as_bytes(), &signature).is_ok())
    }
}

/// Returns the id of the key with this point.
pub(crate) fn id_of(point: &[u8; 32]) -> String {
    hex::encode(&Sha256::digest(point)[..16])
}

fn message(head: Hash) -> String {
    format!("{CONTEXT}{head}")
}

fn budget_message(record: Hash) -> String {
    format!("{BUDGET_CONTEXT}{record}")
}

fn decision_message(record: Hash) -> String {
    format!("{DECISION_CONTEXT}{record}")
}

fn control_message(record: Hash) -> String {
    format!("{CONTROL_CONTEXT}{record}")
}

/// Returns the text without its final newline.
pub(crate) fn one_line(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.strip_suffix(b"\r").unwrap_or(text)
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.public().id())
    }
}

/// One line of 64 hex digits.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0.as_bytes()))
    }
}

impl FromStr for PublicKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let point = hex::decode::<32>(one_line(text.as_bytes())).ok_or(NotAKey)?;
        VerifyingKey::from_bytes(&point).ok().filter(|key| !key.is_weak()).map(Self).ok_or(NotAKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, 7.1, test 1.
    const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    const POINT: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

    #[test]
    fn a_seed_makes_the_point_of_the_standard() {
        for line in [SEED.to_owned(), format!("{SEED}\n"), format!("{SEED}\r\n")] {
            assert_eq!(PrivateKey::parse(line.as_bytes()).map(|key| key.public().to_string()), Ok(POINT.to_owned()));
        }
    }

    #[test]
    fn texts_that_are_not_keys_are_refused() {
        for bad in ["", "\n", &SEED[1..], &SEED.to_uppercase(), &format!("{SEED}\n\n"), &format!("{SEED}{SEED}")] {
            assert_eq!(PrivateKey::parse(bad.as_bytes()).map(|_| ()), Err(NotAKey), "{bad:?}");
        }
        // A point that is not on the curve, and points of small order.
        for bad in ["02".repeat(32), "00".repeat(32), "01".to_owned() + &"00".repeat(31)] {
            assert_eq!(bad.parse::<PublicKey>(), Err(NotAKey), "{bad}");
        }
    }

    #[test]
    fn a_signature_holds_for_its_head_and_key_alone() {
        let key = PrivateKey::parse(SEED.as_bytes()).expect("a key");
        let other = PrivateKey::from_seed(&[7; 32]);
        let (head, signature) = (Hash::of(b"a"), key.sign(Hash::of(b"a")));
        assert!(key.public().verifies(head, &signature));
        assert!(!key.public().verifies(Hash::of(b"b"), &signature));
        assert!(!other.public().verifies(head, &signature));
        assert!(!key.public().verifies(head, &signature.to_uppercase()));
        assert!(!key.public().verifies(head, ""));
        assert_ne!(key.public().id(), other.public().id());
    }

    #[test]
    fn debug_shows_no_key() {
        let shown = format!("{:?}", PrivateKey::parse(SEED.as_bytes()).expect("a key"));
        assert!(!shown.contains(&SEED[..8]), "{shown}");
    }
}
