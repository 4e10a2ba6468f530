//! The few members of a response that matter, in all API formats at once.
//!
//! `id`, `model`, `usage` and `error` are at the top, or one level down in `response` (Responses events) or `message`
//! (`message_start`).

use sluice_contract::Usd;
use sluice_contract::record::Usage;

use super::{ObservedResponse, ResponseEnd, UsageLocation};
use crate::json::{JsonContainer, JsonError, JsonScalar, JsonVisitor, StrPrefix};
use crate::policy::ID_MAX;

/// Beginning of LiteLLM's message when LiteLLM failed on its own, at any point, with a status of 400.
const GATEWAY_FAULT: &[u8] = b"Invalid request format";

/// Maximum length of a provider's model name.
const NAME_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FieldKey {
    #[default]
    Other,
    Id,
    Model,
    Type,
    Usage,
    Error,
    /// `response` or `message`: the same members are inside.
    Inner,
    Choices,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum UsageField {
    #[default]
    None,
    Input,
    Output,
    Total,
    CachedInput,
    CacheWrite,
    Reasoning,
    Cost,
}

/// Class of the current name within `choices`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChoiceKey {
    #[default]
    Other,
    /// The name of a text that is not output.
    Role,
    FinishReason,
}

/// Collector of these members, from one document or one event.
#[derive(Debug, Default)]
pub(super) struct ResponseFields {
    /// Number of data lines of the event.
    pub(super) lines: u32,
    /// True if the event carries output for the client.
    pub(super) output: bool,
    /// Id, empty until there is one. Most events repeat it, so its memory is used again.
    id: String,
    model: String,
    /// True if its type says that nothing follows.
    ends: bool,
    /// True if a choice has a reason to finish: at most usage follows for it.
    finishes: bool,
    usage: Usage,
    has_usage: bool,
    cost: Option<Usd>,
    error: bool,
    gateway_fault: bool,
    /// True if there is something beside usage, ids and output: a client may wait for it.
    more: bool,
    top: FieldKey,
    inner: FieldKey,
    in_choice: ChoiceKey,
    /// Depth of the members of the current usage object.
    usage_depth: Option<usize>,
    token: UsageField,
    /// Range of the top-level `usage` member.
    usage_at: Option<(u64, u64)>,
    usage_first: bool,
    key_start: u64,
    previous_end: Option<u64>,
}

impl ResponseFields {
    /// Starts over, keeping the memory.
    pub(super) fn reset(&mut self) {
        self.clone_from(&Self::default());
    }

    /// Copies another collector, keeping the memory.
    pub(super) fn clone_from(&mut self, other: &Self) {
        let (mut id, mut model) = (std::mem::take(&mut self.id), std::mem::take(&mut self.model));
        id.clone_from(&other.id);
        model.clone_from(&other.model);
        *self = Self { id, model, cost: other.cost.clone(), ..*other };
    }

    /// Moves the found values over the known ones: later explicit values replace earlier ones.
    pub(super) fn take_into(&mut self, observed: &mut ObservedResponse) {
        replace_name(&mut observed.response_id, &self.id);
        replace_name(&mut observed.model, &self.model);
        replace(&mut observed.cost, self.cost.take());
        observed.error |= self.error;
        observed.gateway_fault |= self.gateway_fault;
        if self.real_usage() {
            let known = observed.usage.get_or_insert_default();
            replace(&mut known.input, self.usage.input);
            replace(&mut known.output, self.usage.output);
            replace(&mut known.total, self.usage.total);
            replace(&mut known.cached_input, self.usage.cached_input);
            replace(&mut known.cache_write, self.usage.cache_write);
            replace(&mut known.reasoning, self.usage.reasoning);
        }
    }

    fn real_usage(&self) -> bool {
        self.has_usage && self.usage.any()
    }

    pub(super) fn ends_stream(&self) -> bool {
        self.ends
    }

