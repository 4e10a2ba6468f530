//! The result of reading a body: the facts that the next steps need, and the edit of the outgoing body.
//!
//! Pure.

use std::borrow::Cow;

use super::edit::{BodyEdit, put_at};
use super::media::MediaList;
use super::thinking::Thinking;
use crate::conversation::CallInjection;
use crate::policy::ApiFormat;

/// Facts of one body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedBody {
    /// The one model asked for.
    pub model: Option<String>,
    /// True if the client asked for a stream.
    pub stream: bool,
    /// True if the sidecar asked for the usage in the stream and the client did not: the client must not see it.
    pub hide_usage: bool,
    /// Bound of the client on output tokens; 0 means none.
    pub max_output: Option<u64>,
    /// Positions of the members that set this bound.
    pub bounds: Vec<OutputLimitMember>,
    /// True if one of them is called `max_completion_tokens`.
    pub completion_tokens: bool,
    /// Number of responses, at least 1.
    pub choices: u64,
    /// Images, documents and audio in the content.
    pub media: MediaList,
    /// Facts that make tokens dearer, or add tokens that are not in the body.
    pub cost_factors: CostFactors,
    /// Facts that few bodies have.
    pub rare: Option<Box<RareFields>>,
    /// Names of members that were removed or overwritten.
    pub stripped: Vec<Cow<'static, str>>,
    /// Names of those that would have changed the response, for the client.
    pub dropped: Option<Box<str>>,
    /// Offset after the conversation: the end of `messages` or `input`, and 0 without them.
    pub content_end: u64,
    /// The outgoing body.
    pub edit: BodyEdit,
}

/// Facts of a body that add tokens to its text, or raise the price of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostFactors {
    /// True if the body has tools, or a schema for the response: providers add instructions of their own.
    pub instructions: bool,
    /// Number of tools that a provider knows by their type, and describes to the model in its own words.
    pub typed_tools: u64,
    /// Bytes by which schemas grow if the gateway writes their references out, and by which numbers in them and in
    /// arguments of tools grow if it writes them anew.
    pub expanded_bytes: u64,
    /// Bytes of arguments of tools, which the gateway writes anew for a model with another API.
    pub rewritten_bytes: u64,
    /// Bytes of a predicted response: the part that the response does not contain is billed as output.
    pub prediction_bytes: u64,
    /// True if parts of the prompt are to be cached for longer than usual.
    pub long_cache: bool,
    /// True if the response may be spoken.
    pub audio_output: bool,
    /// True if a tier of service other than the usual one is named.
    pub service_tier: bool,
}

/// Facts that few bodies have, in an allocation of their own, so that a call without them stays small.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RareFields {
    /// Settings of the model's thinking.
    pub thinking: Thinking,
    /// Stored objects that the call continues from.
    pub stored: Vec<StoredId>,
    /// Tokens of these objects, counted in an earlier call; the provider adds them to the prompt. They are not a bound,
    /// since LiteLLM may add other calls of the same session.
    pub stored_tokens: Option<u64>,
    /// Texts that replace values that are cut out, by the offset of each value.
    pub put: Vec<(u64, String)>,
    /// Messages of the operator that were added to the body.
    pub injection: Option<CallInjection>,
}

/// The id of an object that the provider stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredId {
    /// Member that names the object.
    pub member: String,
    /// The id as the client wrote it, decoded.
    pub id: String,
}

/// A member that bounds the output, with its neighbours, so that it can be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimitMember {
    /// Range of the member, from and to.
    pub range: (u64, u64),
    /// End of the member before it, if that one is kept.
    pub after: Option<u64>,
    /// Start of the member after it, if there is one.
    pub before: Option<u64>,
}

impl ParsedBody {
    /// Returns the text that goes upstream after a range that ends here.
    #[must_use]
    pub fn put_at(&self, end: u64) -> Option<&str> {
        put_at(&self.rare.as_ref()?.put, end)
    }

    /// Returns the messages of the operator that were added to the body.
    #[must_use]
    pub fn injection(&self) -> Option<&CallInjection> {
        self.rare.as_ref()?.injection.as_ref()
    }

    /// Fits the thinking budget to a bound that [`Self::bound_output`] has set: the provider refuses a budget that
    /// leaves no tokens for a response. Changed members are named like dropped ones.
    pub fn fit_thinking(&mut self, bound: u64, is_claude: bool) {
        let Some(rare) = &mut self.rare else { return };
        let RareFields { thinking, put, .. } = &mut **rare;
        for name in thinking.fit(bound, is_claude, &mut self.edit, put).into_iter().flatten() {
            self.stripped.push(name.into());
            let dropped = self.dropped.take().map_or_else(|| name.to_owned(), |names| format!("{names}, {name}"));
            self.dropped = Some(dropped.into());
        }
    }

    /// Replaces the client's bound with this one, under the name that the client or the route uses.
    pub fn bound_output(&mut self, format: ApiFormat, bound: u64) {
        let name = match format {
            ApiFormat::Chat if self.completion_tokens => "max_completion_tokens",
            ApiFormat::Responses => "max_output_tokens",
            _ => "max_tokens",
        };
        for at in std::mem::take(&mut self.bounds) {
            let Some(i) = self.edit.keep.iter().position(|(from, to)| *from <= at.range.0 && at.range.1 <= *to) else {
                continue;
            };
            let (from, to) = self.edit.keep[i];
            let before = at.after.filter(|after| from < *after).map(|after| (from, after));
            let behind = at.before.filter(|before| *before < to).map(|before| (before, to));
            self.edit.keep.splice(i..=i, before.into_iter().chain(behind));
        }
        self.edit.prefix.push_str(&format!(",\"{name}\":{bound}"));
        self.max_output = Some(bound);
    }
}
