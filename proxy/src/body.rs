//! The policy of request bodies: one pass over the top-level members, and no copy of what stays.
//!
//! Pure. The body is read in the pieces in which it came. The result is a [`ParsedBody`]: the facts that the next
//! steps need, and a [`BodyEdit`] with the ranges of the original bytes that go upstream.

mod address;
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
mod tool_check;
mod tools;

pub use edit::{BodyEdit, put_at};
pub use parsed::{CostFactors, OutputLimitMember, ParsedBody, RareFields, StoredId};

use crate::json::Scanner;
use crate::policy::ApiFormat;
use crate::refusal::Refusal;
use members::MemberVisitor;
use params::ServerKind;

/// Settings of the operator, and the members that are forced.
#[derive(Debug, Clone, Default)]
pub struct BodyPolicy {
    /// Models that may be named; if empty, any single plain name may be.
    pub models: Vec<String>,
    /// Members that pass although this build would drop or refuse them.
    pub params: Vec<String>,
    /// Tool types that pass beside those that the agent runs.
    pub tools: Vec<String>,
    /// Kind of the server that runs the models, as far as its members differ.
    pub server: ServerKind,
    /// True if the content may hold URLs that the provider or the gateway would fetch.
    pub remote_media: bool,
    /// The account as a JSON string, quotes included.
    pub account_json: String,
}

/// Reader of one body.
#[derive(Debug)]
pub struct BodyReader<'p> {
    scanner: Scanner,
    members: MemberVisitor<'p>,
}

impl<'p> BodyReader<'p> {
    /// Creates a reader before the first byte.
    #[must_use]
    pub fn new(format: ApiFormat, policy: &'p BodyPolicy) -> Self {
        Self { scanner: Scanner::new(), members: MemberVisitor::new(format, policy) }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// The refusal, as soon as it is certain. The refusal names the model.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        self.scanner.feed(piece, &mut self.members).map_err(|refusal| refusal.for_model(self.model()))
    }

    /// Returns the model asked for, if it has been read.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.members.parsed.model.as_deref()
    }

    /// Ends the body.
    ///
    /// # Errors
    /// A refusal that depends on the whole body. The refusal names the model.
    pub fn finish(mut self) -> Result<ParsedBody, Refusal> {
        self.scanner.finish(&mut self.members).map_err(|refusal| refusal.for_model(self.model()))?;
        self.members.finish()
    }
}

#[cfg(test)]
mod tests;
