//! The secret of a webhook, and the signature of a message: HMAC-SHA256 over `id.timestamp.body`, as the convention of
//! Standard Webhooks has it.
//!
//! Pure.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use zeroize::Zeroizing;

/// Beginning of a secret as text.
const PREFIX: &str = "whsec_";
/// Minimum number of bytes of a secret.
const BYTES_MIN: usize = 24;
/// Maximum number of bytes of a secret.
const BYTES_MAX: usize = 64;

/// A secret that signs messages.
#[derive(Clone)]
pub struct WebhookSecret(hmac::Key);

/// Reason why a text is not a secret. It repeats nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookSecretError {
    /// The text has another form.
    #[error("a secret is whsec_ and base64; make one with: printf 'whsec_%s\\n' \"$(openssl rand -base64 32)\"")]
    Form,
    /// Too short or too long.
    #[error("a secret has {BYTES_MIN} to {BYTES_MAX} bytes before base64")]
    Length,
}

impl WebhookSecret {
    /// Reads a secret. Surrounding white space is ignored.
    ///
    /// # Errors
    /// [`WebhookSecretError`]
    pub fn parse(text: &str) -> Result<Self, WebhookSecretError> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(WebhookSecretError::Form)?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| WebhookSecretError::Form)?);
        if !(BYTES_MIN..=BYTES_MAX).contains(&bytes.len()) {
            return Err(WebhookSecretError::Length);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    fn sign(&self, content: &str) -> String {
        format!("v1,{}", STANDARD.encode(hmac::sign(&self.0, content.as_bytes())))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(redacted)")
    }
}

/// Returns the value of the header `webhook-signature`: one signature for each secret.
pub(super) fn signatures(secrets: &[WebhookSecret], id: &str, timestamp: u64, body: &str) -> String {
    let content = format!("{id}.{timestamp}.{body}");
    secrets.iter().map(|secret| secret.sign(&content)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_convention() {
        // The example of the specification's reference libraries.
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").expect("it is right");
        let signed = |secrets: &[WebhookSecret]| {
            signatures(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#)
        };
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signed(std::slice::from_ref(&secret)), expected);
        let other = WebhookSecret::parse(&format!("whsec_{}", STANDARD.encode([7; 32]))).expect("it is right");
        assert!(signed(&[secret, other]).starts_with(&format!("{expected} v1,")));
    }

    #[test]
    fn weak_and_broken_secrets_are_refused() {
        let encoded = |length: usize| format!("whsec_{}", STANDARD.encode(vec![0; length]));
        for (text, expected) in [
            ("", WebhookSecretError::Form),
            ("sk-secret", WebhookSecretError::Form),
            ("whsec_%%", WebhookSecretError::Form),
            (&encoded(23), WebhookSecretError::Length),
            (&encoded(65), WebhookSecretError::Length),
        ] {
            assert_eq!(WebhookSecret::parse(text).expect_err(text), expected);
        }
        let secret = WebhookSecret::parse(&encoded(24)).expect("it is right");
        assert_eq!(format!("{secret:?}"), "WebhookSecret(redacted)");
    }
}
