//! A receiver of spans and metrics.
//!
//! Pure.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use sluice_upstream::{Address, Scheme};
use zeroize::Zeroizing;

/// Kind of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtelKind {
    /// A collector: spans and metrics by OTLP over HTTP.
    Otlp,
    /// Langfuse: spans with its own attributes, and no metrics.
    Langfuse,
}

/// Version of the semantic conventions for generative AI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Semconv {
    /// The conventions for generative AI 0.1, which have a repository of their own.
    Current,
    /// Semantic conventions 1.41, the last with names for generative AI.
    V1_41,
}

/// A receiver that the settings name.
#[derive(Clone)]
pub struct OtelTarget {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: OtelKind,
    /// Address, before `/v1/traces`.
    pub address: Address,
    /// Names of attributes and metrics.
    pub semconv: Semconv,
    /// Value of the header `authorization`.
    pub authorization: Option<HeaderValue>,
    /// File with the certificates to trust, in place of the system's.
    pub ca: Option<PathBuf>,
}

/// Reason why the settings of a target are invalid. It repeats no values, because they may be secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum TargetFault {
    #[error("endpoint is http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH], without a user and a query")]
    Endpoint,
    #[error("a secret goes over https, or to 127.0.0.1, [::1] or localhost; write an endpoint with https")]
    InTheClear,
    #[error("kind is otlp or langfuse")]
    Kind,
    #[error("semconv is current or 1.41")]
    Semconv,
    #[error("langfuse needs secret_file, with PUBLIC_KEY:SECRET_KEY in it")]
    NoKeys,
    #[error(
        "secret_file has one line of visible ASCII: for langfuse PUBLIC_KEY:SECRET_KEY, otherwise the value of the \
             header authorization, such as Bearer TOKEN"
    )]
    Secret,
}

impl OtelTarget {
    /// Makes a target.
    ///
    /// # Errors
    /// [`TargetFault`]
    pub fn new(name: &str, endpoint: &str, kind: OtelKind, secret: Option<&str>) -> Result<Self, TargetFault> {
        let address = parse(endpoint)?;
        let authorization = match (kind, secret.map(str::trim)) {
            (OtelKind::Langfuse, None) => return Err(TargetFault::NoKeys),
            (_, None) => None,
            (kind, Some(secret)) => Some(authorization(kind, secret)?),
        };
        let is_local = matches!(address.host.as_str(), "localhost" | "127.0.0.1" | "::1");
        if authorization.is_some() && address.scheme == Scheme::Http && !is_local {
            return Err(TargetFault::InTheClear);
        }
        Ok(Self { name: name.to_owned(), kind, address, semconv: Semconv::Current, authorization, ca: None })
    }

    /// Returns the path of spans.
    pub(super) fn traces_path(&self) -> &'static str {
        match self.kind {
            OtelKind::Otlp => "/v1/traces",
            OtelKind::Langfuse => "/api/public/otel/v1/traces",
        }
    }

    /// Returns the path of metrics, if the target takes them.
    pub(super) fn metrics_path(&self) -> Option<&'static str> {
        (self.kind == OtelKind::Otlp).then_some("/v1/metrics")
    }
}

/// Reads an endpoint. Checks of settings use it before secrets are read.
///
/// # Errors
/// [`TargetFault::Endpoint`]
pub fn parse(endpoint: &str) -> Result<Address, TargetFault> {
    let address: Address = endpoint.parse().map_err(|_| TargetFault::Endpoint)?;
    if matches!(address.scheme, Scheme::Unix(_)) { Err(TargetFault::Endpoint) } else { Ok(address) }
}

fn authorization(kind: OtelKind, secret: &str) -> Result<HeaderValue, TargetFault> {
    let is_line = !secret.is_empty() && secret.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let has_both = secret.split_once(':').is_some_and(|(public, secret)| !public.is_empty() && !secret.is_empty());
    if !is_line || (kind == OtelKind::Langfuse && !has_both) {
        return Err(TargetFault::Secret);
    }
    let text = match kind {
        OtelKind::Otlp => Zeroizing::new(secret.to_owned()),
        OtelKind::Langfuse => Zeroizing::new(format!("Basic {}", STANDARD.encode(secret))),
    };
    let mut value = HeaderValue::from_str(&text).map_err(|_| TargetFault::Secret)?;
    value.set_sensitive(true);
    Ok(value)
}

impl FromStr for OtelKind {
    type Err = TargetFault;

    fn from_str(text: &str) -> Result<Self, TargetFault> {
        match text {
            "otlp" => Ok(Self::Otlp),
            "langfuse" => Ok(Self::Langfuse),
            _ => Err(TargetFault::Kind),
        }
    }
}

impl FromStr for Semconv {
    type Err = TargetFault;

    fn from_str(text: &str) -> Result<Self, TargetFault> {
        match text {
            "current" => Ok(Self::Current),
            "1.41" => Ok(Self::V1_41),
            _ => Err(TargetFault::Semconv),
        }
    }
}

impl fmt::Debug for OtelTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, address, .. } = self;
        write!(f, "{name} ({kind:?}) at {address}")
    }
}
