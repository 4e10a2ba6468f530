//! What a request body may say: one pass over its top-level members, no copy of what stays.
//!
//! Pure. The body is read in the pieces in which it came. What comes out is a [`Reading`]: the facts that
//! the next steps need, and an [`Edit`] that says which stretches of the original bytes go upstream.

mod content;
pub mod params;
mod tools;

use std::borrow::Cow;

use crate::json::{Container, JsonError, Scalar, Scanner, Text, Visit};
use crate::policy::Wire;
use crate::refusal::{Reason, Refusal, clip};
use content::Content;
use params::Rule;
use tools::Tools;

/// Answers per call, `n` and `best_of`: each is billed.
const MAX_CHOICES: u64 = 8;

/// Members of one body; the public APIs have fewer than fifty.
const MAX_MEMBERS: usize = 128;

/// What the operator allows, and what is forced.
#[derive(Debug, Clone, Default)]
pub struct BodyPolicy {
    /// The models that may be named; empty is any one plain name.
    pub models: Vec<String>,
    /// Members that pass although this build would drop or refuse them.
    pub params: Vec<String>,
    /// Tool types beside `function` and `custom`.
    pub tools: Vec<String>,
    /// Whether URLs that somebody else would fetch may stand in the content.
    pub remote_media: bool,
    /// The account as a JSON string, quotes included.
    pub account_json: String,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// The one model asked for.
    pub model: Option<String>,
    /// Whether the answer is to be a stream.
    pub stream: bool,
    /// We asked for the usage in the stream, the client did not: it must not see it.
    pub hide_usage: bool,
    /// The client's bound on output tokens.
    pub max_output: Option<u64>,
    /// How many answers, at least 1.
    pub choices: u64,
    /// Bytes of media in the content, which are not text to be counted.
    pub media_bytes: u64,
    /// What those media may come to, in tokens.
    pub media_tokens: u64,
    /// Names of members that were removed or overwritten.
    pub stripped: Vec<Cow<'static, str>>,
    /// What goes upstream.
    pub edit: Edit,
}

/// `prefix`, then the stretches of the original text, each after a comma, then `}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edit {
    /// `{` and our own members.
    pub prefix: String,
    /// Offsets from and to, of whole members.
    pub keep: Vec<(u64, u64)>,
}

/// Reads one body.
#[derive(Debug)]
pub struct BodyReader<'p> {
    scanner: Scanner,
    members: Members<'p>,
}

impl<'p> BodyReader<'p> {
    /// Before the first byte.
    #[must_use]
    pub fn new(wire: Wire, policy: &'p BodyPolicy) -> Self {
        Self { scanner: Scanner::new(), members: Members::new(wire, policy) }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// The refusal, as soon as it is certain.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        self.scanner.feed(piece, &mut self.members)
    }

    /// The body is complete.
    ///
    /// # Errors
    /// A refusal that only the whole body shows.
    pub fn finish(mut self) -> Result<Reading, Refusal> {
        self.scanner.finish(&mut self.members)?;
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
struct Member {
    rule: Rule,
    start: u64,
}

#[derive(Debug)]
struct Members<'p> {
    wire: Wire,
    policy: &'p BodyPolicy,
    /// All names so far, and where each ends.
    names: String,
    ends: Vec<usize>,
    member: Option<Member>,
    /// The last member was kept, so the next one extends its stretch.
    run_open: bool,
    stream_options: Option<(u64, u64)>,
    asks_usage: bool,
    in_include_usage: bool,
    /// Texts in a `prompt` of several.
    prompts: u64,
    content: Content,
    tools: Tools,
    reading: Reading,
}

impl<'p> Members<'p> {
    fn new(wire: Wire, policy: &'p BodyPolicy) -> Self {
        Self {
            wire,
            policy,
            names: String::with_capacity(256),
            ends: Vec::with_capacity(16),
            member: None,
            run_open: false,
            stream_options: None,
            asks_usage: false,
            in_include_usage: false,
            prompts: 0,
            content: Content::new(wire, policy.remote_media),
            tools: Tools::default(),
            reading: Reading { choices: 1, ..Reading::default() },
        }
    }

