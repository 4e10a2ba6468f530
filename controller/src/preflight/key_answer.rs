//! Verdict on the key and the address, from the upstream's answer to `GET /v1/models`.
//!
//! Pure. The sidecar passes on most answers; it replaces a few by its own, with a reason.

use sluice_contract::text::truncate;

use super::{Check, fail, pass, warn};
use crate::settings::ConfiguredModel;

const NAME: &str = "upstream key";

/// Returns the check of the key, from the sidecar's answer to `GET /v1/models`: head, an empty line, body.
pub(super) fn key_check(upstream: &str, answer: &str) -> Check {
    let (head, text) = answer.split_once("\n\n").unwrap_or((answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    let body: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let said = || truncate(body["error"]["message"].as_str().unwrap_or(status));
    match (status, head.lines().find_map(|line| line.strip_prefix("x-sluice-reason: "))) {
        ("200", _) => pass(NAME, format!("{upstream} takes it")),
        (_, Some("upstream_auth")) => {
            // The sidecar's text has the status of the upstream.
            let status = if said().contains("status 403") { "403" } else { "401" };
            fail(
                NAME,
                format!("{upstream} refused the key with status {status}; write its key into the file of key_file"),
            )
        }
        (_, Some("upstream_closed")) => {
            let cause = "closed the connection instead of an answer to GET /v1/models";
            fail(NAME, format!("{upstream} {cause}; if it speaks TLS on this port, write https://, else read its log"))
        }
        (_, Some(_)) => fail(NAME, format!("{upstream}: {}", said())),
        ("400", None) if text.to_ascii_lowercase().contains("https") => {
            fail(NAME, format!("{upstream} speaks TLS on this port; write https://"))
        }
        ("400", None) => fail(
            NAME,
            format!(
                "{upstream} answered GET /v1/models with status 400, as a LiteLLM without a database does when the key is \
                 wrong; correct the key in the file of key_file, or read the upstream's log"
            ),
        ),
        ("404", None) => warn(NAME, format!("{upstream} has no GET /v1/models, so the key could not be tried")),
        (status, None) => fail(
            NAME,
            format!("{upstream} answered GET /v1/models with status {status}, so calls may fail; its own log says why"),
        ),
    }
}

/// Returns the check of a key that works, as a warning about configured models that the upstream does not list for it. It is
/// not a failure: an upstream may take a model under another name.
pub(super) fn unlisted_check(upstream: &str, unlisted: &[&ConfiguredModel]) -> Check {
    let named: Vec<_> = unlisted.iter().map(|model| format!("{} ({})", model.name, model.setting)).collect();
    let named = named.join(", ");
    warn(
        NAME,
        format!(
            "{upstream} takes it, and does not list {named} among the models of this key, so such calls may be refused; \
             correct the setting, or allow the model for the key at LiteLLM"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::CheckStatus::{self, Fail, Pass, Warn};
    use super::*;

    fn check(upstream: &str, status: &str, reason: &str, body: &str) -> (CheckStatus, String) {
        let reason = if reason.is_empty() { String::new() } else { format!("\nx-sluice-reason: {reason}") };
        let check = key_check(upstream, &format!("HTTP/1.1 {status} X{reason}\n\n{body}"));
        (check.status, check.detail)
    }

    #[test]
    fn each_answer_names_cause_and_remedy() {
        let refused = r#"{"error":{"message":"the upstream refused the sidecar's key, or …, with status 403; …"}}"#;
        let plain = "http://h:1";
        for (upstream, status, reason, body, expected, words) in [
            (plain, "200", "", "{}", Pass, "http://h:1 takes it"),
            (plain, "502", "upstream_auth", "{}", Fail, "http://h:1 refused the key with status 401; write"),
            (plain, "502", "upstream_auth", refused, Fail, "refused the key with status 403"),
            (plain, "502", "upstream_closed", "", Fail, "write https://"),
            (plain, "502", "upstream_unreachable", r#"{"error":{"message":"no"}}"#, Fail, "http://h:1: no"),
            (plain, "400", "", "Client sent an HTTP request to an HTTPS server.", Fail, "speaks TLS on this port"),
            (plain, "400", "", "{}", Fail, "without a database"),
            (plain, "404", "", "{}", Warn, "could not be tried"),
            (plain, "503", "", "{}", Fail, "http://h:1 answered GET /v1/models with status 503"),
        ] {
            let (got, detail) = check(upstream, status, reason, body);
            assert_eq!(got, expected, "{detail}");
            assert!(detail.contains(words), "{detail}");
        }
    }

    #[test]
    fn unlisted_models_are_named_with_their_settings() {
        let model = |name: &str, setting: &str| ConfiguredModel { name: name.to_owned(), setting: setting.to_owned() };
        let (file, variable) = (model("gpt-x", "model in /etc/sluice/sluice.toml:3"), model("gpt-y", "SLUICE_MODEL"));

        let check = unlisted_check("http://h:1", &[&file, &variable]);

        let named = "does not list gpt-x (model in /etc/sluice/sluice.toml:3), gpt-y (SLUICE_MODEL) among the models";
        assert!(check.status == Warn && check.detail.contains(named), "{check:?}");
    }
}
