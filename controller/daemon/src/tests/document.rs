//! The operations of the OpenAPI document, with requests that their handlers take.

use serde_json::{Map, Value, json};

use crate::api::openapi;

/// An operation of the document.
#[derive(Debug)]
pub(super) struct Documented {
    /// In upper case.
    pub(super) method: String,
    /// With parameters in braces.
    pub(super) path: String,
    /// A JSON body with the members that are required.
    pub(super) body: Option<Value>,
    /// True if its answer is a stream of events.
    pub(super) is_stream: bool,
    /// True if it is answered without a credential.
    pub(super) is_anonymous: bool,
    /// Names and schemas of its query.
    pub(super) query: Vec<(String, Value)>,
}

/// Returns all operations.
pub(super) fn operations() -> Vec<Documented> {
    let document = serde_json::to_value(openapi()).expect("plain data");
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let body = (!schema.is_null()).then(|| match path.as_str() {
                // The request needs one of three members; its schema does not show this.
                "/api/v1/sandboxes" => json!({ "task": "x" }),
                _ => example(&document, schema),
            });
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let query = parameters.filter(|parameter| parameter["in"] == "query");
            found.push(Documented {
                method: method.to_uppercase(),
                path: path.clone(),
                body,
                is_stream: operation["responses"]["200"]["content"]["text/event-stream"].is_object(),
                is_anonymous: operation["security"].as_array().is_some_and(|ways| ways.contains(&json!({}))),
                query: query
                    .map(|one| (one["name"].as_str().expect("a name").to_owned(), one["schema"].clone()))
                    .collect(),
            });
        }
    }
    found
}

/// Returns the smallest value of a schema.
fn example(document: &Value, schema: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document.pointer(&name[1..]).unwrap_or_else(|| panic!("{name} is not in the document"));
        return example(document, schema);
    }
    if let Some(values) = schema["enum"].as_array() {
        return values[0].clone();
    }
    for choice in ["oneOf", "anyOf"] {
        let choices = schema[choice].as_array().into_iter().flatten();
        if let Some(first) = { choices }.find(|choice| choice["type"] != "null") {
            return example(document, first);
        }
    }
    let kinds = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
    match kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null") {
        Some("string") => json!("x"),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        Some("array") => json!([example(document, &schema["items"])]),
        _ => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let member = |name: &str| (name.to_owned(), example(document, &schema["properties"][name]));
            Value::Object(required.map(member).collect::<Map<_, _>>())
        }
    }
}

impl Documented {
    /// Returns the parameters of the path, each with the segment before it.
    pub(super) fn parameters(&self) -> Vec<(&str, &str)> {
        let segments: Vec<_> = self.path.split('/').collect();
        let found = segments.windows(2).filter(|pair| pair[1].starts_with('{'));
        found.map(|pair| (pair[0], pair[1].trim_matches(['{', '}', '*']))).collect()
    }

    /// Returns the path with these values in place of its parameters.
    pub(super) fn at(&self, values: &[&str]) -> String {
        let mut values = values.iter();
        let segment = |segment: &str| match segment.starts_with('{') {
            true => (*values.next().expect("a value for each parameter")).to_owned(),
            false => segment.to_owned(),
        };
        self.path.split('/').map(segment).collect::<Vec<_>>().join("/")
    }
}

#[test]
fn each_reference_is_in_the_document() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = serde_json::to_value(openapi()).expect("plain data");
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 50, "{}", found.len());
    for reference in found {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference} is not in the document");
    }
}

/// Each `.route(…)` of the sources is in the document, with all its methods: generated tests cover only documented routes.
#[test]
fn each_route_is_documented() {
    let documented = operations();
    let is_documented = |method: &str, path: &str| {
        documented.iter().any(|one| one.method == method && one.path == path.replace("{*", "{"))
    };
    let mut seen = 0;
    for source in sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api")) {
        for route in source.split(".route(").skip(1) {
            let (path, handlers) = route.split_once('"').and_then(|(_, rest)| rest.split_once('"')).expect("a path");
            let handlers = handlers.split(".route(").next().unwrap_or_default();
            let handlers = handlers.split_once("\n        .").map_or(handlers, |(first, _)| first);
            let handlers = handlers.split_once('}').map_or(handlers, |(first, _)| first);
            for method in ["get", "post", "put", "delete", "patch"] {
                let is_handled = [",", ".", " "].iter().any(|before| handlers.contains(&format!("{before}{method}(")));
                let method = method.to_uppercase();
                assert!(!is_handled || is_documented(&method, path), "{method} {path} is not in the document");
                seen += usize::from(is_handled);
            }
        }
    }
    assert!(seen > 20 && seen >= documented.len(), "{seen}");
}

fn sources(directory: &std::path::Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(directory).expect("it is there").flatten() {
        match entry.path() {
            path if path.is_dir() => texts.extend(sources(&path)),
            path => texts.push(std::fs::read_to_string(path).expect("it is text").replace(".route(\n", ".route(")),
        }
    }
    // `api.rs` beside the directory has the document's own route.
    if directory.ends_with("api") {
        texts.push(std::fs::read_to_string(directory.with_extension("rs")).expect("it is there"));
    }
    texts
}
