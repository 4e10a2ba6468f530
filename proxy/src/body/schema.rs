//! JSON schemas that somebody else reads: what an answer is held to points nowhere outside, and no schema
//! unfolds to many times its size.
//!
//! Where an operator has turned it on, LiteLLM validates answers with `jsonschema`, which fetches every
//! reference that is not in the schema itself, from any host and from files. For Gemini, Bedrock and some
//! forms of Anthropic's API it writes each definition out at every place that refers to it (`unpack_defs`),
//! without a bound; the provider bills the result. Definitions are found by the last part of a reference,
//! whatever stands before it, and that is how they are counted here.

use std::collections::HashMap;

use crate::json::{JsonContainer, JsonScalar, StrPrefix};
use crate::refusal::{Reason, Refusal, clip};

/// References in one schema, and definitions. The schemas of real programs have some dozens.
const REFERENCES_MAX: usize = 1000;
/// Bytes kept of all their names.
const NAMES_MAX: usize = 128 * 1024;
/// Places that the references of a schema may unfold to.
const UNFOLDED_MAX: u64 = 2000;
/// Bytes that they may unfold to.
const UNFOLDED_BYTES_MAX: u64 = 1 << 20;

/// Dialects that validators know by themselves. In older ones `id` is a keyword as well.
const DIALECTS: [&str; 4] = [
    "json-schema.org/draft-06/schema", "json-schema.org/draft-07/schema", "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema",
];

/// Who reads a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaUse {
    /// The gateway or the provider holds an answer to it.
    Answer,
    /// The model reads it as the description of a tool: nobody fetches what it refers to.
    Tool,
}

/// Keywords whose value is followed, or decides what is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keyword {
    Other,
    /// `$ref` and its kin.
    Reference,
    /// `$id`
    Id,
    /// `$schema`
    Dialect,
}

/// Follows one schema.
#[derive(Debug)]
pub(super) struct SchemaVisitor {
    reader: SchemaUse,
    keyword: Keyword,
    /// The member at hand is named as a container of definitions is.
    holds_definitions: bool,
    containers: Vec<SchemaLevel>,
    definitions: Vec<Definition>,
    references: Vec<String>,
    /// The name of the definition that begins next.
    name: String,
    kept: usize,
    /// Tokens by which the numbers of the schema may grow.
    numbers: u64,
}

/// One open container.
#[derive(Debug, Clone, Copy)]
struct SchemaLevel {
    start: u64,
    /// Its members are definitions.
    defines: bool,
    /// It is this definition.
    definition: Option<usize>,
    kind: JsonContainer,
}

#[derive(Debug)]
struct Definition {
    name: String,
    bytes: u64,
    /// Tokens by which its numbers may grow.
    numbers: u64,
    /// The references in it.
    references: Vec<usize>,
}

impl SchemaVisitor {
    pub(super) fn new(reader: SchemaUse) -> Self {
        Self {
            reader,
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

    /// Takes a name. A definition may have any, those of keywords among them.
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

    /// Takes a value that is no container.
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
        if is_outside && self.reader == SchemaUse::Answer {
            return Err(refused(&format!(
                "a schema may not point outside of itself, as it does with '{}'; put the definition into the schema and refer to it as '#/$defs/NAME'",
                clip(text.as_str(), 64)
            )));
        }
        if keyword == Keyword::Reference { self.refer(text) } else { Ok(()) }
    }

    /// A list of numbers is an `enum`, or a value that a gateway may write anew.
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
        if !text.whole {
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

    /// The schema is complete. Says how many bytes it grows by when every reference in it is written out.
    ///
    /// # Errors
    /// When that is too many.
    pub(super) fn finish(&self) -> Result<u64, Refusal> {
        if self.references.is_empty() {
            return Ok(self.numbers);
        }
        RefExpansion::of(self).map(|unfolding| unfolding.bytes.saturating_add(self.numbers)).ok_or_else(|| {
            refused(&format!(
                "the references of the schema unfold to more than {UNFOLDED_MAX} places or 1 MiB; write it flatter"
            ))
        })
    }
}

/// The work of somebody who writes every reference out, except those to what is being written out already.
struct RefExpansion<'a> {
    schema: &'a SchemaVisitor,
    /// For each reference the definitions of its name.
    targets: Vec<Vec<usize>>,
    open: Vec<bool>,
    places: u64,
    bytes: u64,
}

impl<'a> RefExpansion<'a> {
    /// `None` when there is too much of it.
    fn of(schema: &'a SchemaVisitor) -> Option<Self> {
        let mut named: HashMap<&str, Vec<usize>> = HashMap::new();
        for (i, definition) in schema.definitions.iter().enumerate() {
            named.entry(&definition.name).or_default().push(i);
        }
        let targets = schema.references.iter().map(|name| named.get(name.as_str()).cloned().unwrap_or_default());
        let targets = targets.collect();
        let open = vec![false; schema.definitions.len()];
        let mut unfolding = Self { schema, targets, open, places: 0, bytes: 0 };
        (0..schema.references.len()).all(|reference| unfolding.write(reference)).then_some(unfolding)
    }

