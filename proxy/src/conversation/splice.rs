//! The bytes that a message adds to a body, and their places. The bytes of the agent stay as they are.
//!
//! Pure.

use crate::policy::ApiFormat;

/// Place of messages in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Before the end of a list of content blocks.
    Block {
        /// Offset of the closing bracket.
        at: u64,
        /// True if the list is empty.
        is_first: bool,
    },
    /// After a content that is one string, which becomes the first block of a list.
    Wrap {
        /// Offset of the opening quote.
        from: u64,
        /// Offset after the closing quote.
        to: u64,
    },
    /// After an item of the conversation.
    Item {
        /// Offset after the item.
        at: u64,
    },
    /// After a conversation that is one string, which becomes the first item of a list.
    Input {
        /// Offset of the opening quote.
        from: u64,
        /// Offset after the closing quote.
        to: u64,
    },
}

/// Returns the bytes to add to a body, each with its offset in it.
#[must_use]
pub fn splices(format: ApiFormat, place: Place, texts: &[&str]) -> Vec<(u64, String)> {
    let parts = |before: &str, after: &str| -> String {
        texts.iter().map(|text| format!(",{before}{}{after}", json(text))).collect()
    };
    let blocks = || parts(r#"{"type":"text","text":"#, "}");
    let items = || match format {
        ApiFormat::Chat => parts(r#"{"role":"user","content":"#, "}"),
        _ => parts(r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"#, "}]}"),
    };
    match place {
        Place::Block { at, is_first } => vec![(at, blocks().split_off(usize::from(is_first)))],
        Place::Wrap { from, to } => {
            vec![(from, r#"[{"type":"text","text":"#.to_owned()), (to, format!("}}{}]", blocks()))]
        }
        Place::Item { at } => vec![(at, items())],
        Place::Input { from, to } => {
            vec![(from, r#"[{"role":"user","content":"#.to_owned()), (to, format!("}}{}]", items()))]
        }
    }
}

fn json(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}
