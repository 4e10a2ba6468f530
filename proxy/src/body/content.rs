//! Media in messages: what somebody else would fetch is refused, what is inline is counted.
//!
//! LiteLLM or the provider fetches an `http(s)` URL in an image, file or audio part: egress out of a
//! sandbox without a network, and a request into the operator's own. `data:` URLs pass.

use crate::json::{Container, DEPTH_MAX, Scalar, Text};
use crate::policy::Wire;
use crate::refusal::{Reason, Refusal};

/// A URL that matters shows its scheme within this much.
const URL_HEAD: usize = 256;

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
    pub(super) media: u64,
}

impl Content {
    pub(super) fn new(wire: Wire, remote_media: bool) -> Self {
        Self { wire, remote_media, classes: [Class::Other; DEPTH_MAX + 2], own: None, media_bytes: 0, media: 0 }
    }

    pub(super) fn key(&mut self, depth: usize, key: Text<'_>) {
        self.classes[depth] = match key.head {
            "url" | "image_url" | "file_url" | "video_url" | "audio_url" | "document_url" | "server_url" | "uri" | "file_uri" | "fileUri"
            | "file_id" | "file_data" | "image" | "video" | "audio" => Class::Url,
            "data" => Class::Data,
            _ => Class::Other,
        };
        if self.own.is_none() && self.is_own(depth, key.head) {
            self.own = Some(depth);
        }
    }

    /// The arguments of a tool call that the agent itself ran, and citations that it gives back, may
    /// hold URLs; nobody fetches those.
    fn is_own(&self, depth: usize, key: &str) -> bool {
        let tool_use_input = key == "input" && depth == 5 && matches!(self.wire, Wire::Messages | Wire::CountTokens);
        tool_use_input || matches!(key, "annotations" | "citations")
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
        let Scalar::String(text) = value else { return Ok(()) };
        match self.classes[depth] {
            Class::Url if !own && !self.remote_media && is_remote(text.head) => {
                return Err(Refusal::new(
                    Reason::RemoteMediaNotAllowed,
                    "a URL in the content would be fetched outside the sandbox; send the media as a data: URL",
                ));
            }
            Class::Url | Class::Data => {
                self.media_bytes += end - start;
                self.media += 1;
            }
            Class::Other => {}
        }
        Ok(())
    }

    fn leave(&mut self, depth: usize) {
        if self.own == Some(depth) {
            self.own = None;
        }
    }
}

/// Names a scheme with a host, or a host without a scheme. Base64 and file ids have neither.
fn is_remote(text: &str) -> bool {
    let head = crate::refusal::clip(text, URL_HEAD).trim_start_matches(|c: char| c.is_whitespace() || c.is_control());
    let inline = head.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    !inline && (head.contains("://") || head.starts_with("//") || head.contains(":\\\\") || head.starts_with("\\\\"))
}

#[cfg(test)]
mod tests {
    use super::is_remote;

    #[test]
    fn a_host_is_seen_however_it_is_written() {
        for url in ["http://x", "HTTPS://x", " http://x", "\thttp://x", "gs://b/o", "s3://b", "file:///etc/passwd", "//x/y", "ftp://x"] {
            assert!(is_remote(url), "{url:?}");
        }
        for inline in ["data:image/png;base64,AAAA", "DATA:,x", "file-abc123", "iVBORw0KGgo=", "", "a/b+c=="] {
            assert!(!is_remote(inline), "{inline:?}");
        }
    }
}
