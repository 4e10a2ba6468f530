//! What a request body may say: one pass over its top-level members, no copy of what stays.
//!
//! Pure. The body is read in the pieces in which it came. What comes out is a [`ParsedBody`]: the facts that
//! the next steps need, and an [`BodyEdit`] that says which stretches of the original bytes go upstream.

mod content;
pub mod media;
pub mod params;
mod schema;
mod self_hosted;
pub mod shape;
pub mod thinking;
mod tools;

use std::borrow::Cow;

use crate::json::{JsonContainer, JsonError, JsonScalar, JsonVisitor, Scanner, StrPrefix};
use crate::policy::ApiFormat;
use crate::refusal::{Reason, Refusal, clip};
use crate::stripped;
use content::ContentVisitor;
use media::MediaList;
use params::{MemberRule, ServerKind};
use shape::{NestedVisitor, ValuePosition};
use thinking::Thinking;

/// Answers per call, `n` and `best_of`: each is billed.
const MAX_CHOICES: u64 = 8;

/// Members that name objects which the provider stores.
const STORED: [&str; 2] = ["previous_response_id", "conversation"];

/// Members of one body; the public APIs have fewer than fifty.
const MAX_MEMBERS: usize = 128;

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

/// `prefix`, then the ranges of the original text, each after a comma, then `}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyEdit {
    /// `{` and our own members.
    pub prefix: String,
    /// Offsets from and to, of whole members.
    pub keep: Vec<(u64, u64)>,
    /// Ranges inside of those that do not go upstream, in their order.
    pub cut: Vec<(u64, u64)>,
}

impl BodyEdit {
    /// The ranges that go upstream, in their order, without what is cut out of them. The flag says whether a range begins
    /// with a member of its own, and so follows a comma.
    pub fn ranges(&self) -> impl Iterator<Item = (bool, u64, u64)> {
        self.keep.iter().flat_map(move |&(from, to)| {
            let first = self.cut.partition_point(|cut| cut.1 <= from);
            let inner = self.cut[first..].iter().take_while(move |cut| cut.0 < to);
            let ends = inner.clone().map(|cut| cut.0).chain([to]);
            let starts = [from].into_iter().chain(inner.map(|cut| cut.1));
            starts.zip(ends).enumerate().map(|(i, (from, to))| (i == 0, from, to))
        })
    }
}

impl BodyEdit {
    /// Takes a whole value out, for another to be put in its place.
    fn cut_value(&mut self, range: (u64, u64)) {
        self.cut.retain(|cut| cut.1 <= range.0 || range.1 <= cut.0);
        let place = self.cut.partition_point(|cut| cut.1 <= range.0);
        self.cut.insert(place, range);
    }
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

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::new(Reason::InvalidJson, format!("the body must be one JSON object: {error}"))
    }
}

/// The member at hand; its name is the last that was seen.
#[derive(Debug, Clone, Copy)]
struct CurrentMember {
    rule: MemberRule,
    start: u64,
}

#[derive(Debug)]
struct MemberVisitor<'p> {
    format: ApiFormat,
    policy: &'p BodyPolicy,
    /// All names so far, and where each ends.
    names: String,
    ends: Vec<usize>,
    member: Option<CurrentMember>,
    /// The last member was kept, so the next one extends its stretch.
    run_open: bool,
    stream_options: Option<(u64, u64)>,
    asks_usage: bool,
    in_include_usage: bool,
    /// Texts in a `prompt` of several.
    prompts: u64,
    content: ContentVisitor,
    /// What may stand inside the member at hand.
    inside: NestedVisitor,
    /// The depth of the mark for a prompt cache at hand.
    cache: Option<usize>,
    in_ttl: bool,
    /// Names of members that were dropped with a value.
    dropped: Vec<Cow<'static, str>>,
    parsed: ParsedBody,
}