    fn write(&mut self, reference: usize) -> bool {
        self.places += 1;
        if self.places > UNFOLDED_MAX || self.bytes > UNFOLDED_BYTES_MAX {
            return false;
        }
        for i in 0..self.targets[reference].len() {
            let target = self.targets[reference][i];
            if std::mem::replace(&mut self.open[target], true) {
                continue;
            }
            let definition = &self.schema.definitions[target];
            self.bytes += definition.bytes + definition.numbers;
            if !definition.references.iter().all(|inner| self.write(*inner)) {
                return false;
            }
            self.open[target] = false;
        }
        true
    }
}

/// Tokens by which a value that is neither text nor a container may grow when it is written anew.
///
/// LiteLLM, like OpenAI, shows a model the numbers of an `enum` as `"1" | "2"`, and other lists with a blank behind each
/// comma: two bytes of JSON are up to four tokens. A number of few characters with an exponent may be written with
/// all of its digits, of which there are at most seventeen before Python takes to exponents itself.
pub(super) fn written_anew(value: JsonScalar<'_>) -> u64 {
    match value {
        JsonScalar::Number(digits) if digits.iter().any(|digit| matches!(digit, b'e' | b'E')) => 24,
        _ => 4,
    }
}

/// A JSON pointer into the same schema. A name, `#name`, could stand anywhere in it.
fn is_pointer(text: StrPrefix<'_>) -> bool {
    text.whole() == Some(b"#") || text.whole && text.head.starts_with(b"#/")
}

fn is_known_dialect(text: StrPrefix<'_>) -> bool {
    let name = if text.whole { text.as_str() } else { "" };
    let name = name.strip_prefix("http://").or_else(|| name.strip_prefix("https://")).unwrap_or_default();
    DIALECTS.contains(&name.strip_suffix('#').unwrap_or(name))
}

fn refused(message: &str) -> Refusal {
    Refusal::new(Reason::ParamNotAllowed, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{JsonError, JsonVisitor, Scanner};

    struct Whole(SchemaVisitor);

    impl JsonVisitor for Whole {
        type Stop = Refusal;

        fn key(&mut self, _depth: usize, key: StrPrefix<'_>, _start: u64) -> Result<(), Refusal> {
            self.0.key(key);
            Ok(())
        }
        fn open(&mut self, _depth: usize, kind: JsonContainer, start: u64) -> Result<(), Refusal> {
            self.0.open(kind, start)
        }
        fn close(&mut self, _depth: usize, _kind: JsonContainer, end: u64) -> Result<(), Refusal> {
            self.0.close(end);
            Ok(())
        }
        fn scalar(&mut self, _depth: usize, value: JsonScalar<'_>, _start: u64, _end: u64) -> Result<(), Refusal> {
            self.0.scalar(value)
        }
    }

    fn read(reader: SchemaUse, schema: &str) -> Result<u64, Refusal> {
        let (mut scanner, mut whole) = (Scanner::new(), Whole(SchemaVisitor::new(reader)));
        scanner.feed(schema.as_bytes(), &mut whole)?;
        let ended: Result<(), Refusal> = scanner.finish(&mut whole);
        ended.map_err(|_| Refusal::from(JsonError::Ended(0)))?;
        whole.0.finish()
    }

    /// `levels` definitions, each of which refers to the next one `width` times.
    fn ladder(levels: usize, width: usize, pointer: impl Fn(usize) -> String) -> String {
        let step = |level: usize| {
            let one = format!(r#"{{"$ref":"{}"}}"#, pointer(level + 1));
            format!(r#""d{level}":{{"allOf":[{}]}}"#, vec![one; width].join(","))
        };
        let steps: Vec<_> = (0..levels).map(step).collect();
        format!(r#"{{"$ref":"{}","$defs":{{{},"d{levels}":{{"type":"string"}}}}}}"#, pointer(0), steps.join(","))
    }

    #[test]
    fn a_pointer_into_the_schema_passes() {
        for good in [
            r##"{"$ref":"#"}"##,
            r##"{"$defs":{"A":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/A"}}}"##,
            r##"{"definitions":{"Foo<string>":{}},"$ref":"#/definitions/Foo%3Cstring%3E"}"##,
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}"#,
            r#"{"$schema":"https://json-schema.org/draft/2020-12/schema"}"#,
            r#"{"properties":{"$ref":{"type":"string"},"$id":{"type":"string"},"id":{"type":"string"}}}"#,
            r##"{"$defs":{"Tree":{"properties":{"l":{"$ref":"#/$defs/Tree"},"r":{"$ref":"#/$defs/Tree"}}}},"$ref":"#/$defs/Tree"}"##,
            "true",
        ] {
            assert!(read(SchemaUse::Answer, good).is_ok(), "{good}");
            assert!(read(SchemaUse::Tool, good).is_ok(), "{good}");
        }
    }

    #[test]
    fn what_points_outside_is_refused_where_it_would_be_followed() {
        for bad in [
            r#"{"$ref":"http://evil/x"}"#,
            r#"{"$ref":"file:///etc/passwd#/a"}"#,
            r#"{"\u0024ref":"http://evil"}"#,
            r#"{"$ref":"\u0068ttp://evil"}"#,
            r#"{"$ref":"other.json"}"#,
            r##"{"$ref":"#anchor"}"##,
            r#"{"$dynamicRef":"http://evil"}"#,
            r#"{"$recursiveRef":"http://evil"}"#,
            r#"{"$id":"http://evil/"}"#,
            r#"{"$schema":"http://evil/"}"#,
            r#"{"$schema":"http://json-schema.org/draft-04/schema#"}"#,
            r#"{"a":[[{"b":{"$ref":" #/x"}}]]}"#,
            r#"{"default":{"$ref":"//evil"}}"#,
            r#"{"$defs":{"$ref":"http://evil"}}"#,
            r#"{"properties":{"definitions":{"$id":"http://evil/"}}}"#,
            r#"{"$ref":""}"#,
        ] {
            let refused = read(SchemaUse::Answer, bad).err().map(|refusal| refusal.reason);
            assert_eq!(refused, Some(Reason::ParamNotAllowed), "{bad}");
            assert!(read(SchemaUse::Tool, bad).is_ok(), "{bad}");
        }
        let long = format!(r##"{{"$ref":"#/{}"}}"##, "a".repeat(900));
        assert!(read(SchemaUse::Answer, &long).is_err(), "a pointer that was not kept whole");
    }

    #[test]
    fn references_that_multiply_are_refused() {
        let spelled: [&dyn Fn(usize) -> String; 3] =
            [&|level| format!("#/$defs/d{level}"), &|level| format!("#/nowhere/d{level}"), &|level| {
                format!("#/%24defs/d{level}")
            }];
        for reader in [SchemaUse::Answer, SchemaUse::Tool] {
            for pointer in spelled {
                assert!(read(reader, &ladder(9, 4, pointer)).is_err());
                assert!(read(reader, &ladder(3, 4, pointer)).is_ok());
                assert!(read(reader, &ladder(50, 1, pointer)).is_ok(), "a chain does not multiply");
                assert!(read(reader, &ladder(1001, 1, pointer)).is_err(), "so many no program has");
            }
            let all: Vec<_> = (0..9).map(|i| format!(r##"{{"$ref":"#/$defs/d{i}"}}"##)).collect();
            let each: Vec<_> = (0..9).map(|i| format!(r#""d{i}":{{"anyOf":[{}]}}"#, all.join(","))).collect();
            let circles = format!(r#"{{"$defs":{{{}}}}}"#, each.join(","));
            assert!(read(reader, &circles).is_err(), "ways through nine definitions that all refer to each other");
            let large = format!(
                r##"{{"$defs":{{"d":{{"description":"{}"}}}},"anyOf":[{}]}}"##,
                "x".repeat(100_000),
                vec![r##"{"$ref":"#/$defs/d"}"##; 50].join(",")
            );
            assert!(read(reader, &large).is_err(), "few references to something large");
        }
    }

    #[test]
    fn a_definition_counts_whatever_its_name() {
        for name in ["$ref", "$id", "$schema", "$defs", "definitions", "schemas", "$dynamicRef"] {
            let schema = format!(r##"{{"$defs":{{"{name}":{{"a":1}}}},"x":{{"$ref":"#/$defs/{name}"}}}}"##);
            assert_eq!(read(SchemaUse::Tool, &schema).expect("allowed"), 7, "{name}");
        }
        let inner = r##"{"definitions":{"$defs":{"A":{"a":1},"B":{"$ref":"#/A"}}}}"##;
        assert_eq!(read(SchemaUse::Tool, inner).expect("allowed"), 7, "definitions among definitions");
        let name = "n".repeat(900);
        let long = format!(r##"{{"$defs":{{"{name}":{{"a":1}}}},"x":{{"$ref":"#/$defs/{name}"}}}}"##);
        assert!(read(SchemaUse::Tool, &long).is_err(), "a name that was not kept whole");
    }

    #[test]
    fn what_a_schema_grows_by_is_told() {
        let grows = |schema: &str| read(SchemaUse::Tool, schema).expect("allowed");
        assert_eq!(grows(r#"{"type":"object"}"#), 0);
        assert_eq!(grows(r##"{"$ref":"#/$defs/A","$defs":{"A":{"a":1}}}"##), 7);
        assert_eq!(grows(r##"{"a":{"$ref":"#/$defs/A"},"b":{"$ref":"x/A"},"definitions":{"A":{"a":1}}}"##), 14);
        assert_eq!(grows(r#"{"enum":[1,true,null,"a"],"minimum":5,"maximum":1e15}"#), 3 * 4 + 24, "numbers in lists");
        assert_eq!(grows(r##"{"$ref":"#/$defs/A","$defs":{"A":{"a":[1]}}}"##), 4 + 9 + 4);
        // The one in B is written out where it stands, and where B is written out.
        assert_eq!(grows(r##"{"$ref":"#/B","$defs":{"A":{"a":1},"B":{"$ref":"A"}}}"##), 7 + 12 + 7);
    }
}
