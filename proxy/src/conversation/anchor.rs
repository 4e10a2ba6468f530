//! The anchor of a message: the item of a conversation that the message follows.
//!
//! Pure.

use sluice_contract::Hash;
use sluice_contract::control::Anchor;

/// Maximum length of the id of a tool call that is kept.
pub(super) const TOOL_ID_MAX: usize = 256;

/// An anchor, with its hashes as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedAnchor {
    /// Hash over all items up to this one.
    pub chain: Hash,
    /// Hash of the item alone.
    pub item: Hash,
    /// Id of the tool call that the item answers.
    pub tool: Option<Box<str>>,
    /// Hash of the stored object that the request continued.
    pub continues: Option<Hash>,
}

impl PlacedAnchor {
    /// Reads an anchor that an earlier sidecar reported; `None` if a hash is not valid, or the id of the tool call is
    /// too long.
    #[must_use]
    pub fn parse(anchor: &Anchor) -> Option<Self> {
        let tool = anchor.tool.as_deref();
        if tool.is_some_and(|tool| tool.len() > TOOL_ID_MAX) {
            return None;
        }
        let continues = anchor.continues.as_deref().map(str::parse).transpose().ok()?;
        Some(Self {
            chain: anchor.chain.parse().ok()?,
            item: anchor.item.parse().ok()?,
            tool: tool.map(Into::into),
            continues,
        })
    }

    /// Returns the anchor as it is reported.
    #[must_use]
    pub fn report(&self) -> Anchor {
        Anchor {
            chain: self.chain.to_hex(),
            item: self.item.to_hex(),
            tool: self.tool.as_deref().map(str::to_owned),
            continues: self.continues.map(Hash::to_hex),
        }
    }
}
