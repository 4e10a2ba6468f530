//! The `anthropic-beta` values that may be sent upstream.
//!
//! Pure.

/// `anthropic-beta` values that the Anthropic SDK and Claude Code send, and that open no way out: they change the
/// form of a request or of its response. From `@anthropic-ai/sdk` 1.12.0 and Claude Code 2.1.330. Codex sends none.
///
/// Values are left out if they make the provider run something (`code-execution`, `web-search`, `mcp-client`,
/// `skills`, `advisor-tool`), read what it stores (`files-api`, `agent-memory`, `compact`, `thinking-resumption`),
/// use another model or price (`server-side-fallback`, `fast-mode`), or take tools where the body policy does not
/// look for them (`inline-tools`, `mid-conversation-tool-changes`).
pub const DEFAULT_BETAS: &[&str] = &[
    "advanced-tool-use-2025-11-20",
    "claude-code-20250219",
    "computer-use-2024-10-22",
    "computer-use-2025-01-24",
    "computer-use-2025-11-24",
    "context-1m-2025-08-07",
    "context-management-2025-06-27",
    "effort-2025-11-24",
    "extended-cache-ttl-2025-04-11",
    "fine-grained-tool-streaming-2025-05-14",
    "interleaved-thinking-2025-05-14",
    "max-tokens-3-5-sonnet-2024-07-15",
    "mid-conversation-system-2026-04-07",
    "mid-conversation-system-clear-at-2026-08-21",
    "model-context-window-exceeded-2025-08-26",
    "output-128k-2025-02-19",
    "pdfs-2024-09-25",
    "prompt-caching-2024-07-31",
    "prompt-caching-scope-2026-01-05",
    "redact-thinking-2026-02-12",
    "structured-outputs-2025-11-13",
    "structured-outputs-2025-12-15",
    "task-budgets-2026-03-13",
    "thinking-binding-controls-2026-08-01",
    "thinking-display-updates-2026-08-18",
    "thinking-token-count-2026-05-13",
    "token-counting-2024-11-01",
    "token-efficient-tools-2025-02-19",
    "tool-examples-2025-10-29",
];

/// Returns true for the form of Anthropic's beta values: a name and a date. Only such a value is written to the log.
pub(super) fn is_beta(value: &str) -> bool {
    let name = value.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    let date = value[name.len()..].bytes().filter(u8::is_ascii_digit).count();
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    value.len() <= 64 && !name.is_empty() && date >= 8 && value.bytes().all(plain)
}
