//! The reading of a conversation in a body: which one it is, where messages may go, and which anchors it holds.
//!
//! Pure. One pass of the scanner over a body that is whole in memory; nothing of it is copied, and the memory does not
//! grow with the number of its items.

use sluice_contract::{Hash, Hasher};

use super::anchor::{PlacedAnchor, TOOL_ID_MAX};
use super::facts::{Conversation, LastItem};
use super::item::{Field, ItemKind, ItemReader, token};
use super::member::Member;
use super::raw::RawText;
use super::splice::Place;
use crate::json::{JsonContainer, JsonError, JsonScalar, JsonVisitor, Scanner, StrPrefix};
use crate::policy::ApiFormat;

/// The body is not JSON, its items are not objects, or it has too many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NotAConversation;

impl From<JsonError> for NotAConversation {
    fn from(_: JsonError) -> Self {
        Self
    }
}

/// Maximum number of items and of values in their contents. A conversation has thousands; more would only keep the
/// sidecar from other calls.
const PARTS_MAX: u32 = 50_000;

/// Reads the conversation of a body; `None` if there is none, or if it has more parts than any conversation.
#[must_use]
pub fn scan(format: ApiFormat, pieces: &[&[u8]], anchors: &[&PlacedAnchor]) -> Option<Conversation> {
    let mut reader = ConversationReader {
        format,
        raw: RawText::new(pieces),
        anchors,
        member: Member::Other,
        in_format: false,
        skip: None,
        item: None,
        begun: false,
        parts: 0,
        chain: Hash::ZERO,
        system: None,
        continues: Hasher::default(),
        found: Conversation { held: vec![None; anchors.len()], ..Conversation::default() },
    };
    let mut scanner = Scanner::new();
    for piece in pieces {
        scanner.feed(piece, &mut reader).ok()?;
    }
    scanner.finish(&mut reader).ok()?;
    let mut found = reader.found;
    found.system = reader.system.map(|mut system| system.finish());
    found.has_answer |= found.continues.is_some();
    (found.end > 0).then_some(found)
}

#[derive(Debug)]
struct ConversationReader<'a> {
    format: ApiFormat,
    raw: RawText<'a>,
    anchors: &'a [&'a PlacedAnchor],
    member: Member,
    /// True within the member `format` of a form.
    in_format: bool,
    /// Depth of a name whose value does not count.
    skip: Option<usize>,
    item: Option<Box<ItemReader>>,
    /// True once there was an item that is not of the system.
    begun: bool,
    /// Number of items, and of values in their contents, so far.
    parts: u32,
    chain: Hash,
    system: Option<Hasher>,
    continues: Hasher,
    found: Conversation,
}