    fn begin(&mut self, key: Text<'_>, start: u64) -> Result<(), Refusal> {
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
        let rule = match params::rule(self.wire, name) {
            Some(Rule::Never) => return Err(not_allowed(name)),
            // A clipped name is nobody's.
            _ if !key.whole => Rule::Strip,
            Some(Rule::Refuse | Rule::NotTrue) | None if self.policy.params.iter().any(|allowed| allowed == name) => {
                Rule::Keep
            }
            Some(rule) => rule,
            None => Rule::Strip,
        };
        self.member = Some(Member { rule, start });
        match rule {
            Rule::Content => self.content.key(1, key),
            Rule::Tools => {
                self.tools = Tools::default();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The names so far.
    fn seen(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.names[*start..*end])
    }

    /// The name of the member at hand.
    fn name(&self) -> &str {
        self.seen().last().unwrap_or_default()
    }

    /// A member's value is a scalar, and this is all of it.
    fn scalar_member(&mut self, value: Scalar<'_>, end: u64) -> Result<(), Refusal> {
        let Some(member) = self.member.take() else {
            return Ok(());
        };
        match (member.rule, value) {
            (Rule::Refuse, Scalar::Null) => return self.strip(),
            (Rule::Refuse, _) | (Rule::NotTrue, Scalar::Bool(true)) => return Err(not_allowed(self.name())),
            (Rule::Model, Scalar::String(name)) => self.reading.model = Some(self.model(name)?),
            (Rule::Model, _) => return Err(invalid(self.name(), "name one model, as a string")),
            (Rule::Stream, Scalar::Bool(stream)) => self.reading.stream = stream,
            (Rule::Stream, Scalar::Null) | (Rule::NotTrue, Scalar::Bool(false) | Scalar::Null) => {}
            (Rule::Stream | Rule::NotTrue, _) => return Err(invalid(self.name(), "want true or false")),
            (Rule::MaxOutput, Scalar::Number(number)) => {
                let max = whole(number).ok_or_else(|| invalid(self.name(), "want a whole number of tokens"))?;
                self.reading.max_output = Some(self.reading.max_output.map_or(max, |known| max.max(known)));
            }
            (Rule::Choices, Scalar::Number(number)) => {
                let choices = whole(number).ok_or_else(|| invalid(self.name(), "want a whole number"))?;
                if choices > MAX_CHOICES {
                    return Err(not_allowed(self.name()).because(format!("at most {MAX_CHOICES} answers a call")));
                }
                self.reading.choices = self.reading.choices.max(choices);
            }
            (Rule::StreamOptions | Rule::Tools | Rule::MaxOutput | Rule::Choices, Scalar::Null) => {}
            (Rule::StreamOptions, _) => return Err(invalid(self.name(), "want an object")),
            (Rule::Tools, _) => return Err(invalid(self.name(), "want an array")),
            (Rule::MaxOutput | Rule::Choices, _) => return Err(invalid(self.name(), "want a number")),
            (Rule::Content, value) => self.content.scalar(1, value, member.start, end)?,
            (Rule::Strip, _) => return self.strip(),
            (Rule::Keep | Rule::Prompts | Rule::Never, _) => {}
        }
        self.keep(member, end);
        Ok(())
    }

    /// A member's value is a container, and this is its end.
    fn container_member(&mut self, end: u64) -> Result<(), Refusal> {
        let Some(member) = self.member.take() else {
            return Ok(());
        };
        if member.rule == Rule::Strip {
            return self.strip();
        }
        self.keep(member, end);
        Ok(())
    }

    fn open_member(&mut self, kind: Container) -> Result<(), Refusal> {
        let Some(member) = &self.member else { return Ok(()) };
        match (member.rule, kind) {
            (Rule::Refuse, _) => Err(not_allowed(self.name())),
            (Rule::Model, _) => Err(invalid(self.name(), "name one model, as a string")),
            (Rule::Stream | Rule::NotTrue, _) => Err(invalid(self.name(), "want true or false")),
            (Rule::MaxOutput | Rule::Choices, _) => Err(invalid(self.name(), "want a number")),
            (Rule::StreamOptions, Container::Array) => Err(invalid(self.name(), "want an object")),
            (Rule::Tools, Container::Object) => Err(invalid(self.name(), "want an array")),
            (Rule::Content, kind) => {
                self.content.open(1, kind);
                Ok(())
            }
            (Rule::StreamOptions | Rule::Tools | Rule::Prompts | Rule::Keep | Rule::Strip | Rule::Never, _) => Ok(()),
        }
    }

    fn model(&self, name: Text<'_>) -> Result<String, Refusal> {
        let refused = |message: &str| Err(Refusal::new(Reason::ModelNotAllowed, message.to_owned()).param("model"));
        if !name.whole {
            return refused("the model's name is too long");
        }
        let name = name.as_str();
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

    fn strip(&mut self) -> Result<(), Refusal> {
        self.run_open = false;
        let name = clip(self.name(), 64).to_owned();
        self.reading.stripped.push(name.into());
        Ok(())
    }

    fn keep(&mut self, member: Member, end: u64) {
        if member.rule == Rule::StreamOptions {
            self.run_open = false;
            self.stream_options = Some((member.start, end));
            return;
        }
        match self.reading.edit.keep.last_mut() {
            Some(last) if self.run_open => last.1 = end,
            _ => self.reading.edit.keep.push((member.start, end)),
        }
        self.run_open = true;
    }

    fn finish(mut self) -> Result<Reading, Refusal> {
        if self.reading.model.is_none() && self.wire != Wire::Other {
            return Err(Refusal::new(Reason::ModelNotAllowed, "name a model").param("model"));
        }
        self.reading.choices *= self.prompts.max(1);
        if self.reading.choices > MAX_CHOICES {
            return Err(not_allowed("prompt")
                .because(format!("at most {MAX_CHOICES} answers a call; send the prompts one by one")));
        }
        let mut prefix = format!("{{\"user\":{}", self.policy.account_json);
        let reports_usage_if_asked = self.reading.stream && matches!(self.wire, Wire::Chat | Wire::Completions);
        if reports_usage_if_asked && !self.asks_usage {
            prefix.push_str(r#","stream_options":{"include_usage":true}"#);
            self.reading.hide_usage = true;
            if self.stream_options.is_some() {
                self.reading.stripped.push("stream_options".into());
            }
        } else {
            self.reading.edit.keep.extend(self.stream_options);
        }
        self.reading.edit.prefix = prefix;
        self.reading.media_bytes = self.content.media_bytes;
        self.reading.media_tokens = self.content.media_tokens;
        Ok(self.reading)
    }
}

impl Visit for Members<'_> {
    type Stop = Refusal;

    fn key(&mut self, depth: usize, key: Text<'_>, start: u64) -> Result<(), Refusal> {
        if depth == 1 {
            return self.begin(key, start);
        }
        match self.member.as_ref().map(|member| member.rule) {
            Some(Rule::Content) => self.content.key(depth, key)?,
            Some(Rule::Tools) => self.tools.key(depth, key),
            Some(Rule::StreamOptions) => self.in_include_usage = depth == 2 && key.whole() == Some(b"include_usage"),
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, depth: usize, kind: Container, _start: u64) -> Result<(), Refusal> {
        match depth {
            0 if kind == Container::Array => {
                return Err(Refusal::new(Reason::InvalidJson, "the body must be one JSON object, not an array"));
            }
            0 => return Ok(()),
            1 => return self.open_member(kind),
            _ => {}
        }
        match self.member.as_ref().map(|member| member.rule) {
            Some(Rule::Content) => self.content.open(depth, kind),
            Some(Rule::Tools) => self.tools.open(depth, kind)?,
            // Parsers keep the last of two: whatever this one is, it is not `true`.
            Some(Rule::StreamOptions) if depth == 2 && self.in_include_usage => self.asks_usage = false,
            Some(Rule::Prompts) if depth == 2 => self.prompts += 1,
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, depth: usize, _kind: Container, end: u64) -> Result<(), Refusal> {
        match self.member.as_ref().map(|member| member.rule) {
            Some(Rule::Content) => self.content.close(depth),
            Some(Rule::Tools) => self.tools.close(depth)?,
            _ => {}
        }
        if depth == 1 { self.container_member(end) } else { Ok(()) }
    }

    fn scalar(&mut self, depth: usize, value: Scalar<'_>, start: u64, end: u64) -> Result<(), Refusal> {
        match depth {
            0 => {
                return Err(Refusal::new(Reason::InvalidJson, "the body must be one JSON object"));
            }
            1 => return self.scalar_member(value, end),
            _ => {}
        }
        match self.member.as_ref().map(|member| member.rule) {
            Some(Rule::Content) => self.content.scalar(depth, value, start, end),
            Some(Rule::Tools) => self.tools.scalar(depth, value, &self.policy.tools),
            Some(Rule::Prompts) => {
                self.prompts += u64::from(depth == 2 && matches!(value, Scalar::String(_)));
                Ok(())
            }
            Some(Rule::StreamOptions) => {
                if depth == 2 && self.in_include_usage {
                    self.asks_usage = value == Scalar::Bool(true);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
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
