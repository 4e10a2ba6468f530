//! One item of a conversation, while it is read: its kind, its hash, and the place after it.
//!
//! Pure. The hash leaves out what changes while an item stays the same: marks of caches, thinking, ids and status. A
//! content that is one string is the same as one block of text.

use sluice_contract::{Hash, Hasher};

use super::splice::Place;
use crate::json::StrPrefix;
use crate::policy::ApiFormat;

/// Author of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Role {
    #[default]
    None,
    User,
    System,
    Tool,
    Other,
}

/// Kind of an item, as far as it matters for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// A message of the user.
    User,
    /// The result of a tool.
    ToolResult,
    /// A message of the system, or thinking of the model: not a part of the conversation's chain.
    Ignored,
    /// Anything else, such as a message of the model.
    Other,
}

/// Member of an item, or of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Field {
    #[default]
    Other,
    Role,
    Type,
    Content,
    Text,
    ToolId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum BlockKind {
    #[default]
    Other,
    Text,
    Thinking,
    ToolResult,
    ServerCall,
    ServerResult,
}

/// Type of an item of the Responses API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ItemType {
    #[default]
    Message,
    Output,
    Reasoning,
    /// Tools, which Codex gives in an item.
    Tools,
    Other,
}

/// A block of a content, while it is read.
#[derive(Debug, Default)]
struct Block {
    hasher: Hasher,
    kind: BlockKind,
    text: Option<Hash>,
    /// True if it has a member besides its type and its text.
    has_more: bool,
}

/// An item, while it is read.
#[derive(Debug, Default)]
pub(super) struct ItemReader {
    hasher: Hasher,
    block: Option<Block>,
    /// Number of values in a content that is a list, blocks or not.
    parts: u64,
    role: Role,
    kind: ItemType,
    pub(super) field: Field,
    pub(super) in_content: bool,
    has_result: bool,
    /// Number of calls that the provider runs and has not answered.
    open_calls: u64,
    /// Place at the end of the content, for the format that has blocks.
    pub(super) place: Option<Place>,
    /// Id of the last tool call that the item names.
    pub(super) tool: Option<Box<str>>,
    /// Indices of the anchors that name one of its tool calls.
    pub(super) tool_hits: Vec<usize>,
}

/// Adds a token and its end to a hash.
pub(super) fn token(hasher: &mut Hasher, bytes: &[u8]) {
    hasher.update(bytes);
    hasher.update(&[0]);
}

impl ItemReader {
    /// Returns the item of a conversation that is one string: a message of the user with this text.
    pub(super) fn user(text: Hash) -> Self {
        let mut item = Self { role: Role::User, ..Self::default() };
        token(&mut item.hasher, b"content");
        item.string_content(text);
        item
    }

    /// Returns the hash that the next tokens go to.
    pub(super) fn hasher(&mut self) -> &mut Hasher {
        match &mut self.block {
            Some(block) => &mut block.hasher,
            None => &mut self.hasher,
        }
    }

    /// Takes the name of a member of the item.
    pub(super) fn key(&mut self, key: StrPrefix<'_>) {
        self.field = match key.head {
            // The role is added to the hash at the end, so that its place in the item does not matter.
            b"role" => return self.field = Field::Role,
            // The value of the type decides whether it is hashed.
            b"type" => return self.field = Field::Type,
            b"content" => {
                // Parsers keep the last of two.
                (self.place, self.parts) = (None, 0);
                Field::Content
            }
            b"tool_call_id" | b"call_id" => Field::ToolId,
            _ => Field::Other,
        };
        token(&mut self.hasher, key.head);
    }

    /// Takes the name of a member of a block.
    pub(super) fn block_key(&mut self, key: StrPrefix<'_>) {
        self.field = match key.head {
            b"type" => Field::Type,
            b"text" => Field::Text,
            b"tool_use_id" => Field::ToolId,
            _ => Field::Other,
        };
        if let Some(block) = &mut self.block {
            block.has_more |= !matches!(self.field, Field::Type | Field::Text);
            token(&mut block.hasher, key.head);
        }
    }

    pub(super) fn role(&mut self, role: StrPrefix<'_>) {
        self.role = match role.head {
            b"user" => Role::User,
            b"system" | b"developer" => Role::System,
            b"tool" | b"function" => Role::Tool,
            _ => Role::Other,
        };
    }