impl ConversationReader<'_> {
    fn count_part(&mut self) -> Result<(), NotAConversation> {
        self.parts += 1;
        if self.parts > PARTS_MAX { Err(NotAConversation) } else { Ok(()) }
    }

    /// Counts a value of the content, if the content is a list.
    fn count_content(&mut self) -> Result<(), NotAConversation> {
        let Some(item) = self.item.as_mut().filter(|item| item.in_content) else { return Ok(()) };
        item.count_part();
        self.count_part()
    }

    /// Adds a token to the hash of the current value.
    fn token(&mut self, bytes: &[u8]) {
        if let Some(hasher) = self.hasher() {
            token(hasher, bytes);
        }
    }

    fn hasher(&mut self) -> Option<&mut Hasher> {
        hasher(self.member, &mut self.item, &mut self.system, &mut self.continues)
    }

    /// Adds the raw bytes of a scalar to the hash of the current value.
    fn raw_token(&mut self, start: u64, end: u64) {
        if let Some(hasher) = hasher(self.member, &mut self.item, &mut self.system, &mut self.continues) {
            self.raw.hash(start, end, hasher);
            hasher.update(&[0]);
        }
    }

    fn text(&mut self, start: u64, end: u64) -> Hash {
        let mut hasher = Hasher::default();
        self.raw.hash(start, end, &mut hasher);
        hasher.finish()
    }

    /// Takes a scalar within the list of items.
    fn item_scalar(&mut self, depth: usize, value: JsonScalar<'_>, start: u64, end: u64) {
        let Some(field) = self.item.as_ref().map(|item| item.field) else { return };
        let string = if let JsonScalar::String(text) = value { Some(text) } else { None };
        let in_block = self.item.as_ref().is_some_and(|item| item.is_in_block());
        match (depth, field, string) {
            (3, Field::Content, Some(text)) => {
                let hash = self.text(start, end);
                let is_empty = text.complete().is_some_and(<[u8]>::is_empty);
                if let Some(item) = &mut self.item {
                    item.string_content(hash);
                    item.place = (!is_empty).then_some(Place::Wrap { from: start, to: end });
                }
                return;
            }
            (5, Field::Text, Some(_)) if in_block => {
                let hash = self.text(start, end);
                if let Some(item) = &mut self.item {
                    item.block_text(hash);
                }
                return;
            }
            (3 | 5, Field::ToolId, Some(id)) => self.note_tool(id),
            _ => {}
        }
        if let (Some(item), Some(text)) = (&mut self.item, string) {
            match (depth, field) {
                (3, Field::Role) => return item.role(text),
                (3, Field::Type) => return item.item_type(text),
                (5, Field::Type) if in_block => return item.block_type(text),
                _ => {}
            }
        }
        self.raw_token(start, end);
    }

    /// Notes the id of a tool call, and the anchors that name it.
    fn note_tool(&mut self, id: StrPrefix<'_>) {
        let Some(id) = id.complete().filter(|id| id.len() <= TOOL_ID_MAX) else { return };
        let (anchors, Some(item)) = (self.anchors, &mut self.item) else { return };
        for (at, anchor) in anchors.iter().enumerate() {
            if anchor.tool.as_deref().is_some_and(|tool| tool.as_bytes() == id) && !item.tool_hits.contains(&at) {
                item.tool_hits.push(at);
            }
        }
        item.tool = std::str::from_utf8(id).ok().map(Into::into);
    }

    fn end_item(&mut self, end: u64) {
        let Some(mut item) = self.item.take() else { return };
        let hash = item.finish();
        let kind = item.kind(self.format);
        self.found.has_tools |= item.gives_tools();
        if kind == ItemKind::Ignored {
            if self.format == ApiFormat::Chat && !self.begun {
                self.system.get_or_insert_default().update(hash.as_bytes());
            }
            return;
        }
        self.begun = true;
        self.chain = Hash::of_all([&self.chain.as_bytes()[..], hash.as_bytes()]);
        let is_open = matches!(kind, ItemKind::User | ItemKind::ToolResult);
        if kind == ItemKind::User {
            self.found.first_user.get_or_insert(hash);
        }
        if !is_open {
            self.found.has_answer = true;
            self.found.has_open_call = item.has_open_call();
        }
        let place = match self.format {
            ApiFormat::Messages => item.place,
            _ => item.place.filter(|place| matches!(place, Place::Input { .. })).or(Some(Place::Item { at: end })),
        };
        let place = place.filter(|_| is_open);
        self.hold(hash, &item.tool_hits, place);
        let tool = item.tool.filter(|_| kind == ItemKind::ToolResult);
        let anchor = PlacedAnchor { chain: self.chain, item: hash, tool, continues: None };
        self.found.last = Some(LastItem { anchor, place });
    }

    /// Notes which anchors the item before this place matches. If two items match with the same rank, the first one
    /// counts: its place does not change when the conversation grows.
    fn hold(&mut self, hash: Hash, tool_hits: &[usize], place: Option<Place>) {
        let Some(place) = place else { return };
        for (at, (anchor, held)) in self.anchors.iter().zip(&mut self.found.held).enumerate() {
            let rank = match () {
                () if anchor.chain == self.chain => 0,
                () if anchor.item == hash => 1,
                () if tool_hits.contains(&at) => 2,
                () => continue,
            };
            if held.is_none_or(|(best, _)| rank < best) {
                *held = Some((rank, place));
            }
        }
    }

    /// Takes a value at the top that is a scalar.
    fn top_scalar(&mut self, value: JsonScalar<'_>, start: u64, end: u64) {
        let is_string = matches!(value, JsonScalar::String(_));
        match self.member {
            Member::Items if is_string && self.format != ApiFormat::Chat && self.format != ApiFormat::Messages => {
                let text = self.text(start, end);
                let mut item = ItemReader::user(text);
                item.place = Some(Place::Input { from: start, to: end });
                self.item = Some(Box::new(item));
                self.end_item(end);
                self.found.end = end;
            }
            Member::System if is_string => self.raw_token(start, end),
            Member::Continues if is_string => {
                self.raw_token(start, end);
                self.found.continues = Some(self.continues.finish());
            }
            _ => {}
        }
    }
}

/// Returns the hash of the current value.
fn hasher<'h>(
    member: Member,
    item: &'h mut Option<Box<ItemReader>>,
    system: &'h mut Option<Hasher>,
    continues: &'h mut Hasher,
) -> Option<&'h mut Hasher> {
    match member {
        Member::Items => item.as_mut().map(|item| item.hasher()),
        Member::System => Some(system.get_or_insert_default()),
        Member::Continues => Some(continues),
        Member::Other | Member::Tools | Member::Form(_) => None,
    }
}

