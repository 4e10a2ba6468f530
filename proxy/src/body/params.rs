//! The rule for each top-level member of a request body: an allow-list.
//!
//! LiteLLM sends members that it does not know on to the provider, so a list of bad names can never be complete: a
//! member that is not listed is dropped. Members that would redirect, re-key, re-price, amplify or hide a call are
//! refused by name, so that their sender learns why.

mod allowed;
mod denied;

use super::shape::{REFUSED, Shape};
use super::{self_hosted, tools};
use crate::policy::ApiFormat;
pub(super) use allowed::{AllowedGroup, STREAM};
use denied::{STRIP, denied, normal};

/// Kind of the server that runs the models, by the members that it takes beside the public API's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerKind {
    /// Only the public API.
    #[default]
    OpenAi,
    /// vLLM, SGLang and similar servers.
    Vllm,
}

/// Rule for one member.
#[derive(Debug, Clone, Copy)]
pub enum MemberRule {
    /// Passes unchanged: the operator has opened it.
    Keep,
    /// Passes with the members that this shape knows; the others are taken out.
    Nested(&'static Shape),
    /// Passes; remote media in it are refused.
    Content,
    /// Must name an allowed model.
    Model,
    /// Must be `true`, `false` or null.
    Stream,
    /// Replaced on streams that would otherwise hide their usage; else it passes with its known members.
    StreamOptions,
    /// Bound of the route on output tokens: passes, and is reserved.
    MaxOutput,
    /// Number of responses: limited, and reserved.
    Choices,
    /// One text, or several, of which each is answered and billed.
    Prompts,
    /// Passes unless it is `true`.
    NotTrue,
    /// Removed, and named in the audit log.
    Strip,
    /// Removed and named, unless the operator allows it by name.
    Drop,
    /// Refused, unless the operator allows it by name.
    Refuse,
    /// Always refused: decides who pays, with which key, at which host, at what price, or who sees the call.
    Never,
}

/// Names by which some route bounds its output. LiteLLM drops those that do not belong to the route.
const BOUNDS: [&str; 4] = ["max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample"];

/// Returns the rule for a member of this route's bodies; `None` for an unknown one.
#[must_use]
pub fn rule(format: ApiFormat, server: ServerKind, name: &str) -> Option<MemberRule> {
    public(format, name).or_else(|| server.member(format, name)).or_else(|| denied(name))
}

impl ServerKind {
    /// Returns the rule for a member that this kind of server takes beside those of the public API.
    fn member(self, format: ApiFormat, name: &str) -> Option<MemberRule> {
        let shape = match (self, format) {
            (Self::Vllm, ApiFormat::Chat) => {
                allowed::shape(self_hosted::SAMPLING, name).or_else(|| allowed::shape(self_hosted::CHAT, name))
            }
            (Self::Vllm, ApiFormat::Completions) => allowed::shape(self_hosted::SAMPLING, name),
            _ => None,
        };
        shape.map(MemberRule::Nested)
    }
}

/// Returns true if `--allow-param` may name this member.
#[must_use]
pub fn may_be_allowed(name: &str) -> bool {
    if let Some((member, inner)) = name.split_once('.') {
        // A member inside one that passes, unless it makes the gateway act.
        return !STRIP.contains(&member) && denied(member).is_none() && !REFUSED.contains(&inner);
    }
    let structural = matches!(name, "model" | "stream" | "stream_options");
    !structural && !STRIP.contains(&name) && !BOUNDS.contains(&name) && !matches!(denied(name), Some(MemberRule::Never))
}

/// Returns the rule for a member of the public API.
fn public(format: ApiFormat, name: &str) -> Option<MemberRule> {
    // On a route whose members are not known here, no spelling of these may pass.
    if STRIP.contains(&name) || format == ApiFormat::Other && STRIP.contains(&normal(name).as_str()) {
        return Some(MemberRule::Strip);
    }
    let common = match name {
        "model" => Some(MemberRule::Model),
        "stream" => Some(MemberRule::Stream),
        // LiteLLM takes `functions` for tools.
        "tools" | "functions" => Some(MemberRule::Nested(&tools::TOOLS)),
        "background" => Some(MemberRule::NotTrue),
        // A chat is stored only if this is `true`.
        "store" if !matches!(format, ApiFormat::Responses | ApiFormat::Compact | ApiFormat::InputTokens) => {
            Some(MemberRule::NotTrue)
        }
        _ => None,
    };
    if common.is_some() {
        return common;
    }
    let nested = |groups| allowed::shape(groups, name).map(MemberRule::Nested);
    match (format, name) {
        (ApiFormat::Chat, "max_tokens" | "max_completion_tokens")
        | (ApiFormat::Completions | ApiFormat::Messages | ApiFormat::CountTokens, "max_tokens")
        | (ApiFormat::Responses, "max_output_tokens") => Some(MemberRule::MaxOutput),
        (ApiFormat::Chat | ApiFormat::Completions | ApiFormat::Other, "n")
        | (ApiFormat::Completions | ApiFormat::Other, "best_of") => Some(MemberRule::Choices),
        (ApiFormat::Chat, "messages")
        | (ApiFormat::Messages | ApiFormat::CountTokens, "messages" | "system")
        | (ApiFormat::Responses | ApiFormat::Compact | ApiFormat::InputTokens, "input" | "instructions")
        | (ApiFormat::Embeddings, "input") => Some(MemberRule::Content),
        (ApiFormat::Completions, "prompt") => Some(MemberRule::Prompts),
        (ApiFormat::Responses | ApiFormat::Compact | ApiFormat::InputTokens, "prompt") => Some(MemberRule::Refuse),
        (ApiFormat::Chat | ApiFormat::Completions, "stream_options") => Some(MemberRule::StreamOptions),
        (ApiFormat::Chat, _) => nested(allowed::CHAT),
        (ApiFormat::Completions, _) => nested(allowed::COMPLETIONS),
        (ApiFormat::Embeddings, _) => nested(allowed::EMBEDDINGS),
        (ApiFormat::Responses | ApiFormat::Compact | ApiFormat::InputTokens, _) => nested(allowed::RESPONSES),
        (ApiFormat::Messages, _) => nested(allowed::MESSAGES),
        (ApiFormat::CountTokens, _) => nested(allowed::COUNT_TOKENS),
        // The operator opened a route whose members only the operator knows: each member that is not denied passes.
        (ApiFormat::Other | ApiFormat::Models | ApiFormat::Stored, _) => {
            denied(name).is_none().then_some(MemberRule::Content)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_dangerous_member_is_refused() {
        for name in [
            "no-log", "no_log", "NO-LOG", "api_base", "base_url", "input_cost_per_token", "aws_region_name",
            "x_endpoint", "litellm_params",
        ] {
            assert!(matches!(rule(ApiFormat::Chat, ServerKind::Vllm, name), Some(MemberRule::Never)), "{name}");
            assert!(!may_be_allowed(name), "{name}");
        }
        for name in ["mock_response", "num_retries", "cache", "web_search_options", "previous_response_id", "s-maxage"]
        {
            assert!(matches!(rule(ApiFormat::Chat, ServerKind::Vllm, name), Some(MemberRule::Refuse)), "{name}");
            assert!(may_be_allowed(name), "{name}");
        }
    }

    #[test]
    fn identity_members_are_stripped_on_every_route() {
        for format in ApiFormat::WITH_BODY {
            for name in STRIP {
                assert!(matches!(rule(format, ServerKind::Vllm, name), Some(MemberRule::Strip)), "{format:?} {name}");
                assert!(!may_be_allowed(name));
            }
        }
    }

    #[test]
    fn an_unknown_member_has_no_rule() {
        assert!(rule(ApiFormat::Chat, ServerKind::Vllm, "totally_unknown").is_none());
        assert!(rule(ApiFormat::Chat, ServerKind::Vllm, "system").is_none());
        assert!(matches!(rule(ApiFormat::Other, ServerKind::Vllm, "totally_unknown"), Some(MemberRule::Content)));
        assert!(matches!(rule(ApiFormat::Other, ServerKind::Vllm, "api_base"), Some(MemberRule::Never)));
    }
}
