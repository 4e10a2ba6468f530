//! The top-level members of a body: which rule each has, and the reader that follows its value.
//!
//! Pure.

mod finish;
mod value;

use std::borrow::Cow;

use super::content::ContentVisitor;
use super::errors::{invalid, not_allowed};
use super::params::{self, MemberRule};
use super::shape::{NestedVisitor, ValuePosition};
use super::{BodyPolicy, ParsedBody};
use crate::json::{JsonContainer, JsonScalar, JsonVisitor, StrPrefix};
use crate::policy::ApiFormat;
use crate::refusal::{Reason, Refusal};

/// Maximum number of responses of one call, by `n` and `best_of`: each is billed.
const MAX_CHOICES: u64 = 8;

/// Members that name objects which the provider stores.
const STORED: [&str; 2] = ["previous_response_id", "conversation"];

/// Maximum number of members of one body; the public APIs have fewer than fifty.
const MAX_MEMBERS: usize = 128;

/// Depth up to which marks for a prompt cache are followed.
const MARKS_DEPTH: usize = 64;

/// Position of a value at this depth. A macro, since a method would borrow the whole visitor.
macro_rules! position {
    ($members:expr, $depth:expr) => {
        ValuePosition {
            format: $members.format,
            depth: $depth,
            member: last(&$members.names, &$members.ends),
            opened: &$members.policy.params,
        }
    };
}
use position;

/// The current member; its name is the last in `names`.
#[derive(Debug, Clone, Copy)]
struct CurrentMember {
    rule: MemberRule,
    start: u64,
}

#[derive(Debug)]
pub(super) struct MemberVisitor<'p> {
    format: ApiFormat,
    policy: &'p BodyPolicy,
    /// All names so far, one after another, and the end of each.
    names: String,
    ends: Vec<usize>,
    member: Option<CurrentMember>,
    /// True if the last member was kept, so that the next one extends its range.
    run_open: bool,
    stream_options: Option<(u64, u64)>,
    asks_usage: bool,
    in_include_usage: bool,
    /// Number of texts in a `prompt` of several.
    prompts: u64,
    content: ContentVisitor,
    /// Visitor of the current member's value.
    nested: NestedVisitor,
    /// A bit for each depth up to [`MARKS_DEPTH`] with a current mark for a prompt cache: one can be inside another one.
    cache: u64,
    in_ttl: bool,
    /// Names of members that were dropped with a value.
    dropped: Vec<Cow<'static, str>>,
    pub(super) parsed: ParsedBody,
}