impl JsonVisitor for ConversationReader<'_> {
    type Stop = NotAConversation;

    fn key(&mut self, depth: usize, key: StrPrefix<'_>, _start: u64) -> Result<(), NotAConversation> {
        if depth == 1 {
            self.member = Member::of(self.format, key.head);
            (self.in_format, self.skip) = (false, None);
            return Ok(());
        }
        if self.skip.is_some() {
            return Ok(());
        }
        if self.member.skips(depth, key.head) {
            self.skip = Some(depth);
            return Ok(());
        }
        match (&mut self.item, depth) {
            (Some(item), 3) => item.key(key),
            (Some(item), 5) if item.is_in_block() => item.block_key(key),
            _ => self.token(key.head),
        }
        if let Member::Form(at) = self.member {
            self.in_format = if depth == 2 && at == 3 { key.head == b"format" } else { self.in_format };
            // Only the value of this name tells whether the answer has a form.
            let tells = if self.format == ApiFormat::Messages { b"format".as_slice() } else { b"type" };
            self.skip = (depth == at && key.head != tells).then_some(depth);
        }
        Ok(())
    }

    fn open(&mut self, depth: usize, kind: JsonContainer, _start: u64) -> Result<(), NotAConversation> {
        if self.skip.is_some() {
            return Ok(());
        }
        let is_object = kind == JsonContainer::Object;
        match (self.member, depth) {
            (Member::Items, 1) if is_object => return Err(NotAConversation),
            (Member::Items, 2) => {
                if !is_object {
                    return Err(NotAConversation);
                }
                self.item = Some(Box::default());
                return self.count_part();
            }
            (Member::Tools, 2) => self.found.has_tools = true,
            // Anthropic names a form by an object.
            (Member::Form(at), _) if self.format == ApiFormat::Messages && depth == at => {
                self.found.is_structured = true
            }
            (Member::Items, 3) => {
                if let Some(item) = &mut self.item
                    && item.field == Field::Content
                    && !is_object
                {
                    item.in_content = true;
                }
            }
            (Member::Items, 4) => {
                self.count_content()?;
                if let Some(item) = self.item.as_mut().filter(|item| item.in_content && is_object) {
                    item.open_block();
                    return Ok(());
                }
            }
            _ => {}
        }
        self.token(if is_object { b"{" } else { b"[" });
        Ok(())
    }

    fn close(&mut self, depth: usize, kind: JsonContainer, end: u64) -> Result<(), NotAConversation> {
        if let Some(skip) = self.skip {
            if depth <= skip {
                self.skip = None;
            }
            return Ok(());
        }
        match (self.member, depth) {
            (Member::Items, 1) => self.found.end = end,
            (Member::Items, 2) => {
                self.end_item(end);
                return Ok(());
            }
            (Member::Items, 3) => {
                if let Some(item) = self.item.as_mut().filter(|item| item.in_content) {
                    token(item.hasher(), b"]");
                    item.close_content(end - 1);
                    return Ok(());
                }
            }
            (Member::Items, 4) => {
                if let Some(item) = self.item.as_mut().filter(|item| item.is_in_block()) {
                    item.close_block();
                    return Ok(());
                }
            }
            (Member::Continues, 1) => {
                self.found.continues = Some(self.continues.finish());
                return Ok(());
            }
            _ => {}
        }
        self.token(if kind == JsonContainer::Object { b"}" } else { b"]" });
        Ok(())
    }

    fn scalar(&mut self, depth: usize, value: JsonScalar<'_>, start: u64, end: u64) -> Result<(), NotAConversation> {
        if let Some(skip) = self.skip {
            if depth == skip {
                self.skip = None;
            }
            return Ok(());
        }
        match (self.member, depth) {
            (_, 1) => self.top_scalar(value, start, end),
            (Member::Items, 2) => return Err(NotAConversation),
            (Member::Items, _) => {
                if depth == 4 {
                    self.count_content()?;
                }
                self.item_scalar(depth, value, start, end);
            }
            (Member::Tools, 2) => self.found.has_tools = true,
            (Member::Form(at), _) if depth == at && self.format != ApiFormat::Messages => {
                let is_text = matches!(value, JsonScalar::String(StrPrefix { head: b"text", .. }));
                self.found.is_structured |= !is_text && (at != 3 || self.in_format);
            }
            _ => self.raw_token(start, end),
        }
        Ok(())
    }
}
