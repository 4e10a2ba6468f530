//! Media in messages: what somebody else would fetch is refused, what is inline is counted.
//!
//! LiteLLM or the provider fetches an `http(s)` URL in an image, file or audio part: egress out of a
//! sandbox without a network, and a request into the operator's own. `data:` URLs pass.

use crate::json::{Container, DEPTH_MAX, Scalar, Text};
use crate::policy::Wire;
use crate::refusal::{Reason, Refusal};

/// What an image may come to in tokens: a small one, and a large one by its bytes.
const IMAGE_TOKENS: u64 = 2048;
const IMAGE_BYTES_PER_TOKEN: u64 = 400;
/// A document, in bytes to a token: a page of a PDF has some 50 KB and 2,500 tokens.
const DOCUMENT_BYTES_PER_TOKEN: u64 = 20;
/// How base64 of JPEG, PNG, GIF and WebP begins.
const IMAGES: [&str; 5] = ["data:image/", "/9j/", "iVBOR", "R0lG", "UklGR"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    /// May hold a URL that is fetched.
    Url,
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
    pub(super) media_bytes: u64,
    pub(super) media_tokens: u64,
}

impl Content {
    pub(super) fn new(wire: Wire, remote_media: bool) -> Self {
        Self { wire, remote_media, classes: [Class::Other; DEPTH_MAX + 2], own: None, media_bytes: 0, media_tokens: 0 }
    }

    pub(super) fn key(&mut self, depth: usize, key: Text<'_>) -> Result<(), Refusal> {
        self.classes[depth] = match key.head {
            b"url" | b"image_url" | b"file_url" | b"video_url" | b"audio_url" | b"document_url" | b"uri"
            | b"file_uri" | b"fileUri" | b"file_id" | b"file_data" | b"image" | b"video" | b"audio" => Class::Url,
            b"data" => Class::Data,
            _ => Class::Other,
        };
        if self.own.is_none() && self.is_own(depth, key.head) {
            self.own = Some(depth);
        }
        // Responses items and beta blocks can bring tools along; LiteLLM hoists them to the others.
        if self.own.is_none() && depth > 1 && matches!(key.head, b"tools" | b"tool" | b"server_url" | b"connector_id") {
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

    pub(super) fn open(&mut self, depth: usize, kind: Container) {
        self.classes[depth + 1] = match kind {
            Container::Array => self.classes[depth],
            Container::Object => Class::Other,
        };
    }

    pub(super) fn close(&mut self, depth: usize) {
        self.leave(depth);
    }

    pub(super) fn scalar(&mut self, depth: usize, value: Scalar<'_>, start: u64, end: u64) -> Result<(), Refusal> {
        let own = self.own.is_some();
        self.leave(depth);
        let Scalar::String(text) = value else {
            return Ok(());
        };
        let class = self.classes[depth];
        // Vertex reads a bucket by the operator's credentials when an embedding's input names one.
        let is_bucket =
            self.wire == Wire::Embeddings && [b"gs://", b"s3://"].iter().any(|scheme| text.head.starts_with(*scheme));
        if (is_bucket || class == Class::Url && is_remote(text)) && !own && !self.remote_media {
            return Err(Refusal::new(
                Reason::RemoteMediaNotAllowed,
                "a URL in the content would be fetched outside the sandbox; send the media as a data: URL",
            ));
        }
        // Base64 has no blanks; a plain text under such a key is read as one, and billed as one.
        if class != Class::Other && !text.as_str().contains(char::is_whitespace) {
            let is_image = IMAGES.iter().any(|magic| text.head.starts_with(magic.as_bytes()));
            self.media_bytes += end - start;
            let bytes = end - start;
            self.media_tokens += if is_image {
                IMAGE_TOKENS.max(bytes / IMAGE_BYTES_PER_TOKEN)
            } else {
                IMAGE_TOKENS + bytes / DOCUMENT_BYTES_PER_TOKEN
            };
        }
        Ok(())
    }

    fn leave(&mut self, depth: usize) {
        if self.own == Some(depth) {
            self.own = None;
        }
    }
}

/// Anything that some parser may take for a URL of another host. Blanks and control characters anywhere in
/// it are what URL parsers drop. Base64, file ids and file names have no colon.
fn is_remote(text: Text<'_>) -> bool {
    let url: String = text.as_str().chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
    let inline = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    let slashes = url.bytes().take_while(|b| matches!(b, b'/' | b'\\')).count();
    !inline && (url.contains(':') || slashes > 1 || (url.is_empty() && !text.whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_seen_however_it_is_written() {
        let blanks = format!("{}http://x", " ".repeat(300));
        for url in [
            "http://x", "HTTPS://x", " http://x", "\thttp://x", "gs://b/o", "s3://b", "file:///etc/passwd", "//x/y",
            "ftp://x", "http:/x", "http:x", "http:\t//x", "ht\ttp:\n//x", "\\\\x", "/\\x", &blanks,
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
}