    /// Takes the type of the item. A message may leave it out.
    pub(super) fn item_type(&mut self, kind: StrPrefix<'_>) {
        self.kind = match kind.head {
            b"message" => ItemType::Message,
            b"reasoning" => ItemType::Reasoning,
            b"additional_tools" => ItemType::Tools,
            head if head.ends_with(b"_output") => ItemType::Output,
            _ => ItemType::Other,
        };
        if self.kind != ItemType::Message {
            token(&mut self.hasher, b"type");
            token(&mut self.hasher, kind.head);
        }
    }

    /// Takes the type of the open block.
    pub(super) fn block_type(&mut self, kind: StrPrefix<'_>) {
        let Some(block) = &mut self.block else { return };
        block.kind = match kind.head {
            b"text" | b"input_text" | b"output_text" => BlockKind::Text,
            b"thinking" | b"redacted_thinking" => BlockKind::Thinking,
            b"tool_result" => BlockKind::ToolResult,
            b"server_tool_use" | b"mcp_tool_use" => BlockKind::ServerCall,
            head if head.ends_with(b"_tool_result") => BlockKind::ServerResult,
            _ => BlockKind::Other,
        };
        token(&mut block.hasher, kind.head);
    }

    pub(super) fn block_text(&mut self, text: Hash) {
        if let Some(block) = &mut self.block {
            block.text = Some(text);
            block.hasher.update(text.as_bytes());
        }
    }

    /// Takes a content that is one string.
    pub(super) fn string_content(&mut self, text: Hash) {
        token(&mut self.hasher, b"[");
        self.end_text(text);
        token(&mut self.hasher, b"]");
    }

    /// Counts a value in a content that is a list.
    pub(super) fn count_part(&mut self) {
        self.parts += 1;
    }

    pub(super) fn open_block(&mut self) {
        self.block = Some(Block::default());
    }

    /// Returns true while a block is read.
    pub(super) fn is_in_block(&self) -> bool {
        self.block.is_some()
    }

    pub(super) fn close_block(&mut self) {
        let Some(mut block) = self.block.take() else { return };
        match block.kind {
            BlockKind::Thinking => return,
            BlockKind::ToolResult => self.has_result = true,
            BlockKind::ServerCall => self.open_calls += 1,
            BlockKind::ServerResult => self.open_calls = self.open_calls.saturating_sub(1),
            BlockKind::Text | BlockKind::Other => {}
        }
        match block.text.filter(|_| block.kind == BlockKind::Text && !block.has_more) {
            Some(text) => self.end_text(text),
            None => {
                let hash = block.hasher.finish();
                self.hasher.update(b"block");
                self.hasher.update(hash.as_bytes());
            }
        }
    }

    /// Notes the end of a content that is a list, whose closing bracket is at this offset.
    pub(super) fn close_content(&mut self, at: u64) {
        self.in_content = false;
        self.place = Some(Place::Block { at, is_first: self.parts == 0 });
    }

    fn end_text(&mut self, text: Hash) {
        self.hasher.update(b"text");
        self.hasher.update(text.as_bytes());
    }

    /// Returns the kind of the item, once it is read.
    pub(super) fn kind(&self, format: ApiFormat) -> ItemKind {
        match (format, self.role, self.kind) {
            (ApiFormat::Responses | ApiFormat::Compact, _, ItemType::Output) => ItemKind::ToolResult,
            (ApiFormat::Responses | ApiFormat::Compact, _, ItemType::Reasoning | ItemType::Tools) => ItemKind::Ignored,
            (ApiFormat::Responses | ApiFormat::Compact, _, ItemType::Other) => ItemKind::Other,
            (_, Role::System, _) => ItemKind::Ignored,
            (_, Role::User, _) if self.has_result => ItemKind::ToolResult,
            (_, Role::User, _) => ItemKind::User,
            (ApiFormat::Chat, Role::Tool, _) => ItemKind::ToolResult,
            (_, Role::None | Role::Tool | Role::Other, _) => ItemKind::Other,
        }
    }

    /// Returns true if the item gives the model tools.
    pub(super) fn gives_tools(&self) -> bool {
        self.kind == ItemType::Tools
    }

    /// Returns true if the provider runs a tool for the model, and has not answered it.
    pub(super) fn has_open_call(&self) -> bool {
        self.open_calls > 0
    }

    /// Returns the hash of the whole item.
    pub(super) fn finish(&mut self) -> Hash {
        self.hasher.update(&[self.role as u8]);
        self.hasher.finish()
    }
}
