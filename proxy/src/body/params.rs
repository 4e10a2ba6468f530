//! What each top-level member of a request body may do: the list, and nothing but the list.
//!
//! LiteLLM sends members that it does not know on to the provider, so a list of bad names can never be
//! complete: a member that is not named here is dropped. Those that would redirect, re-key, re-price,
//! amplify or hide a call are refused by name instead, so that their sender learns why.

use super::schema::SchemaUse;
use super::shape::{MemberShapes, REFUSED, Shape};
use super::{self_hosted, tools};
use crate::policy::ApiFormat;

/// Which server runs the models, as far as it takes members that the public API does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerKind {
    /// The public API alone.
    #[default]
    OpenAi,
    /// vLLM, SGLang and their like.
    Vllm,
}

/// What happens to one member.
#[derive(Debug, Clone, Copy)]
pub enum MemberRule {
    /// Goes on as it is: the operator has opened it.
    Keep,
    /// Goes on with what this shape knows; the rest of it is taken out.
    Nested(&'static Shape),
    /// Goes on; remote media in it are refused.
    Content,
    /// Must name an allowed model.
    Model,
    /// `true`, `false` or null.
    Stream,
    /// Ours on streams that would otherwise hide their usage.
    StreamOptions,
    /// The route's own bound on output tokens; goes on, and is reserved.
    MaxOutput,
    /// How many answers; bounded, and reserved.
    Choices,
    /// One text, or several of which each is answered and billed.
    Prompts,
    /// Goes on unless it is `true`.
    NotTrue,
    /// Removed, and named in the audit line.
    Strip,
    /// Removed and named like that, unless the operator allows it by name.
    Drop,
    /// Refused, unless the operator allows it by name.
    Refuse,
    /// Refused whatever anybody says: who pays, with which key, at which host, at what price, seen by whom.
    Never,
}

/// Accounting and tracing members: ours are set, the client's are removed.
const STRIP: &[&str] = &["user", "metadata", "litellm_metadata", "safety_identifier", "tags"];

const NEVER: &[&str] = &[
    // skips or forges what is logged
    "no_log", "callbacks", "success_callback", "failure_callback", "service_callback", "logger_fn",
    "turn_off_message_logging", "standard_logging_object", "proxy_server_request", "secret_fields",
    "standard_callback_dynamic_params", // sets prices
    "model_info", "base_model", "response_cost", // names another host, key or account
    "api_base", "base_url", "api_key", "api_version", "api_type", "organization", "custom_llm_provider", "model_list",
    "user_config", "router_settings_override", "extra_headers", "headers", "extra_body", "extra_query",
    "provider_specific_header", "deployment_id", "specific_deployment", "allowed_model_region", "client",
    "shared_session", "default_headers", "hf_model_name", "watsonx_project",
    // calls somebody else when the call fails
    "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "default_fallbacks", "disable_fallbacks",
    "weights", "user_api_key_dict", "input_cost", "output_cost",
];

const NEVER_PREFIX: &[&str] =
    &["litellm_", "aws_", "vertex_", "azure_", "langfuse_", "langsmith_", "gcs_", "user_api_key"];
const NEVER_PART: &[&str] = &["_cost_per_"];
const NEVER_SUFFIX: &[&str] = &["_endpoint"];

const REFUSE: &[&str] = &[
    // more calls, or longer ones, than asked for
    "num_retries", "max_retries", "stream_timeout", "request_timeout", "cooldown_time", "fastest_response",
    "priority", // the gateway's cache
    "cache", "caching", "ttl", "s_maxage", "cache_key", "no_cache", "no_store",
    // the gateway's guardrails and stored prompts
    "guardrails", "disable_global_guardrail", "disable_global_guardrails", "guardrail_config", "policies", "prompt_id",
    "prompt_variables", "prompt_version", "prompt_label",
    // egress through the provider or the gateway
    "web_search_options", "mcp_servers", "plugins", "models", "route", "provider", "transforms", "container",
    // what the provider stores for whoever names it
    "previous_response_id", "conversation",
];

/// Some clients send how long they wait themselves. LiteLLM would wait as long and then call again; without it, the
/// client waits as it wants to.
const DROP: &[&str] = &["timeout"];

const REFUSE_PREFIX: &[&str] = &["mock_"];

/// Members of more than one route that set how a model samples: numbers and words that go to the provider,
/// which takes them or refuses them.
const SAMPLING: MemberShapes = &[
    ("frequency_penalty", Shape::Scalar),
    ("presence_penalty", Shape::Scalar),
    ("seed", Shape::Scalar),
    ("temperature", Shape::Scalar),
    ("top_p", Shape::Scalar),
    // A number for each token id.
    ("logit_bias", Shape::Map),
    ("logprobs", Shape::Scalar),
    // Texts at which the answer ends.
    ("stop", Shape::List(&Shape::Scalar)),
];

const CHAT: MemberShapes = &[
    // The voice of a spoken answer; its price is reserved.
    ("audio", Shape::Object(&[("format", Shape::Scalar), ("voice", Shape::Object(&[("id", Shape::Scalar)]))])),
    ("function_call", Shape::Choice(tools::NAMED)),
    ("modalities", Shape::List(&Shape::Scalar)),
    ("parallel_tool_calls", Shape::Scalar),
    // Text that the answer is likely to repeat; what it does not repeat is billed as output, and reserved.
    ("prediction", Shape::Object(&[("type", Shape::Scalar), ("content", Shape::List(&Shape::Object(TEXT_PART)))])),
    ("prompt_cache_key", Shape::Scalar),
    ("prompt_cache_retention", Shape::Scalar),
    ("reasoning", Shape::Object(REASONING)),
    ("reasoning_effort", Shape::EffortOr(REASONING)),
    // LiteLLM validates the answer by other members of it, and fetches what its schema refers to.
    ("response_format", Shape::Object(RESPONSE_FORMAT)),
    // A dearer tier is reserved at its price.
    ("service_tier", Shape::Scalar),
    ("thinking", Shape::Object(THINKING)),
    ("tool_choice", Shape::Choice(tools::CHOICE)),
    ("top_k", Shape::Scalar),
    ("top_logprobs", Shape::Scalar),
    ("verbosity", Shape::Scalar),
];

const COMPLETIONS: MemberShapes = &[("echo", Shape::Scalar), ("suffix", Shape::Scalar)];

const EMBEDDINGS: MemberShapes =
    &[("dimensions", Shape::Scalar), ("encoding_format", Shape::Scalar), ("input_type", Shape::Scalar)];

const RESPONSES: MemberShapes = &[
    // Ids that the run has received in answers; the exchange looks them up.
    ("conversation", Shape::StoredIdOr(&[("id", Shape::StoredId)])),
    ("previous_response_id", Shape::StoredId),
    // Leaving it out is `true` at OpenAI (API reference of `POST /v1/responses`, `store`), and LiteLLM adds none: the
    // answer is stored either way.
    ("store", Shape::Scalar),
    // Words for what the answer shows of itself.
    ("include", Shape::List(&Shape::Scalar)),
    ("max_tool_calls", Shape::Scalar),
    ("parallel_tool_calls", Shape::Scalar),
    ("prompt_cache_key", Shape::Scalar),
    ("prompt_cache_retention", Shape::Scalar),
    ("reasoning", Shape::Object(REASONING)),
    ("service_tier", Shape::Scalar),
    ("stream_options", Shape::Object(STREAM_OPTIONS)),
    ("temperature", Shape::Scalar),
    // As `response_format`.
    ("text", Shape::Object(&[("format", Shape::Object(FORMAT)), ("verbosity", Shape::Scalar)])),
    ("tool_choice", Shape::Choice(tools::CHOICE)),
    ("top_logprobs", Shape::Scalar),
    ("top_p", Shape::Scalar),
    ("truncation", Shape::Scalar),
];

const MESSAGES: MemberShapes = &[
    ("cache_control", Shape::Object(tools::CACHE_CONTROL)),
    // What Anthropic clears from a long conversation.
    ("context_management", Shape::Object(&[("edits", Shape::List(&Shape::Object(EDIT)))])),
    // As `response_format`, and how much the model may think.
    ("output_config", Shape::Object(OUTPUT_CONFIG)),
    ("output_format", Shape::Object(FORMAT)),
    ("service_tier", Shape::Scalar),
    ("stop_sequences", Shape::List(&Shape::Scalar)),
    ("temperature", Shape::Scalar),
    ("thinking", Shape::Object(THINKING)),
    ("tool_choice", Shape::Choice(tools::CHOICE)),
    ("top_k", Shape::Scalar),
    ("top_p", Shape::Scalar),
];

const COUNT_TOKENS: MemberShapes = &[
    ("cache_control", Shape::Object(tools::CACHE_CONTROL)),
    ("context_management", Shape::Object(&[("edits", Shape::List(&Shape::Object(EDIT)))])),
    ("output_config", Shape::Object(OUTPUT_CONFIG)),
    ("output_format", Shape::Object(FORMAT)),
    ("thinking", Shape::Object(THINKING)),
    ("tool_choice", Shape::Choice(tools::CHOICE)),
];

const TEXT_PART: MemberShapes = &[("type", Shape::Scalar), ("text", Shape::Scalar)];

const REASONING: MemberShapes = &[
    // LiteLLM gives Claude models a budget of tokens by this word.
    ("effort", Shape::Effort),
    ("summary", Shape::Scalar),
    ("generate_summary", Shape::Scalar),
    ("context", Shape::Scalar),
    ("mode", Shape::Scalar),
    ("enabled", Shape::Scalar),
    ("exclude", Shape::Scalar),
];

const THINKING: MemberShapes =
    &[("type", Shape::Scalar), ("budget_tokens", Shape::ThinkingBudget), ("display", Shape::Scalar)];

const RESPONSE_FORMAT: MemberShapes = &[("type", Shape::Scalar), ("json_schema", Shape::Object(JSON_SCHEMA))];

const JSON_SCHEMA: MemberShapes = &[
    ("name", Shape::Scalar),
    ("description", Shape::Scalar),
    ("schema", Shape::Schema(SchemaUse::Answer)),
    ("strict", Shape::Scalar),
];

const FORMAT: MemberShapes = &[
    ("type", Shape::Scalar),
    ("name", Shape::Scalar),
    ("description", Shape::Scalar),
    ("schema", Shape::Schema(SchemaUse::Answer)),
    ("strict", Shape::Scalar),
];

const STREAM_OPTIONS: MemberShapes = &[("include_obfuscation", Shape::Scalar), ("include_usage", Shape::Scalar)];

const OUTPUT_CONFIG: MemberShapes = &[
    ("effort", Shape::Scalar),
    ("format", Shape::Object(FORMAT)),
    ("task_budget", Shape::Object(&[("type", Shape::Scalar), ("total", Shape::Scalar), ("remaining", Shape::Scalar)])),
];

const AMOUNT: MemberShapes = &[("type", Shape::Scalar), ("value", Shape::Scalar)];

const EDIT: MemberShapes = &[
    // The others make the gateway or the provider write a summary, in a call of its own.
    ("type", Shape::OneOf(&["clear_tool_uses_20250919", "clear_thinking_20251015"])),
    ("trigger", Shape::Object(AMOUNT)),
    ("keep", Shape::Object(AMOUNT)),
    ("clear_at_least", Shape::Object(AMOUNT)),
    ("clear_tool_inputs", Shape::List(&Shape::Scalar)),
    ("exclude_tools", Shape::List(&Shape::Scalar)),
];

/// Names by which some route bounds its output. LiteLLM drops those that are not the route's own.
const BOUNDS: [&str; 4] = ["max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample"];

/// The rule for a member of this route's bodies; `None` for one that nobody knows.
#[must_use]
pub fn rule(format: ApiFormat, server: ServerKind, name: &str) -> Option<MemberRule> {
    public(format, name).or_else(|| server.member(format, name)).or_else(|| denied(name))
}

impl ServerKind {
    /// The members that this kind of server takes beside those of the public API.
    fn member(self, format: ApiFormat, name: &str) -> Option<MemberRule> {
        let lists: &[MemberShapes] = match (self, format) {
            (Self::Vllm, ApiFormat::Chat) => &[self_hosted::SAMPLING, self_hosted::CHAT],
            (Self::Vllm, ApiFormat::Completions) => &[self_hosted::SAMPLING],
            _ => return None,
        };
        lists
            .iter()
            .flat_map(|list| list.iter())
            .find(|(known, _)| *known == name)
            .map(|(_, shape)| MemberRule::Nested(shape))
    }
}

/// Whether `--allow-param` may name it.
#[must_use]
pub fn may_be_allowed(name: &str) -> bool {
    if let Some((member, inner)) = name.split_once('.') {
        // Inside of a member that passes: whatever makes nobody act.
        return !STRIP.contains(&member) && denied(member).is_none() && !REFUSED.contains(&inner);
    }
    let structural = matches!(name, "model" | "stream" | "stream_options");
    !structural && !STRIP.contains(&name) && !BOUNDS.contains(&name) && !matches!(denied(name), Some(MemberRule::Never))
}

/// The members of the public API.
fn public(format: ApiFormat, name: &str) -> Option<MemberRule> {
    // On routes whose members nobody here knows, no spelling of them may pass.
    if STRIP.contains(&name) || format == ApiFormat::Other && STRIP.contains(&normal(name).as_str()) {
        return Some(MemberRule::Strip);
    }
    let common = match name {
        "model" => Some(MemberRule::Model),
        "stream" => Some(MemberRule::Stream),
        // LiteLLM takes `functions` for tools.
        "tools" | "functions" => Some(MemberRule::Nested(&tools::TOOLS)),
        "background" => Some(MemberRule::NotTrue),
        // A chat is stored only where it is `true`.
        "store" if !matches!(format, ApiFormat::Responses | ApiFormat::Compact | ApiFormat::InputTokens) => {
            Some(MemberRule::NotTrue)
        }
        _ => None,
    };
    if common.is_some() {
        return common;
    }
    let inside = |lists: &[MemberShapes]| {
        let found = lists.iter().flat_map(|list| list.iter()).find(|(known, _)| *known == name);
        found.map(|(_, shape)| MemberRule::Nested(shape))
    };
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
        (ApiFormat::Chat, _) => inside(&[SAMPLING, CHAT]),
        (ApiFormat::Completions, _) => inside(&[SAMPLING, COMPLETIONS]),
        (ApiFormat::Embeddings, _) => inside(&[EMBEDDINGS]),
        (ApiFormat::Responses | ApiFormat::Compact | ApiFormat::InputTokens, _) => inside(&[RESPONSES]),
        (ApiFormat::Messages, _) => inside(&[MESSAGES]),
        (ApiFormat::CountTokens, _) => inside(&[COUNT_TOKENS]),
        // The operator opened a route whose members only the operator knows: what is not denied passes.
        (ApiFormat::Other | ApiFormat::Models | ApiFormat::Stored, _) => {
            denied(name).is_none().then_some(MemberRule::Content)
        }
    }
}

fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

/// LiteLLM's own members, in any spelling that some version may take for them.
fn denied(name: &str) -> Option<MemberRule> {
    let name = normal(name);
    let never = NEVER.contains(&name.as_str())
        || NEVER_PREFIX.iter().any(|prefix| name.starts_with(prefix))
        || NEVER_PART.iter().any(|part| name.contains(part))
        || NEVER_SUFFIX.iter().any(|suffix| name.ends_with(suffix));
    if never {
        return Some(MemberRule::Never);
    }
    if DROP.contains(&name.as_str()) {
        return Some(MemberRule::Drop);
    }
    let refuse = REFUSE.contains(&name.as_str()) || REFUSE_PREFIX.iter().any(|prefix| name.starts_with(prefix));
    refuse.then_some(MemberRule::Refuse)
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
    fn identity_is_ours_on_every_route() {
        for format in [
            ApiFormat::Chat,
            ApiFormat::Completions,
            ApiFormat::Embeddings,
            ApiFormat::Responses,
            ApiFormat::Messages,
            ApiFormat::CountTokens,
            ApiFormat::Compact,
            ApiFormat::InputTokens,
            ApiFormat::Other,
        ] {
            for name in STRIP {
                assert!(matches!(rule(format, ServerKind::Vllm, name), Some(MemberRule::Strip)), "{format:?} {name}");
                assert!(!may_be_allowed(name));
            }
        }
    }

    #[test]
    fn what_nobody_knows_has_no_rule() {
        assert!(rule(ApiFormat::Chat, ServerKind::Vllm, "totally_unknown").is_none());
        assert!(rule(ApiFormat::Chat, ServerKind::Vllm, "system").is_none());
        assert!(matches!(rule(ApiFormat::Other, ServerKind::Vllm, "totally_unknown"), Some(MemberRule::Content)));
        assert!(matches!(rule(ApiFormat::Other, ServerKind::Vllm, "api_base"), Some(MemberRule::Never)));
    }
}
