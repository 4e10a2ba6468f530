//! The value of one top-level member: checked, kept or taken out.
//!
//! Pure.

use super::{CurrentMember, MAX_CHOICES, MemberVisitor, STORED, last, no_prompt, position};
use crate::body::OutputLimitMember;
use crate::body::errors::{invalid, no_stored_id, not_allowed};
use crate::body::params::MemberRule;
use crate::body::shape::ValuePosition;
use crate::json::{JsonContainer, JsonScalar, StrPrefix};
use crate::refusal::{Reason, Refusal};
use crate::text::clip;

impl MemberVisitor<'_> {
    /// Takes a member's value that is a scalar.
    pub(super) fn scalar_member(&mut self, value: JsonScalar<'_>, start: u64, end: u64) -> Result<(), Refusal> {
        let Some(member) = self.member.take() else {
            return Ok(());
        };
        if self.parsed.cost_factors.service_tier && self.name() == "service_tier" {
            self.parsed.cost_factors.service_tier = !is_usual_tier(value);
        }
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
                let max = whole_number(number).ok_or_else(|| invalid(self.name(), "want a whole number of tokens"))?;
                self.bound(max, member.start, end);
            }
            (MemberRule::Choices, JsonScalar::Number(number)) => {
                let choices = whole_number(number).ok_or_else(|| invalid(self.name(), "want a whole number"))?;
                if choices > MAX_CHOICES {
                    return Err(not_allowed(self.name()).with_message(format!("at most {MAX_CHOICES} answers a call")));
                }
                self.parsed.choices = self.parsed.choices.max(choices);
            }
            // LiteLLM and the provider treat null as absent.
            (MemberRule::MaxOutput, JsonScalar::Null) => return self.strip(),
            (MemberRule::StreamOptions | MemberRule::Choices, JsonScalar::Null) => {}
            (MemberRule::StreamOptions, _) => return Err(invalid(self.name(), "want an object")),
            (MemberRule::Nested(_), JsonScalar::Null) if STORED.contains(&self.name()) => return self.strip(),
            (MemberRule::Nested(_), value) => {
                let at = position!(self, 1);
                self.nested.scalar(at, value, start, end)?;
            }
            (MemberRule::MaxOutput | MemberRule::Choices, _) => return Err(invalid(self.name(), "want a number")),
            (MemberRule::Content, value) => {
                let at = position!(self, 1);
                self.content.scalar(at, value, member.start, end, &mut self.nested)?;
            }
            (MemberRule::Strip, JsonScalar::Null) => return self.strip(),
            (MemberRule::Strip, _) => return self.drop_value(),
            (MemberRule::Prompts, JsonScalar::Number(_) | JsonScalar::Bool(_)) => return Err(no_prompt(self.name())),
            (MemberRule::Keep | MemberRule::Prompts | MemberRule::Never | MemberRule::Drop, _) => {}
        }
        self.keep(member, end);
        Ok(())
    }

    /// Takes the end of a member's value that is a container.
    pub(super) fn container_member(&mut self, end: u64) -> Result<(), Refusal> {
        let Some(member) = self.member.take() else {
            return Ok(());
        };
        if matches!(member.rule, MemberRule::Strip) {
            return self.drop_value();
        }
        if let Some((start, _)) = self.nested.rare.as_ref().and_then(|rare| rare.thinking.object)
            && self.name() == "thinking"
        {
            self.nested.rare().thinking.object = Some((start, end));
        }
        let is_stored = matches!(member.rule, MemberRule::Nested(_)) && STORED.contains(&self.name());
        let rare = self.nested.rare.iter();
        if is_stored && !rare.flat_map(|rare| &rare.stored).any(|stored| stored.member == self.name()) {
            return Err(no_stored_id(self.name()));
        }
        if self.name() == "prediction" {
            self.parsed.cost_factors.prediction_bytes = end - member.start;
        }
        self.keep(member, end);
        Ok(())
    }

    /// Checks the lifetime of a prompt cache. Anthropic bills an hour at twice the price; Gemini takes any time, and
    /// bills the storage, which appears in no row of LiteLLM's spend log.
    pub(super) fn ttl(&mut self, value: JsonScalar<'_>) -> Result<(), Refusal> {
        match value {
            _ if !self.in_ttl => {}
            JsonScalar::String(StrPrefix { head: b"5m", .. }) | JsonScalar::Null => {}
            JsonScalar::String(StrPrefix { head: b"1h", .. }) => self.parsed.cost_factors.long_cache = true,
            _ => return Err(invalid("cache_control.ttl", "want 5m or 1h")),
        }
        Ok(())
    }

    /// Notes the client's bound on the output: the largest of several; a 0 among them means no bound.
    pub(super) fn bound(&mut self, max: u64, start: u64, end: u64) {
        let known = if self.parsed.bounds.is_empty() { Some(max) } else { self.parsed.max_output };
        self.parsed.max_output = known.filter(|known| *known > 0 && max > 0).map(|known| known.max(max));
        let after = self.parsed.edit.keep.last().filter(|_| self.run_open).map(|last| last.1);
        self.parsed.completion_tokens |= self.name() == "max_completion_tokens";
        self.parsed.bounds.push(OutputLimitMember { range: (start, end), after, before: None });
    }

    pub(super) fn open_member(&mut self, kind: JsonContainer, start: u64) -> Result<(), Refusal> {
        let Some(member) = &self.member else { return Ok(()) };
        if matches!(member.rule, MemberRule::Nested(_)) && last(&self.names, &self.ends) == "thinking" {
            self.nested.rare().thinking.object = Some((start, start));
        }
        match (member.rule, kind) {
            (MemberRule::Refuse, _) => Err(not_allowed(self.name())),
            (MemberRule::Model, _) => Err(invalid(self.name(), "name one model, as a string")),
            (MemberRule::Stream | MemberRule::NotTrue, _) => Err(invalid(self.name(), "want true or false")),
            (MemberRule::MaxOutput | MemberRule::Choices, _) => Err(invalid(self.name(), "want a number")),
            (MemberRule::Nested(_) | MemberRule::StreamOptions, kind) => {
                let at = position!(self, 1);
                self.nested.open(at, kind, start)
            }
            (MemberRule::Content, kind) => {
                let at = position!(self, 1);
                self.content.open(at, kind, start, &mut self.nested)
            }
            (MemberRule::Prompts, JsonContainer::Object) => Err(no_prompt(self.name())),
            (MemberRule::Prompts | MemberRule::Keep | MemberRule::Strip | MemberRule::Drop | MemberRule::Never, _) => {
                Ok(())
            }
        }
    }

    pub(super) fn model(&self, name: StrPrefix<'_>) -> Result<String, Refusal> {
        let asked = name.as_str();
        let refused = |message: &str| {
            let refusal = Refusal::new(Reason::ModelNotAllowed, message.to_owned()).param("model");
            Err(refusal.for_model(Some(asked)))
        };
        if !name.complete {
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
            refused("name one model, without a list, a URL, 'a2a/' or ':online'")
        }
    }

    /// Strips a member that has a value, so that its sender learns that it is gone.
    pub(super) fn drop_value(&mut self) -> Result<(), Refusal> {
        self.strip()?;
        self.dropped.extend(self.parsed.stripped.last().cloned());
        Ok(())
    }

    pub(super) fn strip(&mut self) -> Result<(), Refusal> {
        self.run_open = false;
        let name = clip(self.name(), 64).to_owned();
        self.parsed.stripped.push(name.into());
        Ok(())
    }

    pub(super) fn keep(&mut self, member: CurrentMember, end: u64) {
        if matches!(member.rule, MemberRule::StreamOptions) {
            self.run_open = false;
            self.stream_options = Some((member.start, end));
            return;
        }
        if matches!(member.rule, MemberRule::Content) && matches!(self.name(), "messages" | "input") {
            self.parsed.content_end = end;
        }
        match self.parsed.edit.keep.last_mut() {
            Some(last) if self.run_open => last.1 = end,
            _ => self.parsed.edit.keep.push((member.start, end)),
        }
        self.run_open = true;
    }
}

/// Returns true for a tier of service at the usual price. `auto` may be a dearer one.
fn is_usual_tier(value: JsonScalar<'_>) -> bool {
    match value {
        JsonScalar::Null => true,
        JsonScalar::String(tier) => matches!(tier.complete(), Some(b"default" | b"standard" | b"standard_only")),
        _ => false,
    }
}

fn whole_number(number: &[u8]) -> Option<u64> {
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Returns true for one plain model name. A list would be several calls and one bill; a URL would name another host;
/// `:online` would search the web, and `a2a/` would call a registered agent.
fn is_plain_model(name: &str) -> bool {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/@+-".contains(&b));
    let lower = name.to_ascii_lowercase();
    let leaves = name.contains("//") || lower.starts_with("a2a/") || lower.split(':').any(|part| part == "online");
    plain && (1..=256).contains(&name.len()) && !leaves
}