    /// Returns the progress of a stream to its end after this event, whose usage is already in `observed`.
    /// `has_own_end` is true for a format whose last event has a type.
    ///
    /// Not every upstream sends `[DONE]` after a chat. The reason to finish is its end as well, with the usage in its
    /// chunk or a later one; output of another choice opens the stream again.
    pub(super) fn end_after(&self, observed: &ObservedResponse, has_own_end: bool) -> ResponseEnd {
        let finishes = !has_own_end && (self.finishes || observed.end != ResponseEnd::Open && !self.output);
        let is_stale = observed.usage.is_some() && !self.real_usage() && observed.end != ResponseEnd::Reached;
        match (self.ends, finishes) {
            (true, _) => ResponseEnd::Reached,
            (false, true) if is_stale => ResponseEnd::Finished,
            (false, true) => ResponseEnd::Reached,
            (false, false) => ResponseEnd::Open,
        }
    }

    pub(super) fn usage_in(&self) -> UsageLocation {
        let carries_more = self.output || self.error || self.more;
        match self.usage_at {
            Some((from, to)) if carries_more && self.lines <= 1 => UsageLocation::Beside(from, to),
            Some(_) if !carries_more => UsageLocation::Alone,
            _ => UsageLocation::None,
        }
    }

    /// Returns the key that governs a member at this depth, relative to the known members.
    fn slot(&self, depth: usize) -> Option<FieldKey> {
        match depth {
            1 => Some(self.top),
            2 if self.top == FieldKey::Inner => Some(self.inner),
            _ => None,
        }
    }

    fn string(&mut self, depth: usize, text: StrPrefix<'_>) {
        match self.slot(depth) {
            Some(FieldKey::Id) if text.complete => set_name(&mut self.id, text, ID_MAX),
            Some(FieldKey::Model) if text.complete => set_name(&mut self.model, text, NAME_MAX),
            Some(FieldKey::Type) if depth == 1 => {
                self.error |= matches!(text.head, b"error" | b"response.failed");
                self.output |= text.head.ends_with(b"delta") && text.head != b"message_delta";
                self.ends = matches!(
                    text.head,
                    b"message_stop" | b"response.completed" | b"response.incomplete" | b"response.failed"
                );
            }
            Some(FieldKey::Error) => self.error = true,
            _ if depth == 2 && self.top == FieldKey::Error && text.head.starts_with(GATEWAY_FAULT) => {
                self.gateway_fault = true
            }
            _ => {}
        }
        if self.top == FieldKey::Choices && depth > 2 && !text.head.is_empty() {
            self.output |= self.in_choice != ChoiceKey::Role;
            self.finishes |= self.in_choice == ChoiceKey::FinishReason && depth == 3;
            self.more = true;
        }
    }

    fn number(&mut self, digits: &[u8]) {
        let Ok(text) = std::str::from_utf8(digits) else { return };
        let tokens = text.parse::<u64>().ok().filter(|n| *n < 1 << 53);
        match self.token {
            UsageField::None => {}
            UsageField::Cost => replace(&mut self.cost, Usd::parse(text).ok()),
            UsageField::Input => replace(&mut self.usage.input, tokens),
            UsageField::Output => replace(&mut self.usage.output, tokens),
            UsageField::Total => replace(&mut self.usage.total, tokens),
            UsageField::CachedInput => replace(&mut self.usage.cached_input, tokens),
            UsageField::CacheWrite => replace(&mut self.usage.cache_write, tokens),
            UsageField::Reasoning => replace(&mut self.usage.reasoning, tokens),
        }
    }

    fn end_member(&mut self, depth: usize, end: u64) {
        if depth == 1 {
            if self.top == FieldKey::Usage && self.has_usage {
                // The range includes the comma before the member, so that the rest is still an object; for a first
                // member, it includes the comma after it.
                self.usage_at = Some((self.previous_end.unwrap_or(self.key_start), end));
                self.usage_first = self.previous_end.is_none();
            }
            self.previous_end = Some(end);
        }
    }
}

impl JsonVisitor for ResponseFields {
    type Stop = JsonError;

