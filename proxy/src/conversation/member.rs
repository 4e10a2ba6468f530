//! The members of a body that a conversation depends on, and the names in them that are not hashed.
//!
//! Pure.

use crate::policy::ApiFormat;

/// Member at the top of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    Other,
    Items,
    System,
    Tools,
    /// Form of the answer, as in `response_format`: its type is at this depth.
    Form(usize),
    Continues,
}

/// Names at the top of an item whose values change while the item stays the same.
const CHANGING: [&[u8]; 6] =
    [b"id", b"status", b"reasoning", b"reasoning_content", b"reasoning_details", b"thinking_blocks"];

impl Member {
    /// Returns the member of this name.
    pub(super) fn of(format: ApiFormat, name: &[u8]) -> Self {
        match (format, name) {
            (ApiFormat::Chat | ApiFormat::Messages, b"messages")
            | (ApiFormat::Responses | ApiFormat::Compact, b"input") => Self::Items,
            (ApiFormat::Messages, b"system") | (ApiFormat::Responses | ApiFormat::Compact, b"instructions") => {
                Self::System
            }
            (_, b"tools" | b"functions") => Self::Tools,
            (ApiFormat::Chat, b"response_format") => Self::Form(2),
            (ApiFormat::Messages, b"output_format") => Self::Form(1),
            (ApiFormat::Messages, b"output_config") => Self::Form(2),
            (ApiFormat::Responses, b"text") => Self::Form(3),
            (ApiFormat::Responses | ApiFormat::Compact, b"previous_response_id" | b"conversation") => Self::Continues,
            _ => Self::Other,
        }
    }

    /// Returns true if the value of a name within the member is not hashed.
    pub(super) fn skips(self, depth: usize, name: &[u8]) -> bool {
        match self {
            Self::System => name == b"cache_control",
            Self::Items => {
                let is_top = depth == 3 && CHANGING.contains(&name);
                name == b"cache_control" || is_top || depth == 5 && matches!(name, b"id" | b"status" | b"signature")
            }
            _ => false,
        }
    }
}
