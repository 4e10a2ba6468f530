//! The members that no body may set, in groups that share a rule and a reason.
//!
//! Pure. LiteLLM acts on these names, in any spelling that some version may take for them.

use super::MemberRule;

/// Names that share a rule, and the reason for it.
struct DeniedGroup {
    rule: MemberRule,
    #[cfg_attr(not(test), allow(dead_code, reason = "it explains the entries to their reader"))]
    reason: &'static str,
    names: &'static [&'static str],
    prefixes: &'static [&'static str],
    parts: &'static [&'static str],
    suffixes: &'static [&'static str],
}

impl DeniedGroup {
    const fn new(rule: MemberRule, reason: &'static str, names: &'static [&'static str]) -> Self {
        Self { rule, reason, names, prefixes: &[], parts: &[], suffixes: &[] }
    }

    fn holds(&self, name: &str) -> bool {
        self.names.contains(&name)
            || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
            || self.parts.iter().any(|part| name.contains(part))
            || self.suffixes.iter().any(|suffix| name.ends_with(suffix))
    }
}

/// Accounting and tracing members: the sidecar sets its own, and removes the client's.
pub(super) const STRIP: &[&str] = &["user", "metadata", "litellm_metadata", "safety_identifier", "tags"];

/// The groups in the order of their rules: `Never` comes before the others, so a name in two groups is refused for
/// good.
const DENIED: &[DeniedGroup] = &[
    DeniedGroup {
        prefixes: &["langfuse_", "langsmith_", "gcs_"],
        ..DeniedGroup::new(
            MemberRule::Never,
            "skips or forges what is logged",
            &[
                "no_log", "callbacks", "success_callback", "failure_callback", "service_callback", "logger_fn",
                "turn_off_message_logging", "standard_logging_object", "proxy_server_request", "secret_fields",
                "standard_callback_dynamic_params",
            ],
        )
    },
    DeniedGroup {
        parts: &["_cost_per_"],
        ..DeniedGroup::new(
            MemberRule::Never,
            "sets prices",
            &["model_info", "base_model", "response_cost", "input_cost", "output_cost"],
        )
    },
    DeniedGroup {
        prefixes: &["litellm_", "aws_", "vertex_", "azure_", "user_api_key"],
        suffixes: &["_endpoint"],
        ..DeniedGroup::new(
            MemberRule::Never,
            "names another host, key or account",
            &[
                "api_base", "base_url", "api_key", "api_version", "api_type", "organization", "custom_llm_provider",
                "model_list", "user_config", "router_settings_override", "extra_headers", "headers", "extra_body",
                "extra_query", "provider_specific_header", "deployment_id", "specific_deployment",
                "allowed_model_region", "client", "shared_session", "default_headers", "hf_model_name",
                "watsonx_project", "user_api_key_dict",
            ],
        )
    },
    DeniedGroup::new(
        MemberRule::Never,
        "calls another model or deployment",
        &[
            "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "default_fallbacks",
            "disable_fallbacks", "weights",
        ],
    ),
    DeniedGroup::new(
        MemberRule::Drop,
        "clients send their own time limit: LiteLLM would wait as long and then call again, and without the member the \
         client still waits as it wants to",
        &["timeout"],
    ),
    DeniedGroup::new(
        MemberRule::Refuse,
        "makes more calls, or longer ones, than asked for",
        &[
            "num_retries", "max_retries", "stream_timeout", "request_timeout", "cooldown_time", "fastest_response",
            "priority",
        ],
    ),
    DeniedGroup::new(
        MemberRule::Refuse,
        "steers the gateway's cache",
        &["cache", "caching", "ttl", "s_maxage", "cache_key", "no_cache", "no_store"],
    ),
    DeniedGroup::new(
        MemberRule::Refuse,
        "steers the gateway's guardrails and stored prompts",
        &[
            "guardrails", "disable_global_guardrail", "disable_global_guardrails", "guardrail_config", "policies",
            "prompt_id", "prompt_variables", "prompt_version", "prompt_label",
        ],
    ),
    DeniedGroup::new(
        MemberRule::Refuse,
        "reaches the network through the provider or the gateway",
        &["web_search_options", "mcp_servers", "plugins", "models", "route", "provider", "transforms", "container"],
    ),
    DeniedGroup::new(
        MemberRule::Refuse,
        "names an object that the provider stores, which may be another run's",
        &["previous_response_id", "conversation"],
    ),
    DeniedGroup {
        prefixes: &["mock_"],
        ..DeniedGroup::new(MemberRule::Refuse, "makes the gateway invent a response", &[])
    },
];

/// Returns the name in lower case, with `_` for `-`: LiteLLM takes some names in both spellings.
pub(super) fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

/// Returns the rule for a denied name, in any spelling.
pub(super) fn denied(name: &str) -> Option<MemberRule> {
    group(&normal(name)).map(|group| group.rule)
}

fn group(name: &str) -> Option<&'static DeniedGroup> {
    DENIED.iter().find(|group| group.holds(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name and pattern of a group.
    fn entries(group: &DeniedGroup) -> impl Iterator<Item = &'static str> {
        group.names.iter().chain(group.prefixes).chain(group.parts).chain(group.suffixes).copied()
    }

    #[test]
    fn each_denied_name_has_one_reason() {
        for denied in DENIED {
            assert!(denied.reason.split(' ').count() > 1, "{:?}", denied.names);
            for name in entries(denied) {
                let found = group(name).map(|group| group.reason);
                assert_eq!(found, Some(denied.reason), "{name} is in two groups");
            }
        }
    }

    /// rustfmt had joined the headings of four groups to the line before.
    #[test]
    fn names_at_the_edges_of_groups_have_their_reason() {
        for (name, reason) in [
            ("standard_callback_dynamic_params", "skips or forges what is logged"),
            ("model_info", "sets prices"),
            ("response_cost", "sets prices"),
            ("api_base", "names another host, key or account"),
            ("watsonx_project", "names another host, key or account"),
            ("fallbacks", "calls another model or deployment"),
            ("priority", "makes more calls, or longer ones, than asked for"),
            ("cache", "steers the gateway's cache"),
        ] {
            assert_eq!(group(name).map(|group| group.reason), Some(reason), "{name}");
        }
    }
}
