//! Media in the content: images, documents and audio, and strings that only look like them.
//!
//! A string is verified as a medium if it is in a place that one of the public APIs has for media, in a part whose
//! type says so. Every other string under a medium's name is counted twice, as text and as a medium: a provider may
//! read it as either, and the larger count is billed.

use crate::json::{JsonContainer, StrPrefix};
use crate::media::{self, Detail};

/// Maximum number of listed parts; further ones are counted as the dearest image, and as text.
const PARTS_MAX: usize = 4096;

/// Kind of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    /// An image, with its width and height if its first bytes tell them.
    Image(Option<(u32, u32)>, Detail),
    /// A document of any number of pages.
    Document,
    /// Recorded sound.
    Audio,
    /// A stored object of any kind and size.
    Stored,
}

/// One medium in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaItem {
    /// Kind of the medium.
    pub kind: MediaKind,
    /// Range of the string in the body, quotes included.
    pub range: (u64, u64),
    /// True if no provider reads it as text.
    pub verified: bool,
}

/// Media of one body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MediaList {
    /// Listed media, in their order.
    pub media: Vec<MediaItem>,
    /// Number of further media, which are not listed.
    pub more: u64,
}

/// Types of parts that hold a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum MediaPart {
    #[default]
    Other,
    Image,
    Document,
    Audio,
}

/// Class of the current member's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum MemberName {
    #[default]
    Other,
    Type,
    Detail,
    /// A member that holds a medium's object, or the medium itself.
    Holder,
    /// A member that holds a medium.
    Medium,
}

/// State of one open object.
#[derive(Debug, Clone, Copy, Default)]
struct OpenObject {
    name: MemberName,
    part: MediaPart,
    /// True if the `type` of a `source` says base64.
    is_base64: bool,
    /// True if the `type` of a `source` says text.
    is_text: bool,
    detail: Option<Detail>,
    found: Option<MediaCandidate>,
    /// Number of open arrays in the object.
    arrays: u32,
}

/// A string that may be a medium of the part around it.
#[derive(Debug, Clone, Copy)]
struct MediaCandidate {
    range: (u64, u64),
    dimensions: Option<(u32, u32)>,
    /// True if the string says what it is: a `data:` URL of an image, or base64 in a source that says so.
    is_data: bool,
    is_image: bool,
    /// True if the string has blanks, or is too short for a medium. Lenient decoders skip blanks, so in a medium's
    /// part it still is one.
    is_odd: bool,
    detail: Option<Detail>,
}

/// Finder of the media of one body.
#[derive(Debug, Default)]
pub(super) struct MediaFinder {
    objects: Vec<OpenObject>,
    found: MediaList,
}

impl MediaFinder {
    pub(super) fn key(&mut self, key: &[u8]) {
        let Some(object) = self.objects.last_mut() else { return };
        object.name = match key {
            b"type" => MemberName::Type,
            b"detail" => MemberName::Detail,
            b"image_url" | b"source" | b"file" | b"input_audio" => MemberName::Holder,
            b"url" | b"data" | b"file_data" => MemberName::Medium,
            _ => MemberName::Other,
        };
        if object.name == MemberName::Type {
            // Parsers keep the last of two types, and a type that is not a string does not count.
            (object.part, object.is_base64, object.is_text) = (MediaPart::Other, false, false);
        }
    }

    pub(super) fn open(&mut self, kind: JsonContainer) {
        match kind {
            JsonContainer::Object => self.objects.push(OpenObject::default()),
            JsonContainer::Array => {
                if let Some(object) = self.objects.last_mut() {
                    object.arrays += 1;
                }
            }
        }
    }

    pub(super) fn close(&mut self, kind: JsonContainer) {
        if kind == JsonContainer::Array {
            if let Some(object) = self.objects.last_mut() {
                object.arrays = object.arrays.saturating_sub(1);
            }
            return;
        }
        let Some(object) = self.objects.pop() else { return };
        let Some(mut found) = object.found.filter(|found| !(found.is_odd && object.is_text)) else { return };
        found.detail = merged(found.detail, object.detail);
        let is_part = object.part != MediaPart::Other;
        match self.objects.last_mut() {
            // The object within a part: the part knows the kind.
            Some(outer)
                if !is_part && outer.arrays == 0 && outer.name == MemberName::Holder && outer.found.is_none() =>
            {
                found.is_data |= object.is_base64;
                outer.found = Some(found);
            }
            _ => self.put(object.part, found),
        }
    }

