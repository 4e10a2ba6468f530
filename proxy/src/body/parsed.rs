//! The result of reading a body: the facts that the next steps need, and the edit of the outgoing body.
//!
//! Pure.

use std::borrow::Cow;

use super::edit::{BodyEdit, put_at};
use super::media::MediaList;
use super::thinking::Thinking;
use crate::policy::ApiFormat;

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedBody {
    /// The one model asked for.
    pub model: Option<String>,
    /// Whether the answer is to be a stream.
    pub stream: bool,
    /// We asked for the usage in the stream, the client did not: it must not see it.
    pub hide_usage: bool,
    /// The client's bound on output tokens; 0 is none.
    pub max_output: Option<u64>,
    /// Where the members stand that say so.
    pub bounds: Vec<OutputLimitMember>,
    /// One of them is called `max_completion_tokens`.
    pub completion_tokens: bool,
    /// How many answers, at least 1.
    pub choices: u64,
    /// Images, documents and audio in the content.
    pub media: MediaList,
    /// What makes tokens dearer, or adds some that are not in the body.
    pub cost_factors: CostFactors,
    /// What few bodies have.
    pub rare: Option<Box<RareFields>>,
    /// Names of members that were removed or overwritten.
    pub stripped: Vec<Cow<'static, str>>,
    /// Names of those that would have changed the answer, for the caller.
    pub dropped: Option<Box<str>>,
    /// What goes upstream.
    pub edit: BodyEdit,
}

/// What a body asks for beside its text, as far as it costs tokens or raises their price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostFactors {
    /// Tools, or a schema for the answer: providers add instructions of their own.
    pub instructions: bool,
    /// Tools that a provider knows by their type, and describes to the model in words of its own.
    pub typed_tools: u64,
    /// Bytes by which schemas grow where the gateway writes their references out, and by which numbers in them and in
    /// arguments of tools grow where it writes those anew.
    pub expanded_bytes: u64,
    /// Bytes of arguments of tools, which the gateway writes anew for a model with another API.
    pub rewritten_bytes: u64,
    /// Bytes of a predicted answer: what of it does not come true is billed as output.
    pub prediction_bytes: u64,
    /// Parts of the prompt are to be cached for longer than usual.
    pub long_cache: bool,
    /// The answer may be spoken.
    pub audio_output: bool,
    /// A tier of service is named that is not the usual one.
    pub service_tier: bool,
}

/// What few bodies have, in an allocation of its own: what every call holds stays small.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RareFields {
    /// How much the model may think.
    pub thinking: Thinking,
    /// Objects that the provider stores and that the call goes on from.
    pub stored: Vec<StoredId>,
    /// Their tokens, which the provider adds to the prompt. They are what an earlier call had, and no bound: LiteLLM may
    /// add other calls of its session.
    pub stored_tokens: Option<u64>,
    /// What goes upstream in the place of values that are cut out, by where each begins.
    pub put: Vec<(u64, String)>,
}

/// The id of an object that the provider stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredId {
    /// The member that names it.
    pub member: String,
    /// As the client wrote it, decoded.
    pub id: String,
}

/// A member that bounds the output, and its neighbours, so that it can be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimitMember {
    /// Offsets from and to.
    pub range: (u64, u64),
    /// Where the member before it ends, if that one is kept.
    pub after: Option<u64>,
    /// Where the member behind it begins, if there is one.
    pub before: Option<u64>,
}

impl ParsedBody {
    /// What goes upstream behind a range that ends here.
    #[must_use]
    pub fn put_at(&self, end: u64) -> Option<&str> {
        put_at(&self.rare.as_ref()?.put, end)
    }

    /// Fits how much the model may think to a bound that [`Self::bound_output`] has set: the provider refuses a budget
    /// that leaves no room for an answer. The members that were changed are named as those that were dropped.
    pub fn fit_thinking(&mut self, bound: u64, is_claude: bool) {
        let Some(rare) = &mut self.rare else { return };
        let RareFields { thinking, put, .. } = &mut **rare;
        for name in thinking.fit(bound, is_claude, &mut self.edit, put).into_iter().flatten() {
            self.stripped.push(name.into());
            let dropped = self.dropped.take().map_or_else(|| name.to_owned(), |names| format!("{names}, {name}"));
            self.dropped = Some(dropped.into());
        }
    }

    /// Puts this bound in the place of the client's, under the name that the client or the route has for it.
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
