//! JSON schemas that the gateway or the provider reads: the schema of a response has no reference to the outside, and
//! no schema expands to many times its size.
//!
//! If an operator has turned it on, LiteLLM validates responses with `jsonschema`, which fetches every reference that
//! is not in the schema itself, from any host and from files. For Gemini, Bedrock and some forms of Anthropic's API
//! it writes each definition out at every place that refers to it (`unpack_defs`), without a bound; the provider
//! bills the result. LiteLLM finds definitions by the last part of a reference, with any text before it, and that is
//! how they are counted here.

mod expansion;

use crate::json::{JsonContainer, JsonScalar, StrPrefix};
use crate::refusal::{Reason, Refusal};
use crate::text::clip;
use expansion::{Definition, PLACES_MAX};

/// Maximum number of references in one schema, and of definitions. The schemas of real programs have some dozens.
const REFERENCES_MAX: usize = 1000;
/// Maximum number of bytes kept of all their names.
const NAMES_MAX: usize = 128 * 1024;
/// Dialects that validators know by themselves. In older ones `id` is a keyword as well.
const DIALECTS: [&str; 4] = [
    "json-schema.org/draft-06/schema", "json-schema.org/draft-07/schema", "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema",
];

/// Purpose of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaUse {
    /// The gateway or the provider validates a response by it.
    Answer,
    /// The model reads it as the description of a tool: its references are not fetched.
    Tool,
}

/// Keywords whose value is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keyword {
    Other,
    /// `$ref` and similar keywords.
    Reference,
    /// `$id`
    Id,
    /// `$schema`
    Dialect,
}

/// Visitor of one schema.
#[derive(Debug)]
pub(super) struct SchemaVisitor {
    schema_use: SchemaUse,
    keyword: Keyword,
    /// True if the current member has the name of a container of definitions.
    holds_definitions: bool,
    containers: Vec<SchemaLevel>,
    definitions: Vec<Definition>,
    references: Vec<String>,
    /// Name of the definition that begins next.
    name: String,
    kept: usize,
    /// Tokens by which the numbers of the schema may grow.
    numbers: u64,
}

/// State of one open container.
#[derive(Debug, Clone, Copy)]
struct SchemaLevel {
    start: u64,
    /// True if the members of the container are definitions.
    defines: bool,
    /// Index of the definition that the container is.
    definition: Option<usize>,
    kind: JsonContainer,
}

impl SchemaVisitor {
    pub(super) fn new(schema_use: SchemaUse) -> Self {
        Self {
            schema_use,
            keyword: Keyword::Other,
            holds_definitions: false,
            containers: Vec::new(),
            definitions: Vec::new(),
            references: Vec::new(),
            name: String::new(),
            kept: 0,
            numbers: 0,
        }
    }

    /// Takes a name. A definition may have any name, also that of a keyword.
    pub(super) fn key(&mut self, key: StrPrefix<'_>) {
        if self.containers.last().is_some_and(|level| level.defines) {
            self.name.clear();
            self.name.push_str(key.as_str());
        }
        self.holds_definitions = matches!(key.head, b"$defs" | b"definitions" | b"schemas");
        self.keyword = match key.head {
            b"$ref" | b"$dynamicRef" | b"$recursiveRef" => Keyword::Reference,
            b"$id" => Keyword::Id,
            b"$schema" => Keyword::Dialect,
            _ => Keyword::Other,
        };
    }

    /// Takes the beginning of a container.
    pub(super) fn open(&mut self, kind: JsonContainer, start: u64) -> Result<(), Refusal> {
        self.keyword = Keyword::Other;
        let is_object = kind == JsonContainer::Object;
        let is_defined = is_object && self.containers.last().is_some_and(|level| level.defines);
        let definition = is_defined.then_some(self.definitions.len());
        if definition.is_some() {
            let name = std::mem::take(&mut self.name);
            self.keep(name.len())?;
            self.definitions.push(Definition { name, bytes: 0, numbers: 0, references: Vec::new() });
        }
        let defines = std::mem::take(&mut self.holds_definitions) && is_object;
        self.containers.push(SchemaLevel { start, defines, definition, kind });
        Ok(())
    }

    /// Takes the end of a container.
    pub(super) fn close(&mut self, end: u64) {
        (self.keyword, self.holds_definitions) = (Keyword::Other, false);
        if let Some(SchemaLevel { start, definition: Some(definition), .. }) = self.containers.pop() {
            self.definitions[definition].bytes = end - start;
        }
    }

