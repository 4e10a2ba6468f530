//! Checks requests and answers against an extract of GitHub's own schema, which `tests/emulate/schema.py` makes.

use serde_json::{Map, Value, json};

use super::shapes::{GitHubPullRequest, GitHubRepository, GitReference, Merged};
use super::{app, merging, opening};
use crate::forge::merge_request::{MergeMethod, MergeRequest};
use crate::forge::pull_request::NewPullRequest;

const SCHEMA: &str = include_str!("schema.json");
const NEW: NewPullRequest<'_> =
    NewPullRequest { head: "feature/a", head_sha: "", base: "main", title: "t", body: "b", is_draft: true };

/// Returns the differences between a value and a schema.
fn faults(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64(),
        _ => true,
    };
    if !is_type {
        found.push(format!("{at}: {value} is not of type {}", schema["type"]));
    }
    if schema["enum"].as_array().is_some_and(|allowed| !allowed.contains(value)) {
        found.push(format!("{at}: {value} is not one of {}", schema["enum"]));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            found.push(format!("{at}.{name} is missing"));
        }
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(name) {
            Some(schema) => found.extend(faults(schema, member, &format!("{at}.{name}"))),
            None => found.push(format!("{at}.{name} is unknown")),
        }
    }
    for member in value.as_array().into_iter().flatten() {
        found.extend(faults(&schema["items"], member, at));
    }
    found
}

#[test]
fn requests_are_as_the_schema_of_github_says() {
    let schema: Value = serde_json::from_str(SCHEMA).expect("it is JSON");
    let methods = [MergeMethod::Squash, MergeMethod::Merge, MergeMethod::Rebase];
    let mut requests = vec![
        ("pulls/create", opening(&NEW)),
        ("apps/create-installation-access-token", app::grant(&"o/r".parse().expect("a name"))),
    ];
    requests.extend(methods.map(|method| {
        ("pulls/merge", merging(&MergeRequest { method, head_sha: "a", base: "main", title: "t", message: "m" }))
    }));
    for (operation, body) in requests {
        assert_eq!(faults(&schema["requests"][operation]["schema"], &body, operation), Vec::<String>::new());
    }
    let wrong = json!({"merge_method": "octopus", "sha": 1, "x": true});
    assert_eq!(faults(&schema["requests"]["pulls/merge"]["schema"], &wrong, "").len(), 3);
}

/// Makes a value with only the required members of a schema; null where it allows that.
fn least(schema: &Value) -> Value {
    if schema["nullable"] == true {
        return Value::Null;
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let members = required.map(|name| (name.to_owned(), least(&schema["properties"][name])));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Some("array") => json!([least(&schema["items"])]),
        Some("integer") => json!(1),
        Some("boolean") => json!(false),
        _ => schema["enum"].get(0).cloned().unwrap_or_else(|| json!("x")),
    }
}

#[test]
fn the_least_answers_of_the_schema_are_read() {
    let schema: Value = serde_json::from_str(SCHEMA).expect("it is JSON");
    let value = |operation: &str| least(&schema["responses"][operation]["schema"]);
    for operation in ["pulls/get", "pulls/create"] {
        let read: GitHubPullRequest = serde_json::from_value(value(operation)).expect(operation);
        assert_eq!((read.number, read.state.as_str(), read.mergeable), (1, "open", None));
    }
    assert_eq!(serde_json::from_value::<Vec<GitHubPullRequest>>(value("pulls/list")).expect("a list").len(), 1);
    assert!(!serde_json::from_value::<Merged>(value("pulls/merge")).expect("an end").merged);
    assert_eq!(serde_json::from_value::<GitReference>(value("git/get-ref")).expect("a ref").object.sha, "x");
    assert_eq!(serde_json::from_value::<GitHubRepository>(value("repos/get")).expect("one").default_branch, "x");
    assert!(value("apps/create-installation-access-token")["token"].is_string());
    for status in ["405", "409", "422"] {
        assert!(schema["responses"]["pulls/merge"]["statuses"].as_array().expect("a list").contains(&json!(status)));
    }
}
