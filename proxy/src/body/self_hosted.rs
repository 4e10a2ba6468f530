//! Members that servers of open models take beside those of the public API, for `--dialect vllm`.
//!
//! From the protocol definitions of vLLM and SGLang (`ChatCompletionRequest`, `CompletionRequest`), November 2026.
//! These are left out, because they run more than one response, name a host, a file or another model, run code or
//! templates of the client's, or return far more than a response: `use_beam_search`, `best_of`, `prompt_logprobs`,
//! `logits_processors`, `custom_logit_processor`, `custom_params`, `chat_template`, `kv_transfer_params`,
//! `bootstrap_host`, `vllm_xargs`, `mm_processor_kwargs`, `media_io_kwargs`, `lora_path`, `session_params`,
//! `priority`, `return_hidden_states`, `return_token_ids`, `documents`. LiteLLM acts on none of those that pass: it
//! hands them to the server.

use super::params::AllowedGroup;
use super::schema::SchemaUse;
use super::shape::{MemberShapes, Shape};

/// Members of chat and completions. None of them makes a response longer than its bound, which is reserved.
pub(super) const SAMPLING: &[AllowedGroup] = &[AllowedGroup {
    reason: "sets how a self-hosted model samples: no answer gets longer than its bound, which is reserved",
    members: &[
        ("add_special_tokens", Shape::Scalar),
        ("allowed_token_ids", Shape::List(&Shape::Scalar)),
        ("bad_words", Shape::List(&Shape::Scalar)),
        // SGLang: the response follows this grammar.
        ("ebnf", Shape::Scalar),
        ("guided_choice", Shape::List(&Shape::Scalar)),
        ("guided_grammar", Shape::Scalar),
        ("guided_json", Shape::Schema(SchemaUse::Answer)),
        ("guided_regex", Shape::Scalar),
        ("guided_whitespace_pattern", Shape::Scalar),
        ("ignore_eos", Shape::Scalar),
        ("include_stop_str_in_output", Shape::Scalar),
        ("length_penalty", Shape::Scalar),
        ("min_p", Shape::Scalar),
        ("min_tokens", Shape::Scalar),
        ("no_stop_trim", Shape::Scalar),
        ("regex", Shape::Scalar),
        ("repetition_penalty", Shape::Scalar),
        ("skip_special_tokens", Shape::Scalar),
        ("spaces_between_special_tokens", Shape::Scalar),
        ("stop_token_ids", Shape::List(&Shape::Scalar)),
        ("structured_outputs", Shape::Object(STRUCTURED_OUTPUTS)),
        ("top_k", Shape::Scalar),
        ("truncate_prompt_tokens", Shape::Scalar),
    ],
}];

/// Members of chat only: how the model thinks, and how the server shows it.
pub(super) const CHAT: &[AllowedGroup] = &[AllowedGroup {
    reason: "sets how a self-hosted model thinks, and how its server shows it",
    members: &[
        ("add_generation_prompt", Shape::Scalar),
        // Values of the template's variables by their names. `chat_template` and `tokenize` among them would replace
        // the server's own template.
        ("chat_template_kwargs", Shape::Object(TEMPLATE_VARIABLES)),
        ("continue_final_message", Shape::Scalar),
        ("enable_thinking", Shape::Scalar),
        ("include_reasoning", Shape::Scalar),
        ("separate_reasoning", Shape::Scalar),
        ("stream_reasoning", Shape::Scalar),
        ("thinking_budget", Shape::Scalar),
        ("thinking_token_budget", Shape::Scalar),
    ],
}];

const STRUCTURED_OUTPUTS: MemberShapes = &[
    ("choice", Shape::List(&Shape::Scalar)),
    ("disable_additional_properties", Shape::Scalar),
    ("disable_any_whitespace", Shape::Scalar),
    ("grammar", Shape::Scalar),
    ("json", Shape::Schema(SchemaUse::Answer)),
    ("json_object", Shape::Scalar),
    ("regex", Shape::Scalar),
    ("structural_tag", Shape::Scalar),
    ("whitespace_pattern", Shape::Scalar),
];

const TEMPLATE_VARIABLES: MemberShapes = &[
    ("clear_thinking", Shape::Scalar),
    ("enable_thinking", Shape::Scalar),
    ("model_identity", Shape::Scalar),
    ("preserve_thinking", Shape::Scalar),
    ("reasoning_effort", Shape::Scalar),
    ("thinking", Shape::Scalar),
    ("thinking_budget", Shape::Scalar),
];