    /// Takes a value that is not a container.
    pub(super) fn scalar(&mut self, value: JsonScalar<'_>) -> Result<(), Refusal> {
        let keyword = std::mem::replace(&mut self.keyword, Keyword::Other);
        self.holds_definitions = false;
        let JsonScalar::String(text) = value else {
            self.number(value);
            return Ok(());
        };
        let is_outside = match keyword {
            Keyword::Other => return Ok(()),
            Keyword::Reference => !is_pointer(text),
            Keyword::Id => !text.head.starts_with(b"#"),
            Keyword::Dialect => !is_known_dialect(text),
        };
        if is_outside && self.schema_use == SchemaUse::Answer {
            return Err(refused(&format!(
                "a schema may not point outside of itself, as it does with '{}'; put the definition into the schema and refer to it as '#/$defs/NAME'",
                clip(text.as_str(), 64)
            )));
        }
        if keyword == Keyword::Reference { self.refer(text) } else { Ok(()) }
    }

    /// Counts a number in a list, which may be an `enum`, or a value that a gateway may write anew.
    fn number(&mut self, value: JsonScalar<'_>) {
        let is_in_list = self.containers.last().is_some_and(|level| level.kind == JsonContainer::Array);
        let is_long =
            matches!(value, JsonScalar::Number(digits) if digits.iter().any(|digit| matches!(digit, b'e' | b'E')));
        if !is_in_list && !is_long {
            return;
        }
        let more = written_anew(value);
        self.numbers += more;
        for level in &self.containers {
            if let Some(definition) = level.definition {
                self.definitions[definition].numbers += more;
            }
        }
    }

    fn refer(&mut self, text: StrPrefix<'_>) -> Result<(), Refusal> {
        if !text.complete {
            return Err(refused("a schema refers to a name of more than 768 bytes; give the definition a shorter one"));
        }
        let name = text.as_str().rsplit('/').next().unwrap_or_default();
        self.keep(name.len())?;
        let reference = self.references.len();
        self.references.push(name.to_owned());
        for level in &self.containers {
            if let Some(definition) = level.definition {
                self.definitions[definition].references.push(reference);
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.kept += bytes;
        if self.references.len().max(self.definitions.len()) < REFERENCES_MAX && self.kept <= NAMES_MAX {
            return Ok(());
        }
        Err(refused(&format!("a schema may have at most {REFERENCES_MAX} references and {REFERENCES_MAX} definitions")))
    }

    /// Ends the schema. Returns the bytes that it grows by when every reference in it is written out.
    ///
    /// # Errors
    /// A refusal, if these are too many.
    pub(super) fn finish(&self) -> Result<u64, Refusal> {
        if self.references.is_empty() {
            return Ok(self.numbers);
        }
        expansion::growth(&self.definitions, &self.references)
            .map(|bytes| bytes.saturating_add(self.numbers))
            .ok_or_else(|| {
                refused(&format!(
                    "the references of the schema unfold to more than {PLACES_MAX} places or 1 MiB; write it flatter"
                ))
            })
    }
}

/// Returns the tokens by which a value that is neither text nor a container may grow when it is written anew.
///
/// LiteLLM, like OpenAI, shows a model the numbers of an `enum` as `"1" | "2"`, and other lists with a blank after each
/// comma: two bytes of JSON are up to four tokens. A number of few characters with an exponent may be written with
/// all of its digits, of which there are at most seventeen before Python itself writes exponents.
pub(super) fn written_anew(value: JsonScalar<'_>) -> u64 {
    match value {
        JsonScalar::Number(digits) if digits.iter().any(|digit| matches!(digit, b'e' | b'E')) => 24,
        _ => 4,
    }
}

/// Returns true for a JSON pointer into the same schema. The target of an anchor, `#name`, could be anywhere in it.
fn is_pointer(text: StrPrefix<'_>) -> bool {
    text.complete() == Some(b"#") || text.complete && text.head.starts_with(b"#/")
}

fn is_known_dialect(text: StrPrefix<'_>) -> bool {
    let name = if text.complete { text.as_str() } else { "" };
    let name = name.strip_prefix("http://").or_else(|| name.strip_prefix("https://")).unwrap_or_default();
    DIALECTS.contains(&name.strip_suffix('#').unwrap_or(name))
}

fn refused(message: &str) -> Refusal {
    Refusal::new(Reason::ParamNotAllowed, message.to_owned())
}

#[cfg(test)]
mod tests;
