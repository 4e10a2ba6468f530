//! The members of the public API, by route, with the shape of each and the reason why it may pass.
//!
//! Pure.

use crate::body::schema::SchemaUse;
use crate::body::shape::{MemberShapes, Shape};
use crate::body::tools;

/// Members that may pass, and the reason for it.
pub(in crate::body) struct AllowedGroup {
    #[cfg_attr(not(test), allow(dead_code, reason = "it explains the entries to their reader"))]
    pub(in crate::body) reason: &'static str,
    pub(in crate::body) members: MemberShapes,
}

/// Returns the shape of a member, if one of these groups has it.
pub(super) fn shape(groups: &'static [AllowedGroup], name: &str) -> Option<&'static Shape> {
    groups.iter().flat_map(|group| group.members).find(|(known, _)| *known == name).map(|(_, shape)| shape)
}

const fn group(reason: &'static str, members: MemberShapes) -> AllowedGroup {
    AllowedGroup { reason, members }
}

pub(super) const CHAT: &[AllowedGroup] = &[
    SAMPLING,
    group(
        "sets how the model samples: only the provider reads it",
        &[("top_k", Shape::Scalar), ("top_logprobs", Shape::Scalar), ("verbosity", Shape::Scalar)],
    ),
    group(
        "sets the voice and the form of a spoken response, whose price is reserved",
        &[
            ("audio", Shape::Object(&[("format", Shape::Scalar), ("voice", Shape::Object(&[("id", Shape::Scalar)]))])),
            ("modalities", Shape::List(&Shape::Scalar)),
        ],
    ),
    group(
        "chooses among the tools of the request",
        &[
            ("function_call", Shape::Choice(tools::NAMED)),
            ("parallel_tool_calls", Shape::Scalar),
            ("tool_choice", Shape::Choice(tools::CHOICE)),
        ],
    ),
    group(
        "holds text that the response is likely to repeat: the rest of it is billed as output, and reserved",
        &[(
            "prediction",
            Shape::Object(&[("type", Shape::Scalar), ("content", Shape::List(&Shape::Object(TEXT_PART)))]),
        )],
    ),
    PROMPT_CACHE,
    group(
        "sets how much the model thinks, within the output that is reserved",
        &[
            ("reasoning", Shape::Object(REASONING)),
            ("reasoning_effort", Shape::EffortOr(REASONING)),
            ("thinking", Shape::Object(THINKING)),
        ],
    ),
    group(
        "sets the form of the response: other members of it make LiteLLM validate the response, and fetch the references \
         of its schema",
        &[("response_format", Shape::Object(RESPONSE_FORMAT))],
    ),
    SERVICE_TIER,
];

pub(super) const COMPLETIONS: &[AllowedGroup] =
    &[SAMPLING, group("adds text around the completion", &[("echo", Shape::Scalar), ("suffix", Shape::Scalar)])];

pub(super) const EMBEDDINGS: &[AllowedGroup] = &[group(
    "sets the form of the vectors",
    &[("dimensions", Shape::Scalar), ("encoding_format", Shape::Scalar), ("input_type", Shape::Scalar)],
)];

pub(super) const RESPONSES: &[AllowedGroup] = &[
    group(
        "names a stored object: the exchange checks that this run has received its id",
        &[("conversation", Shape::StoredIdOr(&[("id", Shape::StoredId)])), ("previous_response_id", Shape::StoredId)],
    ),
    group(
        "decides whether the response is stored: without it OpenAI stores (API reference of `POST /v1/responses`, \
         `store`), and LiteLLM adds none",
        &[("store", Shape::Scalar)],
    ),
    group(
        "sets what a response shows of itself",
        &[("include", Shape::List(&Shape::Scalar)), ("stream_options", Shape::Object(STREAM_OPTIONS))],
    ),
    group(
        "chooses among the tools of the request",
        &[
            ("max_tool_calls", Shape::Scalar),
            ("parallel_tool_calls", Shape::Scalar),
            ("tool_choice", Shape::Choice(tools::CHOICE)),
        ],
    ),
    PROMPT_CACHE,
    group(
        "sets how much the model thinks, within the output that is reserved",
        &[("reasoning", Shape::Object(REASONING))],
    ),
    SERVICE_TIER,
    group(
        "sets how the model samples: only the provider reads it",
        &[
            ("temperature", Shape::Scalar),
            ("top_logprobs", Shape::Scalar),
            ("top_p", Shape::Scalar),
            ("truncation", Shape::Scalar),
        ],
    ),
    group(
        "sets the form of the response, like `response_format`",
        &[("text", Shape::Object(&[("format", Shape::Object(FORMAT)), ("verbosity", Shape::Scalar)]))],
    ),
];

pub(super) const MESSAGES: &[AllowedGroup] = &[
    CLAUDE,
    SERVICE_TIER,
    group(
        "sets how the model samples: only the provider reads it",
        &[
            ("stop_sequences", Shape::List(&Shape::Scalar)),
            ("temperature", Shape::Scalar),
            ("top_k", Shape::Scalar),
            ("top_p", Shape::Scalar),
        ],
    ),
];

/// Members of the Messages API without the members that only a response needs.
pub(super) const COUNT_TOKENS: &[AllowedGroup] = &[CLAUDE];

const SAMPLING: AllowedGroup = group(
    "sets how the model samples: numbers and words that only the provider reads",
    &[
        ("frequency_penalty", Shape::Scalar),
        ("presence_penalty", Shape::Scalar),
        ("seed", Shape::Scalar),
        ("temperature", Shape::Scalar),
        ("top_p", Shape::Scalar),
        // A number for each token id.
        ("logit_bias", Shape::Map),
        ("logprobs", Shape::Scalar),
        // Texts at which the response ends.
        ("stop", Shape::List(&Shape::Scalar)),
    ],
);

const PROMPT_CACHE: AllowedGroup = group(
    "sets how the provider caches the prompt",
    &[("prompt_cache_key", Shape::Scalar), ("prompt_cache_retention", Shape::Scalar)],
);

const SERVICE_TIER: AllowedGroup =
    group("names a tier of service: a dearer one is reserved at its price", &[("service_tier", Shape::Scalar)]);

const CLAUDE: AllowedGroup = group(
    "belongs to Anthropic's Messages API: no gateway acts on it",
    &[
        ("cache_control", Shape::Object(tools::CACHE_CONTROL)),
        // The parts of a long conversation that Anthropic clears.
        ("context_management", Shape::Object(&[("edits", Shape::List(&Shape::Object(EDIT)))])),
        // Like `response_format`, with how much the model may think.
        ("output_config", Shape::Object(OUTPUT_CONFIG)),
        ("output_format", Shape::Object(FORMAT)),
        ("thinking", Shape::Object(THINKING)),
        ("tool_choice", Shape::Choice(tools::CHOICE)),
    ],
);

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

const THINKING: MemberShapes = &[
    ("type", Shape::Scalar),
    ("budget_tokens", Shape::ThinkingBudget),
    ("display", Shape::Scalar),
    // Takes blocks of thinking of another conversation out of the prompt.
    ("block_binding", Shape::Object(&[("prefix_mismatch_behavior", Shape::Scalar)])),
];

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

/// `stream_options` of every route.
pub(in crate::body) static STREAM: Shape = Shape::Object(STREAM_OPTIONS);

const STREAM_OPTIONS: MemberShapes = &[("include_obfuscation", Shape::Scalar), ("include_usage", Shape::Scalar)];

const OUTPUT_CONFIG: MemberShapes = &[
    ("effort", Shape::Scalar),
    ("format", Shape::Object(FORMAT)),
    ("task_budget", Shape::Object(&[("type", Shape::Scalar), ("total", Shape::Scalar), ("remaining", Shape::Scalar)])),
];

const AMOUNT: MemberShapes = &[("type", Shape::Scalar), ("value", Shape::Scalar)];

const EDIT: MemberShapes = &[
    // Other types make the gateway or the provider write a summary, in a call of its own.
    ("type", Shape::OneOf(&["clear_tool_uses_20250919", "clear_thinking_20251015"])),
    ("trigger", Shape::Object(AMOUNT)),
    ("keep", Shape::Object(AMOUNT)),
    ("clear_at_least", Shape::Object(AMOUNT)),
    ("clear_tool_inputs", Shape::List(&Shape::Scalar)),
    ("exclude_tools", Shape::List(&Shape::Scalar)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::self_hosted;

    #[test]
    fn each_allowed_member_has_one_reason() {
        for groups in
            [CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES, COUNT_TOKENS, self_hosted::CHAT, self_hosted::SAMPLING]
        {
            let mut names: Vec<_> = groups.iter().flat_map(|group| group.members).map(|(name, _)| *name).collect();
            for group in groups {
                assert!(group.reason.split(' ').count() > 3, "{:?}", group.members);
            }
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "a member is in two groups");
        }
    }
}
