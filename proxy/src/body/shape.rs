//! Shapes of the values inside a member that goes upstream: an allow-list at every depth.
//!
//! LiteLLM acts on members at any depth: `response_format.enforce_validation` makes it validate the response after
//! the provider was paid, and fetch every URL in the schema. So the inside of a member is known, or it is taken out
//! and named in the audit log; the few names that make the gateway act are refused.

use std::borrow::Cow;

use super::errors::{invalid, no_stored_id, not_allowed};
use super::parsed::{RareFields, StoredId};
use super::schema::{SchemaUse, SchemaVisitor};
use super::tool_check::{self, ToolCheck};
use crate::json::{JsonContainer, JsonScalar, StrPrefix};
use crate::policy::ApiFormat;
use crate::refusal::{Reason, Refusal};
use crate::text::clip;

/// Members of an object, with the shape of each.
pub type MemberShapes = &'static [(&'static str, Shape)];

/// Shape of a value. A scalar may take the place of an object or an array: providers refuse values that they do not
/// expect, and none of them acts on such a value.
#[derive(Debug)]
pub enum Shape {
    /// A string, a number, a boolean or null.
    Scalar,
    /// Any JSON: the model reads it, and no program acts on it.
    Any,
    /// The name of a tool: not one that the gateway runs.
    ToolName,
    /// A word that decides who runs a tool: this one means the agent.
    Word(&'static str),
    /// Number of tokens that the model may think.
    ThinkingBudget,
    /// A word for how much the model thinks.
    Effort,
    /// Such a word, or an object of these members.
    EffortOr(MemberShapes),
    /// The id of an object that the provider stores.
    StoredId,
    /// Such an id, or an object of these members.
    StoredIdOr(MemberShapes),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// An object of scalars with any names.
    Map,
    /// An array of values of one shape.
    List(&'static Shape),
    /// An object of these members; all others are taken out.
    Object(MemberShapes),
    /// The name of a tool, or an object of these members.
    Choice(MemberShapes),
    /// A tool with these members; its type decides who runs it.
    Tool(MemberShapes),
    /// A JSON schema.
    Schema(SchemaUse),
}

/// Maximum number of members that are taken out of others: honest clients send a few unknown ones.
const TAKEN_OUT_MAX: usize = 128;

/// Members that make LiteLLM validate a response after the provider was paid for it. No operator can open them.
pub(super) const REFUSED: [&str; 2] = ["enforce_validation", "response_schema"];

/// Visitor of one member, which finds the members to be taken out of it.
#[derive(Debug, Default)]
pub(super) struct NestedVisitor {
    containers: Vec<OpenContainer>,
    /// Shape of the next member's value.
    next: Option<&'static Shape>,
    /// Depth of a member that is being taken out.
    dropping: Option<usize>,
    /// Depth of a value of any shape.
    any: Option<usize>,
    /// The current schema, and the depth of its value.
    schema: Option<(usize, Box<SchemaVisitor>)>,
    /// Ranges of the body that do not go upstream, in their order.
    pub(super) cuts: Vec<(u64, u64)>,
    /// Names that were taken out, as `member.name`.
    pub(super) names: Vec<Cow<'static, str>>,
    /// Bytes by which schemas grow when their references are written out.
    pub(super) expanded: u64,
    /// Number of tools that a provider describes to the model in its own words.
    pub(super) typed_tools: u64,
    /// Facts that few bodies have.
    pub(super) rare: Option<Box<RareFields>>,
}

/// State of one open container.
#[derive(Debug)]
struct OpenContainer {
    holds: ContainerShape,
    /// Offset after the opening bracket, then after the last member that stays.
    kept_until: u64,
    /// True if a member stays, so that a later one is taken out together with the comma before it.
    keeps_any: bool,
    /// True if a member was taken out and none stays yet: the comma after it goes with it.
    owes_comma: bool,
    tool: Option<Box<ToolCheck>>,
    /// Members taken out of this container itself, by their index in `cuts` and in `names`.
    own: Vec<(Option<usize>, usize)>,
}

#[derive(Debug, Clone, Copy)]
enum ContainerShape {
    Members(MemberShapes),
    Each(&'static Shape),
}

/// Position of a value: the depth, and the top-level member around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ValuePosition<'a> {
    pub(super) format: ApiFormat,
    pub(super) depth: usize,
    pub(super) member: &'a str,
    /// Names that the operator allows, as `--allow-param` names them.
    pub(super) opened: &'a [String],
}

impl NestedVisitor {
    /// Starts on the value of a member.
    pub(super) fn begin(&mut self, shape: &'static Shape) {
        self.containers.clear();
        (self.next, self.dropping, self.any, self.schema) = (Some(shape), None, None, None);
    }

    /// Returns true once the value that [`Self::begin`] announced has ended.
    pub(super) fn is_over(&self) -> bool {
        self.containers.is_empty() && self.next.is_none()
    }

    /// Takes a name.
    pub(super) fn key(&mut self, at: ValuePosition<'_>, key: StrPrefix<'_>, start: u64) -> Result<(), Refusal> {
        if self.dropping.is_some() || self.any.is_some() {
            return Ok(());
        }
        if let Some((_, schema)) = &mut self.schema {
            schema.key(key);
            return Ok(());
        }
        let Some(container) = self.containers.last_mut() else { return Ok(()) };
        if container.owes_comma
            && let Some(cut) = self.cuts.last_mut()
        {
            cut.1 = start;
        }
        let known = match container.holds {
            ContainerShape::Each(shape) => Some(("", shape)),
            ContainerShape::Members(members) => {
                let found = members.iter().find(|(name, _)| key.complete() == Some(name.as_bytes()));
                found.map(|(name, shape)| (*name, shape))
            }
        };
        if let Some((name, shape)) = known {
            self.next = Some(shape);
            if let Some(tool) = &mut container.tool {
                tool.begin(name);
            }
            return Ok(());
        }
        let name = format!("{}.{}", at.member, clip(key.as_str(), 64));
        if REFUSED.iter().any(|refused| refused.as_bytes() == key.head) {
            return Err(not_allowed(&name));
        }
        if key.complete && at.opened.contains(&name) {
            self.next = Some(&Shape::Any);
            return Ok(());
        }
        // Members that follow each other are taken out as one range.
        let follows = self.cuts.last().is_some_and(|cut| cut.0 == container.kept_until);
        let is_new = !container.owes_comma && !follows;
        if is_new {
            self.cuts.push((container.kept_until, container.kept_until));
            container.owes_comma = !container.keeps_any;
        }
        if self.names.len() == TAKEN_OUT_MAX {
            let many = format!("more than {TAKEN_OUT_MAX} members inside of others are not known here; leave them out");
            return Err(Refusal::new(Reason::InvalidParam, many).param(&name));
        }
        self.names.push(name.into());
        container.own.push((is_new.then(|| self.cuts.len() - 1), self.names.len() - 1));
        self.dropping = Some(at.depth);
        Ok(())
    }

    /// Takes the beginning of a container.
    pub(super) fn open(&mut self, at: ValuePosition<'_>, kind: JsonContainer, start: u64) -> Result<(), Refusal> {
        if self.dropping.is_some() || self.any.is_some() {
            return Ok(());
        }
        if let Some((_, schema)) = &mut self.schema {
            return schema.open(kind, start).map_err(|refusal| refusal.param(at.member));
        }
        let shape = self.shape();
        let mut tool = None;
        let holds = match (shape, kind) {
            (Shape::Any, _) => {
                self.any = Some(at.depth);
                return Ok(());
            }
            (Shape::Schema(schema_use), _) => {
                let mut schema = Box::new(SchemaVisitor::new(*schema_use));
                schema.open(kind, start).map_err(|refusal| refusal.param(at.member))?;
                self.schema = Some((at.depth, schema));
                return Ok(());
            }
            (
                Shape::Object(members) | Shape::Choice(members) | Shape::EffortOr(members) | Shape::StoredIdOr(members),
                JsonContainer::Object,
            ) => ContainerShape::Members(members),
            (Shape::Tool(members), JsonContainer::Object) => {
                tool = Some(Box::new(ToolCheck::default()));
                ContainerShape::Members(members)
            }
            (Shape::Map, JsonContainer::Object) => ContainerShape::Each(&Shape::Scalar),
            (Shape::List(each), JsonContainer::Array) => ContainerShape::Each(each),
            (Shape::Tool(_), JsonContainer::Array) => return Err(tool_check::refused("a tool is an object")),
            (Shape::StoredId, _) | (Shape::StoredIdOr(_), JsonContainer::Array) => return Err(no_stored_id(at.member)),
            (Shape::Object(_) | Shape::Choice(_) | Shape::EffortOr(_) | Shape::Map, JsonContainer::Array) => {
                return Err(invalid(at.member, "want an object"));
            }
            (Shape::List(_), JsonContainer::Object) => return Err(invalid(at.member, "want an array")),
            (
                Shape::Scalar
                | Shape::ToolName
                | Shape::Word(_)
                | Shape::OneOf(_)
                | Shape::ThinkingBudget
                | Shape::Effort,
                _,
            ) => {
                if self.is_type_of_tool() {
                    return Err(tool_check::refused("a tool's type is a string"));
                }
                return Err(invalid(at.member, "want text, a number, true, false or null"));
            }
        };
        self.containers.push(OpenContainer {
            holds,
            kept_until: start + 1,
            keeps_any: false,
            owes_comma: false,
            tool,
            own: Vec::new(),
        });
        Ok(())
    }

    /// Takes the end of a container. `allowed` holds the types of tools that the operator has opened.
    pub(super) fn close(&mut self, at: ValuePosition<'_>, end: u64, allowed: &[String]) -> Result<(), Refusal> {
        if self.dropping.is_some() || self.any.is_some_and(|any| any != at.depth) {
            self.end(at.depth, end);
            return Ok(());
        }
        if self.any.take().is_none() {
            match &mut self.schema {
                Some((own, schema)) => {
                    schema.close(end);
                    if *own != at.depth {
                        return Ok(());
                    }
                    self.expanded += schema.finish().map_err(|refusal| refusal.param(at.member))?;
                    self.schema = None;
                }
                None => self.end_container(at.format, allowed)?,
            }
        }
        self.end(at.depth, end);
        Ok(())
    }

    /// Takes a value that is not a container.
    pub(super) fn scalar(
        &mut self,
        at: ValuePosition<'_>,
        value: JsonScalar<'_>,
        start: u64,
        end: u64,
    ) -> Result<(), Refusal> {
        if self.dropping.is_none() && self.any.is_none() {
            if let Some((_, schema)) = &mut self.schema {
                return schema.scalar(value).map_err(|refusal| refusal.param(at.member));
            }
            self.check(at, value, (start, end))?;
        }
        self.end(at.depth, end);
        Ok(())
    }

    fn check(&mut self, at: ValuePosition<'_>, value: JsonScalar<'_>, range: (u64, u64)) -> Result<(), Refusal> {
        let is_type = self.is_type_of_tool();
        match (self.shape(), value) {
            (Shape::Tool(_), _) => return Err(tool_check::refused("a tool is an object")),
            (Shape::List(Shape::Tool(_)), value) if value != JsonScalar::Null => {
                return Err(invalid(at.member, "want an array"));
            }
            (Shape::ToolName | Shape::Choice(_), JsonScalar::String(name)) => {
                tool_check::check_name(name)?;
                if let Some(tool) = self.containers.last_mut().and_then(|container| container.tool.as_mut()) {
                    tool.name(name);
                }
            }
            (Shape::OneOf(words), JsonScalar::String(text))
                if !words.iter().any(|word| text.complete() == Some(word.as_bytes())) =>
            {
                let message = format!("'{}' may only name: {}", at.member, words.join(", "));
                return Err(Refusal::new(Reason::ParamNotAllowed, message).param(at.member));
            }
            (Shape::OneOf(_), JsonScalar::String(StrPrefix { head: b"clear_thinking_20251015", .. })) => {
                self.rare().thinking.is_needed = true
            }
            (Shape::ThinkingBudget, value) => self.rare().thinking.budget(value, range),
            // LiteLLM reads `reasoning` only on the Responses route.
            (Shape::Effort | Shape::EffortOr(_), value) if at.member != "reasoning" || at.format != ApiFormat::Chat => {
                self.rare().thinking.word(value, range);
            }
            (Shape::StoredId | Shape::StoredIdOr(_), value) => self.stored(at.member, value)?,
            (Shape::Word(word), value) => {
                let right = matches!(value, JsonScalar::String(text) if text.complete() == Some(word.as_bytes()));
                // The word belongs to the tool itself, or to an object one level below.
                if let Some(tool) = self.containers.iter_mut().rev().find_map(|container| container.tool.as_mut()) {
                    tool.word(right, value);
                }
            }
            (_, JsonScalar::String(kind)) if is_type => {
                if let Some(tool) = self.containers.last_mut().and_then(|container| container.tool.as_mut()) {
                    tool.kind(kind)?;
                }
            }
            _ if is_type => return Err(tool_check::refused("a tool's type is a string")),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn rare(&mut self) -> &mut RareFields {
        self.rare.get_or_insert_default()
    }

    /// Takes the id of a stored object. The exchange decides whether the run may name it.
    fn stored(&mut self, member: &str, value: JsonScalar<'_>) -> Result<(), Refusal> {
        let id = match value {
            JsonScalar::Null => return Ok(()),
            JsonScalar::String(id) => id.complete.then(|| id.as_str().to_owned()),
            _ => None,
        };
        let id = id.ok_or_else(|| no_stored_id(member))?;
        self.rare().stored.push(StoredId { member: member.to_owned(), id });
        Ok(())
    }

    /// Returns true if the current value is the `type` of a tool.
    fn is_type_of_tool(&self) -> bool {
        self.containers.last().and_then(|container| container.tool.as_ref()).is_some_and(|tool| tool.is_at_type())
    }

    /// Ends the current container.
    fn end_container(&mut self, format: ApiFormat, allowed: &[String]) -> Result<(), Refusal> {
        let Some(OpenContainer { tool: Some(tool), own, .. }) = self.containers.pop() else { return Ok(()) };
        if tool.is_opened(allowed) {
            // Only the operator knows the members of such a tool: they all stay.
            for (cut, name) in own.into_iter().rev() {
                cut.map(|cut| self.cuts.remove(cut));
                self.names.remove(name);
            }
        }
        self.typed_tools += u64::from(tool.is_typed());
        tool.finish(format, allowed)
    }

    /// Returns the shape of the current value.
    fn shape(&self) -> &'static Shape {
        match self.containers.last().map(|container| container.holds) {
            Some(ContainerShape::Each(shape)) => shape,
            Some(ContainerShape::Members(_)) | None => self.next.unwrap_or(&Shape::Scalar),
        }
    }

    /// Ends a value: the value stays, or the range that is taken out ends with it.
    fn end(&mut self, depth: usize, end: u64) {
        match self.dropping {
            Some(dropped) if dropped == depth => {
                if let Some(cut) = self.cuts.last_mut() {
                    cut.1 = end;
                }
                self.dropping = None;
            }
            Some(_) => {}
            None if self.any.is_some() => {}
            None => {
                self.next = None;
                if let Some(container) = self.containers.last_mut() {
                    (container.kept_until, container.keeps_any, container.owes_comma) = (end, true, false);
                }
            }
        }
    }
}
