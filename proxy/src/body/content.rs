//! Content of messages: URLs and tools that others would fetch or run are refused, and media are found.
//!
//! LiteLLM or the provider fetches an `http(s)` URL in an image, file or audio part. That would give a sandbox
//! without a network a way out, and send requests into the operator's own network. `data:` URLs pass.

use super::address::{LongString, is_data_url, is_file_name, is_remote, is_stored};
use super::media::{MediaFinder, MediaList};
use super::shape::{NestedVisitor, ValuePosition};
use super::{schema, tools};
use crate::json::{DEPTH_MAX, JsonContainer, JsonScalar, StrPrefix};
use crate::policy::ApiFormat;
use crate::refusal::{Reason, Refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentClass {
    Other,
    /// May hold a URL that would be fetched.
    Url,
    /// Names a file that is stored outside. LiteLLM parses some such ids, and fetches the URL in them.
    Stored,
    /// Holds media inline.
    Data,
}

/// Visitor of the content of one body.
#[derive(Debug)]
pub(super) struct ContentVisitor {
    format: ApiFormat,
    remote_media: bool,
    /// Class of the strings at each depth.
    classes: [ContentClass; DEPTH_MAX + 2],
    /// Depth of a member whose value only the agent reads: its strings are not checked.
    own: Option<usize>,
    /// Depth of the outermost member that holds sound, whose `data` some providers fetch; 0 outside of it.
    audio: u8,
    /// True inside the tools that items of the Responses API have; they are checked like those at the top.
    in_tools: bool,
    parts: MediaFinder,
    /// Verdict on the current string, if it is longer than its head.
    long: LongString,
    /// Offset of the member that `own` names, such as the arguments of a tool call.
    arguments: u64,
    /// Bytes of arguments of tool calls, and of similar values.
    pub(super) rewritten: u64,
    /// Tokens by which the numbers in these values may grow.
    pub(super) numbers: u64,
    /// True if an earlier response has blocks of thinking.
    pub(super) has_thinking: bool,
}

impl ContentVisitor {
    pub(super) fn new(format: ApiFormat, remote_media: bool) -> Self {
        Self {
            format,
            remote_media,
            classes: [ContentClass::Other; DEPTH_MAX + 2],
            own: None,
            audio: 0,
            in_tools: false,
            parts: MediaFinder::default(),
            long: LongString::Unread,
            arguments: 0,
            rewritten: 0,
            numbers: 0,
            has_thinking: false,
        }
    }

    /// Takes a name. `nested` follows the tools within the content.
    pub(super) fn key(
        &mut self,
        at: ValuePosition<'_>,
        key: StrPrefix<'_>,
        start: u64,
        nested: &mut NestedVisitor,
    ) -> Result<(), Refusal> {
        if self.in_tools {
            return nested.key(at, key, start);
        }
        if at.depth <= usize::from(self.audio) {
            self.audio = 0;
        }
        self.classes[at.depth] = match key.head {
            b"url" | b"image_url" | b"file_url" | b"video_url" | b"audio_url" | b"document_url" | b"uri"
            | b"file_uri" | b"fileUri" | b"file_data" | b"image" | b"video" | b"audio" => ContentClass::Url,
            b"input_audio" => {
                // One inside another one belongs to the outer one.
                if self.audio == 0 {
                    self.audio = u8::try_from(at.depth).unwrap_or(u8::MAX);
                }
                ContentClass::Url
            }
            b"file_id" => ContentClass::Stored,
            b"data" if self.audio != 0 => ContentClass::Url,
            b"data" => ContentClass::Data,
            b"thinking" | b"thinking_blocks" => {
                self.has_thinking = true;
                ContentClass::Other
            }
            _ => ContentClass::Other,
        };
        if self.own.is_some() {
            return Ok(());
        }
        self.parts.key(key.head);
        if self.is_own(at.depth, key.head) {
            self.own = Some(at.depth);
            self.arguments = start;
        } else if at.depth > 1 && key.head == b"tools" {
            nested.begin(&tools::TOOLS);
            self.in_tools = true;
        } else if at.depth > 1 && matches!(key.head, b"tool" | b"server_url" | b"connector_id") {
            let message = format!(
                "'{}' in the content would run outside the sandbox; send tools at the top of the request",
                key.as_str()
            );
            return Err(Refusal::new(Reason::ToolNotAllowed, message).param(key.as_str()));
        }
        Ok(())
    }

    /// Returns true for the arguments of a tool call that the agent itself ran, and for citations that it returns.
    /// Both may hold URLs, and nothing fetches those.
    fn is_own(&self, depth: usize, key: &[u8]) -> bool {
        let tool_use_input =
            key == b"input" && depth == 5 && matches!(self.format, ApiFormat::Messages | ApiFormat::CountTokens);
        tool_use_input || matches!(key, b"annotations" | b"citations")
    }

    pub(super) fn open(
        &mut self,
        at: ValuePosition<'_>,
        kind: JsonContainer,
        start: u64,
        nested: &mut NestedVisitor,
    ) -> Result<(), Refusal> {
        if self.in_tools {
            return nested.open(at, kind, start);
        }
        self.classes[at.depth + 1] = match kind {
            JsonContainer::Array => self.classes[at.depth],
            JsonContainer::Object => ContentClass::Other,
        };
        if self.own.is_none() {
            self.parts.open(kind);
        }
        Ok(())
    }

    pub(super) fn close(
        &mut self,
        at: ValuePosition<'_>,
        kind: JsonContainer,
        end: u64,
        nested: &mut NestedVisitor,
        allowed: &[String],
    ) -> Result<(), Refusal> {
        if self.in_tools {
            nested.close(at, end, allowed)?;
            self.in_tools = !nested.is_over();
        } else if self.own.is_none() {
            self.parts.close(kind);
        } else {
            self.end_own(at.depth, end);
        }
        Ok(())
    }

    /// Takes the head of a longer string. Returns true if its rest decides whether it is an address.
    pub(super) fn wants_rest(&mut self, depth: usize, head: &[u8]) -> bool {
        let is_read = !self.in_tools && self.own.is_none();
        self.long = match self.classes[depth] {
            ContentClass::Url if is_read && self.format == ApiFormat::Embeddings && is_file_name(head) => {
                LongString::Address
            }
            ContentClass::Url if is_read => LongString::of_url(head),
            ContentClass::Data | ContentClass::Other if is_read && self.format == ApiFormat::Embeddings => {
                LongString::of_input(head)
            }
            _ => LongString::Unread,
        };
        self.long.is_open()
    }

    /// Takes the next piece of a longer string.
    pub(super) fn rest(&mut self, text: &[u8]) {
        self.long = self.long.then(text);
    }

    pub(super) fn scalar(
        &mut self,
        at: ValuePosition<'_>,
        value: JsonScalar<'_>,
        start: u64,
        end: u64,
        nested: &mut NestedVisitor,
    ) -> Result<(), Refusal> {
        if self.in_tools {
            nested.scalar(at, value, start, end)?;
            self.in_tools = !nested.is_over();
            return Ok(());
        }
        let long = std::mem::take(&mut self.long);
        let own = self.own.is_some();
        self.end_own(at.depth, end);
        let JsonScalar::String(text) = value else {
            self.numbers += if own { schema::written_anew(value) } else { 0 };
            return Ok(());
        };
        if own {
            return Ok(());
        }
        self.has_thinking |= text.head == b"redacted_thinking";
        let class = self.classes[at.depth];
        let is_fetched = match class {
            ContentClass::Url if is_remote(text, long) => true,
            ContentClass::Stored => true,
            _ => self.format == ApiFormat::Embeddings && is_stored(text, long),
        };
        if class == ContentClass::Stored && !self.remote_media {
            return Err(Refusal::new(
                Reason::RemoteMediaNotAllowed,
                "a file that is stored outside would be read by its id; send its content in the request",
            ));
        }
        if is_fetched && !self.remote_media {
            return Err(Refusal::new(
                Reason::RemoteMediaNotAllowed,
                "a URL in the content would be fetched outside the sandbox; send the media as a data: URL",
            ));
        }
        if is_fetched {
            self.parts.stored(start, end);
        } else if self.format == ApiFormat::Embeddings && is_data_url(text.as_str().trim_start()) {
            self.parts.inline(text, start, end);
        } else {
            self.parts.string(text, class != ContentClass::Other, start, end);
        }
        Ok(())
    }

    /// Returns true inside a value that only the agent reads.
    pub(super) fn is_in_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns the media of the whole content.
    pub(super) fn media(&mut self) -> MediaList {
        self.parts.take()
    }

    fn end_own(&mut self, depth: usize, end: u64) {
        if self.own == Some(depth) {
            self.own = None;
            self.rewritten += end - self.arguments;
        }
    }
}
