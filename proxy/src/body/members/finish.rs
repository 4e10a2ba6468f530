//! The end of a body: the facts that only the whole body shows, and the members that the sidecar itself adds.
//!
//! Pure.

use super::{MAX_CHOICES, MemberVisitor};
use crate::body::ParsedBody;
use crate::body::errors::not_allowed;
use crate::policy::ApiFormat;
use crate::refusal::{Reason, Refusal};
use crate::stripped;

impl MemberVisitor<'_> {
    pub(in crate::body) fn finish(mut self) -> Result<ParsedBody, Refusal> {
        if self.parsed.model.is_none() && self.format != ApiFormat::Other {
            return Err(Refusal::new(Reason::ModelNotAllowed, "name a model").param("model"));
        }
        self.parsed.choices *= self.prompts.max(1);
        if self.parsed.choices > MAX_CHOICES {
            return Err(not_allowed("prompt")
                .with_message(format!("at most {MAX_CHOICES} answers a call; send the prompts one by one"))
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
        self.parsed.edit.cut = self.nested.cuts;
        if let Some(rare) = &mut self.nested.rare {
            rare.thinking.is_needed |= self.content.has_thinking;
        }
        self.parsed.rare = self.nested.rare;
        self.dropped.extend(self.nested.names.iter().cloned());
        self.parsed.dropped = stripped::effective(self.dropped);
        self.parsed.stripped.append(&mut self.nested.names);
        self.parsed.cost_factors.typed_tools = self.nested.typed_tools;
        self.parsed.cost_factors.expanded_bytes = self.nested.expanded.saturating_add(self.content.numbers);
        Ok(self.parsed)
    }
}
