//! Content: what somebody else would fetch or run is refused, and media are found.
//!
//! LiteLLM or the provider fetches an `http(s)` URL in an image, file or audio part: egress out of a
//! sandbox without a network, and a request into the operator's own. `data:` URLs pass.

use super::media::{MediaFound, Parts};
use super::shape::{Inside, Place};
use super::{schema, tools};
use crate::json::{Container, DEPTH_MAX, Scalar, Text};
use crate::policy::Wire;
use crate::refusal::{Reason, Refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    /// May hold a URL that is fetched.
    Url,
    /// Names a file that is stored outside. LiteLLM takes some such ids apart, and fetches the URL in them.
    Stored,
    /// Holds media inline.
    Data,
}

/// Follows the content of one body.
#[derive(Debug)]
pub(super) struct Content {
    wire: Wire,
    remote_media: bool,
    /// What the strings at each depth are.
    classes: [Class; DEPTH_MAX + 2],
    /// The depth of a member whose value is the agent's own affair, whatever it looks like.
    own: Option<usize>,
    /// Items of the Responses API bring tools along, checked as those at the top are.
    in_tools: bool,
    parts: Parts,
    /// Where the arguments of a tool call begin.
    arguments: u64,
    /// Bytes of such arguments.
    pub(super) rewritten: u64,
    /// Tokens by which the numbers in them may grow.
    pub(super) numbers: u64,
    /// An earlier answer has blocks of thinking.
    pub(super) has_thinking: bool,
}

impl Content {
    pub(super) fn new(wire: Wire, remote_media: bool) -> Self {
        Self {
            wire,
            remote_media,
            classes: [Class::Other; DEPTH_MAX + 2],
            own: None,
            in_tools: false,
            parts: Parts::default(),
            arguments: 0,
            rewritten: 0,
            numbers: 0,
            has_thinking: false,
        }
    }