impl<'p> MemberVisitor<'p> {
    fn new(format: ApiFormat, policy: &'p BodyPolicy) -> Self {
        Self {
            format,
            policy,
            names: String::with_capacity(256),
            ends: Vec::with_capacity(16),
            member: None,
            run_open: false,
            stream_options: None,
            asks_usage: false,
            in_include_usage: false,
            prompts: 0,
            content: ContentVisitor::new(format, policy.remote_media),
            inside: NestedVisitor::default(),
            cache: None,
            in_ttl: false,
            dropped: Vec::new(),
            parsed: ParsedBody { choices: 1, ..ParsedBody::default() },
        }
    }

    fn begin(&mut self, key: StrPrefix<'_>, start: u64) -> Result<(), Refusal> {
        let name = key.as_str();
        if key.whole && self.seen().any(|seen| seen == name) {
            let twice = Refusal::new(Reason::DuplicateMember, "a member stands twice in the body; send it once");
            return Err(twice.param(name));
        }
        if self.ends.len() == MAX_MEMBERS {
            return Err(Refusal::new(Reason::InvalidParam, format!("the body has more than {MAX_MEMBERS} members")));
        }
        self.names.push_str(name);
        self.ends.push(self.names.len());
        if let Some(last) = self.parsed.bounds.last_mut() {
            last.before.get_or_insert(start);
        }
        let rule = match params::rule(self.format, self.policy.server, name) {
            Some(MemberRule::Never) => return Err(not_allowed(name)),
            // A clipped name is nobody's.
            _ if !key.whole => MemberRule::Strip,
            Some(MemberRule::Refuse | MemberRule::NotTrue | MemberRule::Drop) | None if self.is_opened(name) => {
                MemberRule::Keep
            }
            Some(MemberRule::Drop) | None => MemberRule::Strip,
            Some(MemberRule::Nested(_)) if STORED.contains(&name) && self.is_opened(name) => {
                // The operator lets any id through: what it stands for is not known.
                self.inside.rare().stored_tokens = Some(0);
                MemberRule::Keep
            }
            Some(rule) => rule,
        };
        self.member = Some(CurrentMember { rule, start });
        self.note(rule, name);
        match rule {
            MemberRule::Content => {
                let at = ValuePosition { format: self.format, depth: 1, member: name, opened: &self.policy.params };
                self.content.key(at, key, start, &mut self.inside)
            }
            MemberRule::Nested(shape) => {
                self.inside.begin(shape);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn is_opened(&self, name: &str) -> bool {
        self.policy.params.iter().any(|allowed| allowed == name)
    }

    /// What the member's name alone says of the price.
    fn note(&mut self, rule: MemberRule, name: &str) {
        let cost_factors = &mut self.parsed.cost_factors;
        self.cache = (name == "cache_control").then_some(1);
        match name {
            _ if matches!(rule, MemberRule::Strip) => {}
            "tools" | "functions" | "response_format" | "text" | "output_format" | "output_config" => {
                cost_factors.instructions = true;
            }
            "audio" | "modalities" => cost_factors.audio_output = true,
            "service_tier" => cost_factors.service_tier = true,
            _ => {}
        }
    }

    /// The names so far.
    fn seen(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.names[*start..*end])
    }

    /// The name of the member at hand.
    fn name(&self) -> &str {
        last(&self.names, &self.ends)
    }

    /// A member's value is a scalar, and this is all of it.
    fn scalar_member(&mut self, value: JsonScalar<'_>, start: u64, end: u64) -> Result<(), Refusal> {
        let Some(member) = self.member.take() else {
            return Ok(());
        };
        match (member.rule, value) {
            (MemberRule::Refuse, JsonScalar::Null) => return self.strip(),
            (MemberRule::Refuse, _) | (MemberRule::NotTrue, JsonScalar::Bool(true)) => {
                return Err(not_allowed(self.name()));
            }
            (MemberRule::Model, JsonScalar::String(name)) => self.parsed.model = Some(self.model(name)?),
            (MemberRule::Model, _) => return Err(invalid(self.name(), "name one model, as a string")),
            (MemberRule::Stream, JsonScalar::Bool(stream)) => self.parsed.stream = stream,
            (MemberRule::Stream, JsonScalar::Null)
            | (MemberRule::NotTrue, JsonScalar::Bool(false) | JsonScalar::Null) => {}
            (MemberRule::Stream | MemberRule::NotTrue, _) => return Err(invalid(self.name(), "want true or false")),
            (MemberRule::MaxOutput, JsonScalar::Number(number)) => {
                let max = whole(number).ok_or_else(|| invalid(self.name(), "want a whole number of tokens"))?;
                self.bound(max, member.start, end);
            }
            (MemberRule::Choices, JsonScalar::Number(number)) => {
                let choices = whole(number).ok_or_else(|| invalid(self.name(), "want a whole number"))?;
                if choices > MAX_CHOICES {
                    return Err(not_allowed(self.name()).because(format!("at most {MAX_CHOICES} answers a call")));
                }
                self.parsed.choices = self.parsed.choices.max(choices);
            }
            // LiteLLM and the provider take null for absence.
            (MemberRule::MaxOutput, JsonScalar::Null) => return self.strip(),
            (MemberRule::StreamOptions | MemberRule::Choices, JsonScalar::Null) => {}
            (MemberRule::StreamOptions, _) => return Err(invalid(self.name(), "want an object")),
            (MemberRule::Nested(_), JsonScalar::Null) if STORED.contains(&self.name()) => return self.strip(),
            (MemberRule::Nested(_), value) => {
                let at = ValuePosition {
                    format: self.format,
                    depth: 1,
                    member: last(&self.names, &self.ends),
                    opened: &self.policy.params,
                };
                self.inside.scalar(at, value, start, end)?;
            }
            (MemberRule::MaxOutput | MemberRule::Choices, _) => return Err(invalid(self.name(), "want a number")),
            (MemberRule::Content, value) => {
                let at = ValuePosition {
                    format: self.format,
                    depth: 1,
                    member: last(&self.names, &self.ends),
                    opened: &self.policy.params,
                };
                self.content.scalar(at, value, member.start, end, &mut self.inside)?;
            }
            (MemberRule::Strip, JsonScalar::Null) => return self.strip(),
            (MemberRule::Strip, _) => return self.drop_value(),
            (MemberRule::Keep | MemberRule::Prompts | MemberRule::Never | MemberRule::Drop, _) => {}
        }
        self.keep(member, end);
        Ok(())
    }

    /// A member's value is a container, and this is its end.
    fn container_member(&mut self, end: u64) -> Result<(), Refusal> {
        let Some(member) = self.member.take() else {
            return Ok(());
        };
        if matches!(member.rule, MemberRule::Strip) {
            return self.drop_value();
        }
        if let Some((start, _)) = self.inside.rare.as_ref().and_then(|rare| rare.thinking.object)
            && self.name() == "thinking"
        {
            self.inside.rare().thinking.object = Some((start, end));
        }
        let is_stored = matches!(member.rule, MemberRule::Nested(_)) && STORED.contains(&self.name());
        let rare = self.inside.rare.iter();
        if is_stored && !rare.flat_map(|rare| &rare.stored).any(|stored| stored.member == self.name()) {
            return Err(no_stored_id(self.name()));
        }
        if self.name() == "prediction" {
            self.parsed.cost_factors.prediction_bytes = end - member.start;
        }
        self.keep(member, end);
        Ok(())
    }

    /// How long a prompt cache is to keep. Anthropic bills an hour at twice the price; Gemini takes any time, and bills for
    /// storing that long, in no row of LiteLLM's.
    fn ttl(&mut self, value: JsonScalar<'_>) -> Result<(), Refusal> {
        match value {
            _ if !self.in_ttl => {}
            JsonScalar::String(StrPrefix { head: b"5m", .. }) | JsonScalar::Null => {}
            JsonScalar::String(StrPrefix { head: b"1h", .. }) => self.parsed.cost_factors.long_cache = true,
            _ => return Err(invalid("cache_control.ttl", "want 5m or 1h")),
        }
        Ok(())
    }

    /// The client's bound on the output; of several the largest, and a 0 among them is no bound.
    fn bound(&mut self, max: u64, start: u64, end: u64) {
        let known = if self.parsed.bounds.is_empty() { Some(max) } else { self.parsed.max_output };
        self.parsed.max_output = known.filter(|known| *known > 0 && max > 0).map(|known| known.max(max));
        let after = self.parsed.edit.keep.last().filter(|_| self.run_open).map(|last| last.1);
        self.parsed.completion_tokens |= self.name() == "max_completion_tokens";
        self.parsed.bounds.push(OutputLimitMember { range: (start, end), after, before: None });
    }

    fn open_member(&mut self, kind: JsonContainer, start: u64) -> Result<(), Refusal> {
        let Some(member) = &self.member else { return Ok(()) };
        if matches!(member.rule, MemberRule::Nested(_)) && last(&self.names, &self.ends) == "thinking" {
            self.inside.rare().thinking.object = Some((start, start));
        }
        match (member.rule, kind) {
            (MemberRule::Refuse, _) => Err(not_allowed(self.name())),
            (MemberRule::Model, _) => Err(invalid(self.name(), "name one model, as a string")),
            (MemberRule::Stream | MemberRule::NotTrue, _) => Err(invalid(self.name(), "want true or false")),
            (MemberRule::MaxOutput | MemberRule::Choices, _) => Err(invalid(self.name(), "want a number")),
            (MemberRule::StreamOptions, JsonContainer::Array) => Err(invalid(self.name(), "want an object")),
            (MemberRule::Nested(_), kind) => {
                let at = ValuePosition {
                    format: self.format,
                    depth: 1,
                    member: last(&self.names, &self.ends),
                    opened: &self.policy.params,
                };
                self.inside.open(at, kind, start)
            }
            (MemberRule::Content, kind) => {
                let at = ValuePosition {
                    format: self.format,
                    depth: 1,
                    member: last(&self.names, &self.ends),
                    opened: &self.policy.params,
                };
                self.content.open(at, kind, start, &mut self.inside)
            }
            (
                MemberRule::StreamOptions
                | MemberRule::Prompts
                | MemberRule::Keep
                | MemberRule::Strip
                | MemberRule::Drop
                | MemberRule::Never,
                _,
            ) => Ok(()),
        }
    }

    fn model(&self, name: StrPrefix<'_>) -> Result<String, Refusal> {
        let asked = name.as_str();
        let refused = |message: &str| {
            let refusal = Refusal::new(Reason::ModelNotAllowed, message.to_owned()).param("model");
            Err(refusal.for_model(Some(asked)))
        };
        if !name.whole {
            return refused("the model's name is too long");
        }
        let name = asked;
        if !self.policy.models.is_empty() {
            return match self.policy.models.iter().find(|allowed| *allowed == name) {
                Some(allowed) => Ok(allowed.clone()),
                None => refused(&format!("this run may use: {}", self.policy.models.join(", "))),
            };
        }
        if is_plain_model(name) {
            Ok(name.to_owned())
        } else {
            refused("name one model, without a list, a URL or ':online'")
        }
    }

    /// The member has a value, so its sender has to learn that it is gone.
    fn drop_value(&mut self) -> Result<(), Refusal> {
        self.strip()?;
        self.dropped.extend(self.parsed.stripped.last().cloned());
        Ok(())
    }

    fn strip(&mut self) -> Result<(), Refusal> {
        self.run_open = false;
        let name = clip(self.name(), 64).to_owned();
        self.parsed.stripped.push(name.into());
        Ok(())
    }

    fn keep(&mut self, member: CurrentMember, end: u64) {
        if matches!(member.rule, MemberRule::StreamOptions) {
            self.run_open = false;
            self.stream_options = Some((member.start, end));
            return;
        }
        match self.parsed.edit.keep.last_mut() {
            Some(last) if self.run_open => last.1 = end,
            _ => self.parsed.edit.keep.push((member.start, end)),
        }
        self.run_open = true;
    }

    fn finish(mut self) -> Result<ParsedBody, Refusal> {
        if self.parsed.model.is_none() && self.format != ApiFormat::Other {
            return Err(Refusal::new(Reason::ModelNotAllowed, "name a model").param("model"));
        }
        self.parsed.choices *= self.prompts.max(1);
        if self.parsed.choices > MAX_CHOICES {
            return Err(not_allowed("prompt")
                .because(format!("at most {MAX_CHOICES} answers a call; send the prompts one by one"))
                .for_model(self.parsed.model.as_deref()));
        }
        let mut prefix = format!("{{\"user\":{}", self.policy.account_json);
        let reports_usage_if_asked =
            self.parsed.stream && matches!(self.format, ApiFormat::Chat | ApiFormat::Completions);
        if reports_usage_if_asked && !self.asks_usage {
            prefix.push_str(r#","stream_options":{"include_usage":true}"#);
            self.parsed.hide_usage = true;
            if self.stream_options.is_some() {
                self.parsed.stripped.push("stream_options".into());
            }
        } else {
            self.parsed.edit.keep.extend(self.stream_options);
        }
        self.parsed.edit.prefix = prefix;
        self.parsed.media = self.content.media();
        self.parsed.cost_factors.rewritten_bytes = self.content.rewritten;
        self.parsed.edit.cut = self.inside.cuts;
        if let Some(rare) = &mut self.inside.rare {
            rare.thinking.is_needed |= self.content.has_thinking;
        }
        self.parsed.rare = self.inside.rare;
        self.dropped.extend(self.inside.names.iter().cloned());
        self.parsed.dropped = stripped::effective(self.dropped);
        self.parsed.stripped.append(&mut self.inside.names);
        self.parsed.cost_factors.typed_tools = self.inside.typed_tools;
        self.parsed.cost_factors.expanded_bytes = self.inside.expanded.saturating_add(self.content.numbers);
        Ok(self.parsed)
    }
}

impl JsonVisitor for MemberVisitor<'_> {
    type Stop = Refusal;

    fn key(&mut self, depth: usize, key: StrPrefix<'_>, start: u64) -> Result<(), Refusal> {
        self.in_ttl = false;
        if depth == 1 {
            return self.begin(key, start);
        }
        match key.head {
            b"cache_control" => self.cache = Some(depth),
            b"ttl" if self.cache.is_some_and(|cache| depth == cache + 1) => self.in_ttl = !self.content.is_in_own(),
            _ if self.cache.is_some_and(|cache| depth <= cache) => self.cache = None,
            _ => {}
        }
        let at = ValuePosition {
            format: self.format,
            depth,
            member: last(&self.names, &self.ends),
            opened: &self.policy.params,
        };
        match self.member.map(|member| member.rule) {
            Some(MemberRule::Content) => self.content.key(at, key, start, &mut self.inside)?,
            Some(MemberRule::Nested(_)) => self.inside.key(at, key, start)?,
            Some(MemberRule::StreamOptions) => {
                self.in_include_usage = depth == 2 && key.whole() == Some(b"include_usage")
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, depth: usize, kind: JsonContainer, start: u64) -> Result<(), Refusal> {
        match depth {
            0 if kind == JsonContainer::Array => {
                return Err(Refusal::new(Reason::InvalidJson, "the body must be one JSON object, not an array"));
            }
            0 => return Ok(()),
            1 => return self.open_member(kind, start),
            _ => {}
        }
        let at = ValuePosition {
            format: self.format,
            depth,
            member: last(&self.names, &self.ends),
            opened: &self.policy.params,
        };
        match self.member.map(|member| member.rule) {
            Some(MemberRule::Content) => self.content.open(at, kind, start, &mut self.inside)?,
            Some(MemberRule::Nested(_)) => self.inside.open(at, kind, start)?,
            // Parsers keep the last of two: whatever this one is, it is not `true`.
            Some(MemberRule::StreamOptions) if depth == 2 && self.in_include_usage => self.asks_usage = false,
            Some(MemberRule::Prompts) if depth == 2 => self.prompts += 1,
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, depth: usize, kind: JsonContainer, end: u64) -> Result<(), Refusal> {
        let at = ValuePosition {
            format: self.format,
            depth,
            member: last(&self.names, &self.ends),
            opened: &self.policy.params,
        };
        match self.member.map(|member| member.rule) {
            Some(MemberRule::Content) => self.content.close(at, kind, end, &mut self.inside, &self.policy.tools)?,
            Some(MemberRule::Nested(_)) => self.inside.close(at, end, &self.policy.tools)?,
            _ => {}
        }
        if depth == 1 { self.container_member(end) } else { Ok(()) }
    }

    fn scalar(&mut self, depth: usize, value: JsonScalar<'_>, start: u64, end: u64) -> Result<(), Refusal> {
        match depth {
            0 => {
                return Err(Refusal::new(Reason::InvalidJson, "the body must be one JSON object"));
            }
            1 => return self.scalar_member(value, start, end),
            _ => {}
        }
        self.ttl(value)?;
        let at = ValuePosition {
            format: self.format,
            depth,
            member: last(&self.names, &self.ends),
            opened: &self.policy.params,
        };
        match self.member.map(|member| member.rule) {
            Some(MemberRule::Content) => self.content.scalar(at, value, start, end, &mut self.inside),
            Some(MemberRule::Nested(_)) => self.inside.scalar(at, value, start, end),
            Some(MemberRule::Prompts) => {
                self.prompts += u64::from(depth == 2 && matches!(value, JsonScalar::String(_)));
                Ok(())
            }
            Some(MemberRule::StreamOptions) => {
                if depth == 2 && self.in_include_usage {
                    self.asks_usage = value == JsonScalar::Bool(true);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// What is put where this range ends.
#[must_use]
pub fn put_at(put: &[(u64, String)], end: u64) -> Option<&str> {
    put.iter().find(|(at, _)| *at == end).map(|(_, text)| &**text)
}

/// The last of some names that stand behind each other.
fn last<'n>(names: &'n str, ends: &[usize]) -> &'n str {
    let end = ends.last().copied().unwrap_or_default();
    let start = ends.len().checked_sub(2).map_or(0, |before| ends[before]);
    &names[start..end]
}

fn whole(number: &[u8]) -> Option<u64> {
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// A list would be several calls and one bill; a URL another host; `:online` a web search.
fn is_plain_model(name: &str) -> bool {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/@+-".contains(&b));
    let lower = name.to_ascii_lowercase();
    plain && (1..=256).contains(&name.len()) && !name.contains("//") && !lower.split(':').any(|part| part == "online")
}

fn not_allowed(name: &str) -> Refusal {
    let message = format!("'{}' may not be set from the sandbox; leave it out", clip(name, 64));
    Refusal::new(Reason::ParamNotAllowed, message).param(name)
}

fn no_stored_id(name: &str) -> Refusal {
    not_allowed(name).because(format!("'{name}' has to be the id of an answer that this run has received"))
}

fn invalid(name: &str, want: &str) -> Refusal {
    Refusal::new(Reason::InvalidParam, format!("'{}' is not valid: {want}", clip(name, 64))).param(name)
}

impl Refusal {
    fn because(mut self, message: String) -> Self {
        self.message = message.into();
        self
    }
}

#[cfg(test)]
mod tests;
