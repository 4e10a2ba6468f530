//! The models that an upstream lists for its key, and the configured ones that are not among them.
//!
//! Pure.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::settings::ConfiguredModel;

/// An answer to `GET /v1/models`.
#[derive(Debug, Deserialize)]
struct ModelsAnswer {
    data: Vec<KeyModel>,
    /// True if the answer is one page of a longer list.
    #[serde(default)]
    has_more: bool,
}

/// A model of an answer.
#[derive(Debug, Deserialize)]
struct KeyModel {
    id: String,
}

/// The names of the models that an upstream lists for its key. A name of LiteLLM may be a wildcard, such as `openai/*`.
#[derive(Debug)]
pub(super) struct ListedModels(BTreeSet<String>);

impl ListedModels {
    /// Reads the body of an answer to `GET /v1/models`. Returns `None` if it does not say which models the key may use: it
    /// is not a list of models, it is one page of several, or it is empty, as with a LiteLLM whose only model is `*`.
    pub(super) fn read(body: &str) -> Option<Self> {
        let answer: ModelsAnswer = serde_json::from_str(body).ok()?;
        let names: BTreeSet<_> = answer.data.into_iter().map(|model| model.id).collect();
        (!answer.has_more && !names.is_empty()).then_some(Self(names))
    }

    /// Returns the configured models that the upstream does not list, and that no wildcard covers.
    pub(super) fn missing<'a>(&self, configured: &'a [ConfiguredModel]) -> Vec<&'a ConfiguredModel> {
        configured.iter().filter(|model| !self.has(&model.name)).collect()
    }

    fn has(&self, name: &str) -> bool {
        let is_covered = |pattern: &String| {
            // LiteLLM adds the provider to a name that it knows: with openai/*, it serves gpt-4o as openai/gpt-4o.
            let full = pattern.split_once('/').map(|(provider, _)| format!("{provider}/{name}"));
            covers(pattern, name) || full.is_some_and(|full| covers(pattern, &full) && self.0.contains(&full))
        };
        self.0.contains(name) || self.0.iter().filter(|listed| listed.contains('*')).any(is_covered)
    }
}

/// Returns whether a wildcard of LiteLLM covers a name: each `*` matches any text.
fn covers(pattern: &str, name: &str) -> bool {
    let Some((start, pattern)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(start) else { return false };
    let (middle, end) = pattern.rsplit_once('*').unwrap_or(("", pattern));
    for part in middle.split('*') {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_models_are_missing() {
        for (listed, configured, expected) in [
            (&["gpt-a", "gpt-b"][..], "gpt-a gpt-b", ""),
            (&["gpt-a"], "gpt-a gpt-x gpt-y", "gpt-x gpt-y"),
            (&["gpt-a"], "gpt", "gpt"),
            (&["gpt-a", "openai/*"], "openai/gpt-9 anthropic/x gpt-9", "anthropic/x gpt-9"),
            (&["openai/gpt-9", "openai/*"], "gpt-9 gpt-8", "gpt-8"),
            (&["openai/gpt-9"], "gpt-9", "gpt-9"),
            (&["*"], "gpt-9 openai/gpt-9", ""),
            (&["gpt-*-mini"], "gpt-4o-mini gpt-4o", "gpt-4o"),
            (&["a*b*c"], "abc axbxc ac acb", "ac acb"),
        ] {
            let data: Vec<_> = listed.iter().map(|name| serde_json::json!({ "id": name })).collect();
            let body = serde_json::json!({ "object": "list", "data": data }).to_string();
            let listed = ListedModels::read(&body).expect("a list");
            let model = |name: &str| ConfiguredModel { name: name.to_owned(), setting: "model".to_owned() };
            let configured: Vec<_> = configured.split(' ').map(model).collect();
            let missing: Vec<_> = listed.missing(&configured).iter().map(|model| model.name.as_str()).collect();
            assert_eq!(missing.join(" "), expected, "{body}");
        }
    }

    #[test]
    fn an_answer_without_a_whole_list_says_nothing() {
        for body in [
            "",
            "<html>",
            "[]",
            "{}",
            r#"{"data":[]}"#,
            r#"{"data":{}}"#,
            r#"{"data":[{"name":"a"}]}"#,
            r#"{"data":[{"id":"a"}],"has_more":true}"#,
        ] {
            assert!(ListedModels::read(body).is_none(), "{body}");
        }
        assert!(ListedModels::read(r#"{"data":[{"id":"a"}],"has_more":false}"#).is_some());
    }
}
