//! What a request body may say: one pass over its top-level members, no copy of what stays.
//!
//! Pure. The body is read in the pieces in which it came. What comes out is a [`ParsedBody`]: the facts that
//! the next steps need, and an [`BodyEdit`] that says which stretches of the original bytes go upstream.

mod content;
mod edit;
mod errors;
pub mod media;
mod members;
pub mod params;
mod parsed;
mod schema;
mod self_hosted;
pub mod shape;
pub mod thinking;
mod tools;

pub use edit::{BodyEdit, put_at};
pub use parsed::{CostFactors, OutputLimitMember, ParsedBody, RareFields, StoredId};

use crate::json::Scanner;
use crate::policy::ApiFormat;
use crate::refusal::Refusal;
use members::MemberVisitor;
use params::ServerKind;

/// What the operator allows, and what is forced.
#[derive(Debug, Clone, Default)]
pub struct BodyPolicy {
    /// The models that may be named; empty is any one plain name.
    pub models: Vec<String>,
    /// Members that pass although this build would drop or refuse them.
    pub params: Vec<String>,
    /// Tool types that pass beside those that the agent runs.
    pub tools: Vec<String>,
    /// Which server runs the models, as far as its members differ.
    pub server: ServerKind,
    /// Whether URLs that somebody else would fetch may stand in the content.
    pub remote_media: bool,
    /// The account as a JSON string, quotes included.
    pub account_json: String,
}

/// Reads one body.
#[derive(Debug)]
pub struct BodyReader<'p> {
    scanner: Scanner,
    members: MemberVisitor<'p>,
}

impl<'p> BodyReader<'p> {
    /// Before the first byte.
    #[must_use]
    pub fn new(format: ApiFormat, policy: &'p BodyPolicy) -> Self {
        Self { scanner: Scanner::new(), members: MemberVisitor::new(format, policy) }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// The refusal, as soon as it is certain; it names the model.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        self.scanner.feed(piece, &mut self.members).map_err(|refusal| refusal.for_model(self.model()))
    }

    /// The model asked for, if it has been read.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.members.parsed.model.as_deref()
    }

    /// The body is complete.
    ///
    /// # Errors
    /// A refusal that only the whole body shows; it names the model.
    pub fn finish(mut self) -> Result<ParsedBody, Refusal> {
        self.scanner.finish(&mut self.members).map_err(|refusal| refusal.for_model(self.model()))?;
        self.members.finish()
    }
}

#[cfg(test)]
mod tests;
