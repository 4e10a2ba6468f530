"""A value for each documented member of the APIs, and the expected differences: the tables of members.py."""

FUNCTION = {
    "name": "f",
    "description": "Finds a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CHAT_TOOLS = [{"type": "function", "function": {**FUNCTION, "strict": False}}]
RESPONSES_TOOLS = [{"type": "function", **FUNCTION, "strict": False}]
MESSAGES_TOOLS = [{"name": "f", "description": "Finds a city.", "input_schema": FUNCTION["parameters"]}]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
EPHEMERAL = {"type": "ephemeral"}


# A body's part for each member, alone or with the members it needs; MARK is replaced by the mark.
MARK = "MARK"
SAMPLES = {
    "chat": {
        "audio": {"audio": {"format": "wav", "voice": "alloy"}, "modalities": ["text", "audio"]},
        "frequency_penalty": 0.5,
        "function_call": {"function_call": "auto", "functions": [FUNCTION]},
        "functions": [FUNCTION],
        "logit_bias": {"50256": -100},
        "logprobs": True,
        "max_completion_tokens": 100,
        "max_tokens": 100,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "name": "ann", "content": [{"type": "text", "text": MARK}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "17"},
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
                ],
            },
        ],
        "metadata": {"topic": "demo"},
        "modalities": ["text"],
        "moderation": {"model": "omni-moderation-latest"},
        "n": 2,
        "parallel_tool_calls": {"parallel_tool_calls": False, "tools": CHAT_TOOLS},
        "prediction": {"type": "content", "content": "Hello"},
        "presence_penalty": 0.5,
        "prompt_cache_key": "key",
        "prompt_cache_options": {"mode": "explicit"},
        "prompt_cache_retention": "24h",
        "reasoning_effort": {"model": "gpt-5.5", "reasoning_effort": "low"},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
        "safety_identifier": "someone",
        "seed": 7,
        "service_tier": "default",
        "stop": ["END"],
        "store": False,
        "stream_options": {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        "temperature": 0.5,
        "tool_choice": {"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": CHAT_TOOLS},
        "tools": CHAT_TOOLS,
        "top_logprobs": {"logprobs": True, "top_logprobs": 2},
        "top_p": 0.5,
        "user": "someone",
        "verbosity": {"model": "gpt-5.5", "verbosity": "low"},
        "web_search_options": {"search_context_size": "low"},
    },
    "completions": {
        "best_of": 2,
        "echo": True,
        "frequency_penalty": 0.5,
        "logit_bias": {"50256": -100},
        "logprobs": 2,
        "max_tokens": 100,
        "n": 2,
        "presence_penalty": 0.5,
        "prompt": [MARK, "and another"],
        "seed": 7,
        "stop": "END",
        "stream_options": {"stream": True, "stream_options": {"include_usage": True}},
        "suffix": "the end",
        "temperature": 0.5,
        "top_p": 0.5,
        "user": "someone",
    },
    "embeddings": {
        "dimensions": 3,
        "encoding_format": "float",
        "input": [MARK, "and another"],
        "user": "someone",
    },
    "responses": {
        "background": False,
        "context_management": [{"type": "compaction", "compact_threshold": 100000}],
        "conversation": "conv_1",
        "include": ["reasoning.encrypted_content"],
        "input": [
            {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": MARK}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "17"},
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,iVBORw0KGgo="}
                ],
            },
        ],
        "instructions": "Be brief.",
        "max_output_tokens": 100,
        "max_tool_calls": 3,
        "metadata": {"topic": "demo"},
        "moderation": {"model": "omni-moderation-latest"},
        "parallel_tool_calls": {"parallel_tool_calls": False, "tools": RESPONSES_TOOLS},
        "previous_response_id": "resp_1",
        "prompt": {"id": "pmpt_1"},
        "prompt_cache_key": "key",
        "prompt_cache_options": {"mode": "explicit"},
        "prompt_cache_retention": "24h",
        "reasoning": {"model": "gpt-5.5", "reasoning": {"effort": "low", "summary": "auto"}},
        "safety_identifier": "someone",
        "service_tier": "default",
        "store": False,
        "stream_options": {"stream": True, "stream_options": {"include_obfuscation": False}},
        "temperature": 0.5,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}, "verbosity": "low"},
        "tool_choice": {"tool_choice": {"type": "function", "name": "f"}, "tools": RESPONSES_TOOLS},
        "tools": RESPONSES_TOOLS,
        "top_logprobs": 2,
        "top_p": 0.5,
        "truncation": "auto",
        "user": "someone",
    },
    "messages": {
        "billing_policy": {"type": "default"},
        "cache_control": EPHEMERAL,
        "compaction": {"type": "auto"},
        "container": "container_1",
        "context_management": {
            "edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 100000}}]
        },
        "diagnostics": {"previous_message_id": None},
        "fallback_credit_token": "token",
        "fallbacks": [{"model": "provider-claude"}],
        "inference_geo": "us",
        "max_tokens": 2000,
        "mcp_servers": [{"type": "url", "name": "m", "url": "https://mcp.example"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": MARK, "cache_control": EPHEMERAL}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"city": "Paris"}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "17"}]},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                ],
            },
        ],
        "metadata": {"user_id": "someone"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        "service_tier": "auto",
        "speed": "standard",
        "stop_sequences": ["END"],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": EPHEMERAL}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "thread": {"id": "thread_1"},
        "tool_choice": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "tools": MESSAGES_TOOLS},
        "tools": MESSAGES_TOOLS,
        "user_profile_id": "profile_1",
        "workspace_id": "wrkspc_1",
        # Members of versions before the pinned one.
        "temperature": 0.5,
        "top_k": 5,
        "top_p": 0.5,
    },
    "count_tokens": {
        "cache_control": EPHEMERAL,
        "messages": [{"role": "user", "content": [{"type": "text", "text": MARK, "cache_control": EPHEMERAL}]}],
        "output_config": {"effort": "low"},
        "speed": "standard",
        "system": "Be brief.",
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tool_choice": {"tool_choice": {"type": "auto"}, "tools": MESSAGES_TOOLS},
        "tools": MESSAGES_TOOLS,
        "user_profile_id": "profile_1",
        "workspace_id": "wrkspc_1",
    },
}