    /// Takes the address of a stored object.
    pub(super) fn stored(&mut self, start: u64, end: u64) {
        self.add(MediaItem { kind: MediaKind::Stored, range: (start, end), verified: false });
    }

    /// Takes a `data:` URL that is a medium in any place.
    pub(super) fn inline(&mut self, text: StrPrefix<'_>, start: u64, end: u64) {
        let found = MediaCandidate {
            range: (start, end),
            dimensions: media::dimensions(text.head),
            is_data: true,
            is_image: is_image_url(text.head),
            is_odd: false,
            detail: None,
        };
        self.put(MediaPart::Other, found);
    }

    /// Takes a string; `is_media` is true under a name that may hold a medium.
    pub(super) fn string(&mut self, text: StrPrefix<'_>, is_media: bool, start: u64, end: u64) {
        let Some(object) = self.objects.last_mut() else {
            return;
        };
        let in_array = object.arrays > 0;
        match object.name {
            _ if in_array => {}
            MemberName::Type => {
                object.part = match text.head {
                    b"image_url" | b"input_image" | b"image" | b"computer_screenshot" => MediaPart::Image,
                    b"document" | b"file" | b"input_file" => MediaPart::Document,
                    b"input_audio" => MediaPart::Audio,
                    _ => MediaPart::Other,
                };
                (object.is_base64, object.is_text) = (text.head == b"base64", text.head == b"text");
            }
            MemberName::Detail => {
                let detail = if text.head == b"low" { Detail::Low } else { Detail::of(text.as_str()) };
                object.detail = merged(object.detail, Some(detail));
            }
            _ => {}
        }
        if !is_media {
            return;
        }
        let is_url = text.head.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"data:"));
        let is_image = is_image_url(text.head);
        let found = MediaCandidate {
            range: (start, end),
            dimensions: media::dimensions(text.head),
            is_data: is_url,
            is_image,
            is_odd: text.head.len() < 16 || text.as_str().contains(char::is_whitespace),
            detail: None,
        };
        let can_be_verified = matches!(object.name, MemberName::Holder | MemberName::Medium) && !in_array;
        if can_be_verified && object.found.is_none() {
            object.found = Some(found);
        } else {
            self.put(MediaPart::Other, found);
        }
    }

    /// Adds a string whose part is known.
    fn put(&mut self, part: MediaPart, found: MediaCandidate) {
        if part == MediaPart::Other && found.is_odd {
            return;
        }
        let detail = found.detail.unwrap_or(Detail::of("auto"));
        let verified = found.is_data && (part != MediaPart::Image || found.is_image || found.dimensions.is_some());
        let kind = match part {
            MediaPart::Image => MediaKind::Image(found.dimensions, detail),
            MediaPart::Document => MediaKind::Document,
            MediaPart::Audio => MediaKind::Audio,
            MediaPart::Other if found.dimensions.is_some() || found.is_image => {
                MediaKind::Image(found.dimensions, detail)
            }
            MediaPart::Other => MediaKind::Document,
        };
        // An audio part holds plain base64.
        let verified = part != MediaPart::Other && !found.is_odd && (verified || part == MediaPart::Audio);
        self.add(MediaItem { kind, range: found.range, verified });
    }

    fn add(&mut self, medium: MediaItem) {
        if self.found.media.len() < PARTS_MAX {
            self.found.media.push(medium);
        } else {
            self.found.more += 1;
        }
    }

    pub(super) fn take(&mut self) -> MediaList {
        std::mem::take(&mut self.found)
    }
}

fn is_image_url(head: &[u8]) -> bool {
    head.get(..11).is_some_and(|head| head.eq_ignore_ascii_case(b"data:image/"))
}

/// Returns the detail; if there are two different ones, the dearest of all.
fn merged(a: Option<Detail>, b: Option<Detail>) -> Option<Detail> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => Some(Detail::of("")),
        (a, b) => a.or(b),
    }
}
