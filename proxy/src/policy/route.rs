//! One route, and the API format that it has.
//!
//! Pure.

use http::Method;

use crate::refusal::Dialect;

/// Format of the requests and responses of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiFormat {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `POST /v1/responses/compact`: a model writes a shorter form of a long conversation.
    Compact,
    /// `POST /v1/responses/input_tokens`
    InputTokens,
    /// `GET /v1/models`
    Models,
    /// A stored object that the run has made, by its id; the operator added the route with `--allow`.
    Stored,
    /// A route that the operator added with `--allow`.
    Other,
}

impl ApiFormat {
    /// All formats of calls whose body the policy reads.
    #[cfg(test)]
    pub(crate) const WITH_BODY: [Self; 9] = [
        Self::Chat,
        Self::Completions,
        Self::Embeddings,
        Self::Responses,
        Self::Messages,
        Self::CountTokens,
        Self::Compact,
        Self::InputTokens,
        Self::Other,
    ];

    /// Returns the error format of its callers.
    #[must_use]
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
            Self::Chat
            | Self::Completions
            | Self::Embeddings
            | Self::Responses
            | Self::Compact
            | Self::InputTokens
            | Self::Models
            | Self::Stored
            | Self::Other => Dialect::OpenAi,
        }
    }

    /// Returns true if the provider charges for it.
    #[must_use]
    pub fn is_billed(self) -> bool {
        !matches!(self, Self::CountTokens | Self::InputTokens | Self::Models | Self::Stored)
    }
}

/// One method and path of the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Method that the route takes.
    pub method: Method,
    /// Path that goes upstream: with `/v1` on the default routes, or as `--allow` names it, with `{id}` in a pattern.
    pub path: &'static str,
    /// API format of the route.
    pub format: ApiFormat,
}

impl Route {
    /// Returns true if its responses are objects that the provider stores, with ids that the agent cannot choose. A
    /// route that the operator added may repeat an id from the request, so of those only the one that makes
    /// conversations counts.
    #[must_use]
    pub fn makes_stored(&self) -> bool {
        matches!(self.format, ApiFormat::Responses | ApiFormat::Compact)
            || self.format == ApiFormat::Other && self.method == Method::POST && self.path == "/v1/conversations"
    }
}