    fn key(&mut self, depth: usize, key: StrPrefix<'_>, start: u64) -> Result<(), JsonError> {
        if let Some(base) = self.usage_depth {
            self.token = if depth == base { usage_token(key.head) } else { detail_token(key.head) };
            return Ok(());
        }
        match depth {
            1 => {
                self.top = known(key.head);
                self.inner = FieldKey::Other;
                self.key_start = start;
                self.more |= !is_beside_usage(key.head);
                if std::mem::take(&mut self.usage_first) {
                    self.usage_at = self.usage_at.map(|(from, _)| (from, start));
                }
            }
            2 if self.top == FieldKey::Inner => self.inner = known(key.head),
            _ => {
                self.in_choice = match key.head {
                    b"role" | b"object" => ChoiceKey::Role,
                    b"finish_reason" => ChoiceKey::FinishReason,
                    _ => ChoiceKey::Other,
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, depth: usize, kind: JsonContainer, _start: u64) -> Result<(), JsonError> {
        match self.slot(depth) {
            Some(FieldKey::Usage) if kind == JsonContainer::Object => {
                self.usage_depth = Some(depth + 1);
                self.has_usage = true;
            }
            Some(FieldKey::Error) => self.error = true,
            _ => {}
        }
        self.token = UsageField::None;
        Ok(())
    }

    fn close(&mut self, depth: usize, _kind: JsonContainer, end: u64) -> Result<(), JsonError> {
        if self.usage_depth == Some(depth + 1) {
            self.usage_depth = None;
        }
        self.token = UsageField::None;
        self.end_member(depth, end);
        Ok(())
    }

    fn scalar(&mut self, depth: usize, value: JsonScalar<'_>, _start: u64, end: u64) -> Result<(), JsonError> {
        match value {
            JsonScalar::String(text) if self.usage_depth.is_none() => self.string(depth, text),
            JsonScalar::Number(text) if self.usage_depth.is_some() => self.number(text),
            _ => {}
        }
        self.end_member(depth, end);
        Ok(())
    }
}

fn replace<T>(known: &mut Option<T>, found: Option<T>) {
    if found.is_some() {
        *known = found;
    }
}

fn replace_name(known: &mut Option<String>, found: &str) {
    if !found.is_empty() && known.as_deref() != Some(found) {
        *known = Some(found.to_owned());
    }
}

fn set_name(name: &mut String, text: StrPrefix<'_>, max: usize) {
    if (1..=max).contains(&text.head.len()) {
        name.clear();
        name.push_str(text.as_str());
    }
}

/// Returns true for members that an event with nothing but usage has beside it.
fn is_beside_usage(key: &[u8]) -> bool {
    matches!(
        key,
        b"id"
            | b"object"
            | b"created"
            | b"model"
            | b"system_fingerprint"
            | b"service_tier"
            | b"provider"
            | b"choices"
            | b"usage"
    )
}

fn known(key: &[u8]) -> FieldKey {
    match key {
        b"id" => FieldKey::Id,
        b"model" => FieldKey::Model,
        b"type" => FieldKey::Type,
        b"usage" => FieldKey::Usage,
        b"error" => FieldKey::Error,
        b"response" | b"message" => FieldKey::Inner,
        b"choices" => FieldKey::Choices,
        _ => FieldKey::Other,
    }
}

fn usage_token(key: &[u8]) -> UsageField {
    match key {
        b"prompt_tokens" | b"input_tokens" => UsageField::Input,
        b"completion_tokens" | b"output_tokens" => UsageField::Output,
        b"total_tokens" => UsageField::Total,
        b"cache_read_input_tokens" => UsageField::CachedInput,
        b"cache_creation_input_tokens" => UsageField::CacheWrite,
        b"cost" => UsageField::Cost,
        _ => UsageField::None,
    }
}

/// Returns the field for a member of `…_tokens_details`.
fn detail_token(key: &[u8]) -> UsageField {
    match key {
        b"cached_tokens" => UsageField::CachedInput,
        b"cache_write_tokens" => UsageField::CacheWrite,
        b"reasoning_tokens" => UsageField::Reasoning,
        _ => UsageField::None,
    }
}
