//! A GitHub App: it gets a token of its installation, for one repository and an hour, in exchange for a signed claim.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use ring::rand::SystemRandom;
use ring::rsa::KeyPair as RsaKeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::forge::api::{Authorization, ForgeClient};
use crate::forge::credential::ForgeToken;
use crate::forge::error::ForgeError;
use crate::forge::repository::RepositoryName;
use crate::secret_file::{CredentialFault, read_secret};

/// Time for which a token of an installation is used. GitHub's limit is an hour.
const TOKEN_USED: Duration = Duration::from_secs(50 * 60);
/// Lifetime of a claim. GitHub allows ten minutes, and its clock may be slower than ours.
const CLAIM_LIVES: Duration = Duration::from_secs(8 * 60);
/// Time by which a claim is backdated, in case GitHub's clock is slower.
const CLAIM_BACK: Duration = Duration::from_secs(60);

/// The private key of a GitHub App, and its installation.
#[derive(Clone)]
pub struct AppKey {
    app: u64,
    installation: u64,
    key: Arc<RsaKeyPair>,
}

impl fmt::Debug for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppKey")
            .field("app", &self.app)
            .field("installation", &self.installation)
            .finish_non_exhaustive()
    }
}

impl AppKey {
    /// Reads the key of an app from GitHub's PEM file, which only its owner can read.
    ///
    /// # Errors
    /// [`CredentialFault`]
    pub fn read(app: u64, installation: u64, file: &Path) -> Result<Self, CredentialFault> {
        Self::of_pem(app, installation, &read_secret(file)?)
    }

    /// Reads the key of an app from a PEM text: PKCS#1, which GitHub makes, or PKCS#8.
    ///
    /// # Errors
    /// [`CredentialFault::Key`]
    pub fn of_pem(app: u64, installation: u64, pem: &str) -> Result<Self, CredentialFault> {
        let key = match pem_block(pem, "RSA PRIVATE KEY") {
            Some(der) => RsaKeyPair::from_der(&der),
            None => RsaKeyPair::from_pkcs8(&pem_block(pem, "PRIVATE KEY").ok_or(CredentialFault::Key)?),
        };
        Ok(Self { app, installation, key: Arc::new(key.map_err(|_| CredentialFault::Key)?) })
    }

    /// Returns the signed claim: a JWT with RS256.
    fn claim(&self, now: SystemTime) -> Result<ForgeToken, CredentialFault> {
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let encoded = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let claims =
            json!({"iat": since(now - CLAIM_BACK), "exp": since(now + CLAIM_LIVES), "iss": self.app.to_string()});
        let signed = format!("{}.{}", encoded(json!({"alg": "RS256", "typ": "JWT"})), encoded(claims));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| CredentialFault::Key)?;
        ForgeToken::new(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

fn pem_block(pem: &str, name: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (_, rest) = pem.split_once(&format!("-----BEGIN {name}-----"))?;
    let (block, _) = rest.split_once(&format!("-----END {name}-----"))?;
    let text: Zeroizing<String> = Zeroizing::new(block.split_ascii_whitespace().collect());
    STANDARD.decode(text.as_bytes()).ok().map(Zeroizing::new)
}

/// An installation of an app, with its current token.
#[derive(Debug)]
pub(super) struct Installation {
    key: AppKey,
    current: Mutex<Option<(ForgeToken, Instant)>>,
}

impl Installation {
    pub(super) fn new(key: AppKey) -> Self {
        Self { key, current: Mutex::new(None) }
    }

    /// Returns a token for contents and pull requests of one repository.
    pub(super) async fn token(&self, api: &ForgeClient, repository: &RepositoryName) -> Result<ForgeToken, ForgeError> {
        // Callers that arrive meanwhile wait for the same request.
        let mut current = self.current.lock().await;
        if let Some((token, _)) = current.as_ref().filter(|(_, until)| Instant::now() < *until) {
            return Ok(token.clone());
        }
        let from = Instant::now();
        let token = self.request(api, repository).await?;
        *current = Some((token.clone(), from + TOKEN_USED));
        Ok(token)
    }

    async fn request(&self, api: &ForgeClient, repository: &RepositoryName) -> Result<ForgeToken, ForgeError> {
        #[derive(Deserialize)]
        struct Granted {
            token: String,
        }
        let authorization = Authorization { scheme: super::SCHEME, token: self.key.claim(SystemTime::now())? };
        let path = format!("/app/installations/{}/access_tokens", self.key.installation);
        let answer = api.send(&authorization, Method::POST, &path, Some(&grant(repository))).await?;
        let granted = Zeroizing::new(answer.data::<Granted>()?.token);
        Ok(ForgeToken::new(&granted)?)
    }
}

/// Returns the requested permissions. `workflows` is not among them: a push cannot change what CI runs.
pub(super) fn grant(repository: &RepositoryName) -> serde_json::Value {
    json!({
        "repositories": [repository.name()],
        "permissions": {"contents": "write", "pull_requests": "write"},
    })
}
