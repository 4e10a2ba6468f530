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

fn read(schema_use: SchemaUse, schema: &str) -> Result<u64, Refusal> {
    let (mut scanner, mut complete) = (Scanner::new(), Whole(SchemaVisitor::new(schema_use)));
    scanner.feed(schema.as_bytes(), &mut complete)?;
    let ended: Result<(), Refusal> = scanner.finish(&mut complete);
    ended.map_err(|_| Refusal::from(JsonError::Ended(0)))?;
    complete.0.finish()
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
fn references_to_the_outside_are_refused() {
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
    for schema_use in [SchemaUse::Answer, SchemaUse::Tool] {
        for pointer in spelled {
            assert!(read(schema_use, &ladder(9, 4, pointer)).is_err());
            assert!(read(schema_use, &ladder(3, 4, pointer)).is_ok());
            assert!(read(schema_use, &ladder(50, 1, pointer)).is_ok(), "a chain does not multiply");
            assert!(read(schema_use, &ladder(1001, 1, pointer)).is_err(), "so many no program has");
        }
        let all: Vec<_> = (0..9).map(|i| format!(r##"{{"$ref":"#/$defs/d{i}"}}"##)).collect();
        let each: Vec<_> = (0..9).map(|i| format!(r#""d{i}":{{"anyOf":[{}]}}"#, all.join(","))).collect();
        let circles = format!(r#"{{"$defs":{{{}}}}}"#, each.join(","));
        assert!(read(schema_use, &circles).is_err(), "ways through nine definitions that all refer to each other");
        let large = format!(
            r##"{{"$defs":{{"d":{{"description":"{}"}}}},"anyOf":[{}]}}"##,
            "x".repeat(100_000),
            vec![r##"{"$ref":"#/$defs/d"}"##; 50].join(",")
        );
        assert!(read(schema_use, &large).is_err(), "few references to something large");
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
fn the_growth_of_a_schema_is_returned() {
    let grows = |schema: &str| read(SchemaUse::Tool, schema).expect("allowed");
    assert_eq!(grows(r#"{"type":"object"}"#), 0);
    assert_eq!(grows(r##"{"$ref":"#/$defs/A","$defs":{"A":{"a":1}}}"##), 7);
    assert_eq!(grows(r##"{"a":{"$ref":"#/$defs/A"},"b":{"$ref":"x/A"},"definitions":{"A":{"a":1}}}"##), 14);
    assert_eq!(grows(r#"{"enum":[1,true,null,"a"],"minimum":5,"maximum":1e15}"#), 3 * 4 + 24, "numbers in lists");
    assert_eq!(grows(r##"{"$ref":"#/$defs/A","$defs":{"A":{"a":[1]}}}"##), 4 + 9 + 4);
    // The reference in B is written out in its own place, and where B is written out.
    assert_eq!(grows(r##"{"$ref":"#/B","$defs":{"A":{"a":1},"B":{"$ref":"A"}}}"##), 7 + 12 + 7);
}