impl<'p> MemberVisitor<'p> {
    pub(super) fn new(format: ApiFormat, policy: &'p BodyPolicy) -> Self {
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
            nested: NestedVisitor::default(),
            cache: 0,
            in_ttl: false,
            dropped: Vec::new(),
            parsed: ParsedBody { choices: 1, ..ParsedBody::default() },
        }
    }

    fn begin(&mut self, key: StrPrefix<'_>, start: u64) -> Result<(), Refusal> {
        let name = key.as_str();
        if key.complete && self.names_so_far().any(|seen| seen == name) {
            let twice = Refusal::new(Reason::DuplicateMember, "a member is twice in the body; send it once");
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
            // A clipped name is not a known one.
            _ if !key.complete => MemberRule::Strip,
            Some(MemberRule::Refuse | MemberRule::NotTrue | MemberRule::Drop) | None if self.is_opened(name) => {
                MemberRule::Keep
            }
            Some(MemberRule::Drop) | None => MemberRule::Strip,
            Some(MemberRule::Nested(_)) if STORED.contains(&name) && self.is_opened(name) => {
                // The operator allows any id, so the size of its object is not known.
                self.nested.rare().stored_tokens = Some(0);
                MemberRule::Keep
            }
            Some(rule) => rule,
        };
        self.member = Some(CurrentMember { rule, start });
        self.note(rule, name);
        match rule {
            MemberRule::Content => {
                let at = ValuePosition { format: self.format, depth: 1, member: name, opened: &self.policy.params };
                self.content.key(at, key, start, &mut self.nested)
            }
            MemberRule::Nested(shape) => {
                self.nested.begin(shape);
                Ok(())
            }
            MemberRule::StreamOptions => {
                self.nested.begin(&params::STREAM);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Follows the marks for a prompt cache by a name at this depth, from 2.
    fn follow_cache(&mut self, depth: usize, name: &[u8]) {
        if depth > MARKS_DEPTH {
            // No body is so deep; each such name counts as one in a mark.
            self.in_ttl = name == b"ttl" && !self.content.is_in_own();
            return;
        }
        let own: u64 = 1 << (depth - 1);
        self.in_ttl = name == b"ttl" && self.cache & (own >> 1) != 0 && !self.content.is_in_own();
        // The marks at this depth and deeper are over.
        self.cache &= own - 1;
        if name == b"cache_control" {
            self.cache |= own;
        }
    }

    fn is_opened(&self, name: &str) -> bool {
        self.policy.params.iter().any(|allowed| allowed == name)
    }

    /// Notes the effect of a member's name on the price.
    fn note(&mut self, rule: MemberRule, name: &str) {
        let cost_factors = &mut self.parsed.cost_factors;
        self.cache = u64::from(name == "cache_control");
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

    /// Returns the names so far.
    fn names_so_far(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.names[*start..*end])
    }

    /// Returns the name of the current member.
    fn name(&self) -> &str {
        last(&self.names, &self.ends)
    }
}

impl JsonVisitor for MemberVisitor<'_> {
    type Stop = Refusal;

    fn key(&mut self, depth: usize, key: StrPrefix<'_>, start: u64) -> Result<(), Refusal> {
        self.in_ttl = false;
        if depth == 1 {
            return self.begin(key, start);
        }
        if self.cache != 0 || key.head == b"cache_control" || depth > MARKS_DEPTH {
            self.follow_cache(depth, key.head);
        }
        let at = position!(self, depth);
        match self.member.map(|member| member.rule) {
            Some(MemberRule::Content) => self.content.key(at, key, start, &mut self.nested)?,
            Some(MemberRule::Nested(_)) => self.nested.key(at, key, start)?,
            Some(MemberRule::StreamOptions) => {
                self.in_include_usage = depth == 2 && key.complete() == Some(b"include_usage");
                self.nested.key(at, key, start)?;
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
        let at = position!(self, depth);
        match self.member.map(|member| member.rule) {
            Some(MemberRule::Content) => self.content.open(at, kind, start, &mut self.nested)?,
            Some(MemberRule::Nested(_) | MemberRule::StreamOptions) => self.nested.open(at, kind, start)?,
            Some(MemberRule::Prompts) if depth == 2 && kind == JsonContainer::Array => self.prompts += 1,
            Some(MemberRule::Prompts) => return Err(no_prompt(self.name())),
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, depth: usize, kind: JsonContainer, end: u64) -> Result<(), Refusal> {
        let at = position!(self, depth);
        match self.member.map(|member| member.rule) {
            Some(MemberRule::Content) => self.content.close(at, kind, end, &mut self.nested, &self.policy.tools)?,
            Some(MemberRule::Nested(_) | MemberRule::StreamOptions) => {
                self.nested.close(at, end, &self.policy.tools)?
            }
            _ => {}
        }
        if depth == 1 { self.container_member(end) } else { Ok(()) }
    }

    fn wants_rest(&mut self, depth: usize, head: &[u8]) -> bool {
        self.member.is_some_and(|member| matches!(member.rule, MemberRule::Content))
            && self.content.wants_rest(depth, head)
    }

    fn rest(&mut self, text: &[u8]) {
        self.content.rest(text);
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
        let at = position!(self, depth);
        match self.member.map(|member| member.rule) {
            Some(MemberRule::Content) => self.content.scalar(at, value, start, end, &mut self.nested),
            Some(MemberRule::Nested(_)) => self.nested.scalar(at, value, start, end),
            Some(MemberRule::Prompts) => match (value, depth) {
                (JsonScalar::String(_), 2) => {
                    self.prompts += 1;
                    Ok(())
                }
                (JsonScalar::Number(_), _) => Ok(()),
                _ => Err(no_prompt(self.name())),
            },
            Some(MemberRule::StreamOptions) => {
                if depth == 2 && self.in_include_usage {
                    // Parsers keep the last of two.
                    self.asks_usage = value == JsonScalar::Bool(true);
                }
                self.nested.scalar(at, value, start, end)
            }
            _ => Ok(()),
        }
    }
}

/// Returns the refusal of a `prompt` with anything but texts and token ids. LiteLLM makes each part of a list the content of
/// a message, whose media it or the provider would fetch.
fn no_prompt(name: &str) -> Refusal {
    invalid(name, "want a text, a list of texts, or token ids")
}

/// Returns the last of several names that follow each other.
fn last<'n>(names: &'n str, ends: &[usize]) -> &'n str {
    let end = ends.last().copied().unwrap_or_default();
    let start = ends.len().checked_sub(2).map_or(0, |before| ends[before]);
    &names[start..end]
}
