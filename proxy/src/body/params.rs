//! What each top-level member of a request body may do: the list, and nothing but the list.
//!
//! LiteLLM sends members that it does not know on to the provider, so a list of bad names can never be
//! complete: a member that is not named here is dropped. Those that would redirect, re-key, re-price,
//! amplify or hide a call are refused by name instead, so that their sender learns why.

use crate::policy::Wire;

/// What happens to one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Goes on as it is.
    Keep,
    /// Goes on; remote media in it are refused.
    Content,
    /// Must name an allowed model.
    Model,
    /// `true`, `false` or null.
    Stream,
    /// Ours on streams that would otherwise hide their usage.
    StreamOptions,
    /// A bound on output tokens; goes on, and is reserved.
    MaxOutput,
    /// How many answers; bounded, and reserved.
    Choices,
    /// One text, or several of which each is answered and billed.
    Prompts,
    /// Only tools that the agent itself runs.
    Tools,
    /// Goes on unless it is `true`.
    NotTrue,
    /// Removed, and named in the audit line.
    Strip,
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
    "num_retries", "max_retries", "timeout", "stream_timeout", "request_timeout", "cooldown_time", "fastest_response",
    "priority", // the gateway's cache
    "cache", "caching", "ttl", "s_maxage", "cache_key", "no_cache", "no_store",
    // the gateway's guardrails and stored prompts
    "guardrails", "disable_global_guardrail", "disable_global_guardrails", "guardrail_config", "policies", "prompt_id",
    "prompt_variables", "prompt_version", "prompt_label",
    // egress through the provider or the gateway
    "web_search_options", "mcp_servers", "plugins", "models", "route", "provider", "transforms", "container",
    // billed later, or never
    "previous_response_id", "conversation",
];

const REFUSE_PREFIX: &[&str] = &["mock_"];

const CHAT: &[&str] = &[
    "audio", "frequency_penalty", "function_call", "logit_bias", "logprobs", "modalities", "parallel_tool_calls",
    "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning", "reasoning_effort",
    "response_format", "seed", "service_tier", "stop", "temperature", "thinking", "tool_choice", "top_k",
    "top_logprobs", "top_p", "verbosity",
];
const COMPLETIONS: &[&str] = &[
    "echo", "frequency_penalty", "logit_bias", "logprobs", "presence_penalty", "seed", "stop", "suffix", "temperature",
    "top_p",
];
const EMBEDDINGS: &[&str] = &["dimensions", "encoding_format", "input_type"];
const RESPONSES: &[&str] = &[
    "include", "max_tool_calls", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "reasoning",
    "service_tier", "temperature", "text", "tool_choice", "top_logprobs", "top_p", "truncation", "stream_options",
];
const MESSAGES: &[&str] = &[
    "cache_control", "context_management", "output_config", "output_format", "service_tier", "stop_sequences",
    "temperature", "thinking", "tool_choice", "top_k", "top_p",
];
const COUNT_TOKENS: &[&str] =
    &["cache_control", "context_management", "output_config", "output_format", "thinking", "tool_choice"];

/// The rule for a member of this route's bodies; `None` for one that nobody knows.
#[must_use]
pub fn rule(wire: Wire, name: &str) -> Option<Rule> {
    public(wire, name).or_else(|| denied(name))
}

/// Whether `--allow-param` may name it.
#[must_use]
pub fn may_be_allowed(name: &str) -> bool {
    let structural = matches!(name, "model" | "stream" | "stream_options");
    !structural && !STRIP.contains(&name) && denied(name) != Some(Rule::Never)
}

/// The members of the public API.
fn public(wire: Wire, name: &str) -> Option<Rule> {
    // On routes whose members nobody here knows, no spelling of them may pass.
    if STRIP.contains(&name) || wire == Wire::Other && STRIP.contains(&normal(name).as_str()) {
        return Some(Rule::Strip);
    }
    let common = match name {
        "model" => Some(Rule::Model),
        "stream" => Some(Rule::Stream),
        "max_tokens" | "max_completion_tokens" | "max_output_tokens" | "max_tokens_to_sample" => Some(Rule::MaxOutput),
        "n" | "best_of" => Some(Rule::Choices),
        // LiteLLM takes `functions` for tools.
        "tools" | "functions" => Some(Rule::Tools),
        "store" | "background" => Some(Rule::NotTrue),
        _ => None,
    };
    if common.is_some() {
        return common;
    }
    let keep = |list: &[&str]| list.contains(&name).then_some(Rule::Keep);
    match (wire, name) {
        (Wire::Chat, "messages")
        | (Wire::Messages | Wire::CountTokens, "messages" | "system")
        | (Wire::Responses, "input" | "instructions")
        | (Wire::Embeddings, "input") => Some(Rule::Content),
        (Wire::Completions, "prompt") => Some(Rule::Prompts),
        (Wire::Responses, "prompt") => Some(Rule::Refuse),
        (Wire::Chat | Wire::Completions, "stream_options") => Some(Rule::StreamOptions),
        (Wire::Chat, _) => keep(CHAT),
        (Wire::Completions, _) => keep(COMPLETIONS),
        (Wire::Embeddings, _) => keep(EMBEDDINGS),
        (Wire::Responses, _) => keep(RESPONSES),
        (Wire::Messages, _) => keep(MESSAGES),
        (Wire::CountTokens, _) => keep(COUNT_TOKENS),
        // The operator opened a route whose members only the operator knows: what is not denied passes.
        (Wire::Other | Wire::Models, _) => denied(name).is_none().then_some(Rule::Content),
    }
}

fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

/// LiteLLM's own members, in any spelling that some version may take for them.
fn denied(name: &str) -> Option<Rule> {
    let name = normal(name);
    let never = NEVER.contains(&name.as_str())
        || NEVER_PREFIX.iter().any(|prefix| name.starts_with(prefix))
        || NEVER_PART.iter().any(|part| name.contains(part))
        || NEVER_SUFFIX.iter().any(|suffix| name.ends_with(suffix));
    if never {
        return Some(Rule::Never);
    }
    let refuse = REFUSE.contains(&name.as_str()) || REFUSE_PREFIX.iter().any(|prefix| name.starts_with(prefix));
    refuse.then_some(Rule::Refuse)
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
            assert_eq!(rule(Wire::Chat, name), Some(Rule::Never), "{name}");
            assert!(!may_be_allowed(name), "{name}");
        }
        for name in ["mock_response", "num_retries", "cache", "web_search_options", "previous_response_id", "s-maxage"]
        {
            assert_eq!(rule(Wire::Chat, name), Some(Rule::Refuse), "{name}");
            assert!(may_be_allowed(name), "{name}");
        }
    }

    #[test]
    fn identity_is_ours_on_every_route() {
        for wire in [
            Wire::Chat,
            Wire::Completions,
            Wire::Embeddings,
            Wire::Responses,
            Wire::Messages,
            Wire::CountTokens,
            Wire::Other,
        ] {
            for name in STRIP {
                assert_eq!(rule(wire, name), Some(Rule::Strip), "{wire:?} {name}");
                assert!(!may_be_allowed(name));
            }
        }
    }

    #[test]
    fn what_nobody_knows_has_no_rule() {
        assert_eq!(rule(Wire::Chat, "totally_unknown"), None);
        assert_eq!(rule(Wire::Chat, "system"), None);
        assert_eq!(rule(Wire::Other, "totally_unknown"), Some(Rule::Content));
        assert_eq!(rule(Wire::Other, "api_base"), Some(Rule::Never));
    }
}