# Further values of a member, by `MEMBER:WHAT`.
CUSTOM_TOOL = {
    "name": "f",
    "description": "Runs code.",
    "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}},
}
NAMESPACE = {"type": "namespace", "name": "n", "description": "Cities.", "tools": RESPONSES_TOOLS}
VARIANTS = {
    "chat": {
        "messages:audio": {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": MARK},
                        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                    ],
                }
            ]
        },
        "messages:file": {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": MARK},
                        {
                            "type": "file",
                            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
                        },
                    ],
                }
            ]
        },
        "response_format:json_object": {"response_format": {"type": "json_object"}},
        "stream": {"stream": True},
        "tool_choice:allowed_tools": {
            "tools": CHAT_TOOLS,
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
        },
        "tools:custom": {
            "tools": [
                *CHAT_TOOLS,
                {
                    "type": "custom",
                    "custom": {
                        **CUSTOM_TOOL,
                        "format": {"type": "grammar", "grammar": CUSTOM_TOOL["format"]["grammar"]},
                    },
                },
            ]
        },
    },
    "completions": {"stream": {"stream": True}},
    "embeddings": {"encoding_format:base64": {"encoding_format": "base64"}, "input:tokens": {"input": [MARK]}},
    "responses": {
        "input:file": {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": MARK},
                        {
                            "type": "input_file",
                            "filename": "a.pdf",
                            "file_data": "data:application/pdf;base64,JVBERi0=",
                        },
                    ],
                }
            ]
        },
        "input:additional_tools": {
            "input": [
                {"type": "additional_tools", "role": "developer", "tools": [NAMESPACE]},
                {"role": "user", "content": MARK},
            ]
        },
        "input:custom_tool_call": {
            "input": [
                {"role": "user", "content": MARK},
                {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"},
                {"type": "custom_tool_call_output", "call_id": "c1", "output": "17"},
            ]
        },
        "input:reasoning": {
            "input": [
                {"role": "user", "content": MARK},
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [{"type": "summary_text", "text": "So."}],
                    "encrypted_content": "gAAAA",
                },
                {
                    "type": "message",
                    "role": "assistant",
                    "id": "msg_1",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "So.", "annotations": []}],
                },
                {"role": "user", "content": "Go on."},
            ]
        },
        "stream": {"stream": True},
        "tool_choice:allowed_tools": {
            "tools": RESPONSES_TOOLS,
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        },
        "tools:apply_patch": {"tools": [{"type": "apply_patch"}]},
        "tools:computer": {"tools": [{"type": "computer"}]},
        "tools:custom": {
            "tools": [
                {"type": "custom", **CUSTOM_TOOL, "format": {"type": "grammar", **CUSTOM_TOOL["format"]["grammar"]}}
            ]
        },
        "tools:local_shell": {"tools": [{"type": "local_shell"}]},
        "tools:namespace": {"tools": [NAMESPACE]},
        "tools:shell": {"tools": [{"type": "shell", "environment": {"type": "local"}}]},
        "tools:tool_search": {
            "tools": [
                *RESPONSES_TOOLS,
                {
                    "type": "tool_search",
                    "execution": "client",
                    "description": "Finds tools.",
                    "parameters": FUNCTION["parameters"],
                },
            ]
        },
        "tools:web_search": {"tools": [{"type": "web_search"}]},
    },
    "messages": {
        "context_management:thinking": {
            "context_management": {
                "edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]
            },
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
        "messages:document": {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": MARK},
                        {
                            "type": "document",
                            "source": {"type": "text", "media_type": "text/plain", "data": "17"},
                            "title": "A",
                            "context": "B",
                            "citations": {"enabled": True},
                        },
                    ],
                }
            ]
        },
        "messages:search_result": {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": MARK},
                        {
                            "type": "search_result",
                            "source": "a",
                            "title": "A",
                            "content": [{"type": "text", "text": "17"}],
                            "citations": {"enabled": False},
                        },
                    ],
                }
            ]
        },
        "messages:thinking": {
            "messages": [
                {"role": "user", "content": MARK},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "So.", "signature": "EqQB"},
                        {"type": "redacted_thinking", "data": "EmwK"},
                        {"type": "text", "text": "So."},
                    ],
                },
                {"role": "user", "content": "Go on."},
            ]
        },
        "output_config:task_budget": {"output_config": {"task_budget": {"type": "tokens", "total": 64000}}},
        "stream": {"stream": True},
        "thinking:adaptive": {"thinking": {"type": "adaptive", "display": "summarized"}},
        "thinking:block_binding": {
            "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        },
        "thinking:disabled": {"thinking": {"type": "disabled"}},
        "tools:members": {
            "tools": [
                {
                    **MESSAGES_TOOLS[0],
                    "cache_control": EPHEMERAL,
                    "strict": True,
                    "eager_input_streaming": True,
                    "defer_loading": False,
                    "input_examples": [{"city": "Paris"}],
                    "allowed_callers": ["direct"],
                }
            ]
        },
        "tools:typed": {
            "tools": [
                {"type": "bash_20250124", "name": "bash"},
                {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 1000},
                {"type": "memory_20250818", "name": "memory"},
                {"type": "computer_20250124", "name": "computer", "display_width_px": 800, "display_height_px": 600},
            ]
        },
        "tools:web_search": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    },
    "count_tokens": {"thinking:adaptive": {"thinking": {"type": "adaptive"}}},
}