    /// Takes a name. `inside` follows tools that stand in the content.
    pub(super) fn key(&mut self, at: Place<'_>, key: Text<'_>, start: u64, inside: &mut Inside) -> Result<(), Refusal> {
        if self.in_tools {
            return inside.key(at, key, start);
        }
        self.classes[at.depth] = match key.head {
            b"url" | b"image_url" | b"file_url" | b"video_url" | b"audio_url" | b"document_url" | b"uri"
            | b"file_uri" | b"fileUri" | b"file_data" | b"image" | b"video" | b"audio" => Class::Url,
            b"file_id" => Class::Stored,
            b"data" => Class::Data,
            b"thinking" | b"thinking_blocks" => {
                self.has_thinking = true;
                Class::Other
            }
            _ => Class::Other,
        };
        if self.own.is_some() {
            return Ok(());
        }
        self.parts.key(key.head);
        if self.is_own(at.depth, key.head) {
            self.own = Some(at.depth);
            self.arguments = start;
        } else if at.depth > 1 && key.head == b"tools" {
            inside.begin(&tools::TOOLS);
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

    /// The arguments of a tool call that the agent itself ran, and citations that it gives back, may
    /// hold URLs; nobody fetches those.
    fn is_own(&self, depth: usize, key: &[u8]) -> bool {
        let tool_use_input = key == b"input" && depth == 5 && matches!(self.wire, Wire::Messages | Wire::CountTokens);
        tool_use_input || matches!(key, b"annotations" | b"citations")
    }

    pub(super) fn open(
        &mut self,
        at: Place<'_>,
        kind: Container,
        start: u64,
        inside: &mut Inside,
    ) -> Result<(), Refusal> {
        if self.in_tools {
            return inside.open(at, kind, start);
        }
        self.classes[at.depth + 1] = match kind {
            Container::Array => self.classes[at.depth],
            Container::Object => Class::Other,
        };
        if self.own.is_none() {
            self.parts.open(kind);
        }
        Ok(())
    }

    pub(super) fn close(
        &mut self,
        at: Place<'_>,
        kind: Container,
        end: u64,
        inside: &mut Inside,
        allowed: &[String],
    ) -> Result<(), Refusal> {
        if self.in_tools {
            inside.close(at, end, allowed)?;
            self.in_tools = !inside.is_over();
        } else if self.own.is_none() {
            self.parts.close(kind);
        } else {
            self.leave(at.depth, end);
        }
        Ok(())
    }

    pub(super) fn scalar(
        &mut self,
        at: Place<'_>,
        value: Scalar<'_>,
        start: u64,
        end: u64,
        inside: &mut Inside,
    ) -> Result<(), Refusal> {
        if self.in_tools {
            inside.scalar(at, value, start, end)?;
            self.in_tools = !inside.is_over();
            return Ok(());
        }
        let own = self.own.is_some();
        self.leave(at.depth, end);
        let Scalar::String(text) = value else {
            self.numbers += if own { schema::written_anew(value) } else { 0 };
            return Ok(());
        };
        if own {
            return Ok(());
        }
        self.has_thinking |= text.head == b"redacted_thinking";
        let class = self.classes[at.depth];
        let is_fetched = match class {
            Class::Url => is_remote(text),
            Class::Stored => true,
            Class::Data | Class::Other => self.wire == Wire::Embeddings && is_stored(text),
        };
        if class == Class::Stored && !self.remote_media {
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
        } else if self.wire == Wire::Embeddings && is_data_url(text) {
            self.parts.inline(text, start, end);
        } else {
            self.parts.string(text, class != Class::Other, start, end);
        }
        Ok(())
    }

    /// What is at hand is the agent's own affair.
    pub(super) fn is_in_own(&self) -> bool {
        self.own.is_some()
    }

    /// The media of the whole content.
    pub(super) fn media(&mut self) -> MediaFound {
        self.parts.take()
    }

    fn leave(&mut self, depth: usize, end: u64) {
        if self.own == Some(depth) {
            self.own = None;
            self.rewritten += end - self.arguments;
        }
    }
}

/// Anything that some parser may take for a URL of another host. Blanks and control characters anywhere in
/// it are what URL parsers drop. Base64, file ids and file names have no colon.
fn is_remote(text: Text<'_>) -> bool {
    let url: String = text.as_str().chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
    let inline = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    let slashes = url.bytes().take_while(|b| matches!(b, b'/' | b'\\')).count();
    // LiteLLM's adapter for Gemini looks for a scheme anywhere.
    inline && url.contains("://") || !inline && (url.contains(':') || slashes > 1 || (url.is_empty() && !text.whole))
}

/// Gemini and Cohere read an embedding's input as an image, or as sound, when it begins like this.
fn is_data_url(text: Text<'_>) -> bool {
    text.as_str().trim_start().get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// Vertex reads a bucket, and Gemini a stored file, by the operator's credentials when an embedding's input names one.
/// LiteLLM looks for a bucket's scheme anywhere; a text with blanks in it is no address.
fn is_stored(text: Text<'_>) -> bool {
    let word = text.as_str().trim_matches(|c: char| c.is_whitespace() || c.is_control()).to_ascii_lowercase();
    let names_one = word.contains("gs://") || word.contains("s3://") || word.starts_with("files/");
    names_one && !word.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_seen_however_it_is_written() {
        let blanks = format!("{}http://x", " ".repeat(300));
        for url in [
            "http://x", "HTTPS://x", " http://x", "\thttp://x", "gs://b/o", "s3://b", "file:///etc/passwd", "//x/y",
            "ftp://x", "http:/x", "http:x", "http:\t//x", "ht\ttp:\n//x", "\\\\x", "/\\x",
            "data:image/png,https://x/a.png", &blanks,
        ] {
            assert!(is_remote(Text { head: url.as_bytes(), whole: true }), "{url:?}");
        }
        assert!(is_remote(Text { head: b"   ", whole: false }));
        for inline in [
            "data:image/png;base64,AAAA", "DATA:,a:b", "file-abc123", "iVBORw0KGgo=", "", "a/b+c==", "/9j/4AAQ",
            "files/abc",
        ] {
            assert!(!is_remote(Text { head: inline.as_bytes(), whole: true }), "{inline:?}");
        }
    }

    #[test]
    fn a_bucket_is_seen_behind_blanks_and_a_sentence_about_one_is_text() {
        for bucket in ["gs://b/o", " gs://b/o", "\n\tGS://b", "s3://b", "xgs://b/o", "gs://b/o ", "files/abc"] {
            assert!(is_stored(Text { head: bucket.as_bytes(), whole: true }), "{bucket:?}");
        }
        for text in ["files/ are", "see gs://b/o", "copy gs://a to s3://b", "plain", ""] {
            assert!(!is_stored(Text { head: text.as_bytes(), whole: true }), "{text:?}");
        }
    }
}