# The differences and their reasons: `dropped` (the provider gets the body without it), `refused` with a word of the sidecar's, or
# `asked for its usage` (the provider's body has that, and the client sees nothing of it).
LATER = "the sidecar does not know it yet, and says so in x-sluice-dropped"
OUTSIDE = "runs at the provider, or calls others from there"
IDENTITY = "the sidecar says who pays and whose call it is"
STORED = "data that other runs under the same key could read"
INTENDED = {
    ("chat", "moderation"): ("dropped", LATER),
    ("chat", "prompt_cache_options"): ("dropped", LATER),
    ("chat", "safety_identifier"): ("dropped", IDENTITY),
    ("chat", "tool_choice:allowed_tools"): ("the same 400", "LiteLLM does not know it yet"),
    ("chat", "user"): ("dropped", IDENTITY),
    ("chat", "web_search_options"): ("refused param_not_allowed", OUTSIDE),
    ("completions", "stream"): ("asked for its usage", "without it, LiteLLM bills an estimate"),
    ("completions", "user"): ("dropped", IDENTITY),
    ("embeddings", "user"): ("dropped", IDENTITY),
    ("responses", "context_management"): ("dropped", "the provider would write a summary, in a call of its own"),
    ("responses", "conversation"): ("refused param_not_allowed", STORED),
    ("responses", "metadata"): ("dropped", IDENTITY),
    ("responses", "previous_response_id"): ("refused param_not_allowed", STORED),
    ("responses", "prompt"): ("refused param_not_allowed", STORED),
    ("responses", "prompt_cache_options"): ("dropped", LATER),
    ("responses", "safety_identifier"): ("dropped", IDENTITY),
    ("responses", "tools:web_search"): ("refused tool_not_allowed", OUTSIDE),
    ("responses", "user"): ("dropped", IDENTITY),
    ("messages", "compaction"): ("dropped", "the provider would write a summary, in a call of its own"),
    ("messages", "container"): ("refused param_not_allowed", OUTSIDE),
    ("messages", "fallbacks"): ("refused param_not_allowed", "calls another model when the call fails"),
    ("messages", "inference_geo"): ("dropped", "it has a price of its own"),
    ("messages", "mcp_servers"): ("refused param_not_allowed", OUTSIDE),
    ("messages", "metadata"): ("dropped", IDENTITY),
    ("messages", "speed"): ("dropped, and LiteLLM alone answers 400", "it has a price of its own"),
    ("messages", "tools:web_search"): ("refused tool_not_allowed", OUTSIDE),
    ("messages", "workspace_id"): ("dropped, and LiteLLM alone answers 401", IDENTITY),
    ("count_tokens", "workspace_id"): ("dropped, and LiteLLM alone answers 401", IDENTITY),
}
