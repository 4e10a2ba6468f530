//! Recognition of the responses by which LiteLLM refuses a call for one of its own budgets.
//!
//! Pure. An error body cannot be believed by itself: LiteLLM copies `type` and `code` from the bodies of some
//! providers. But it puts `litellm.SomeError: ` before each message of a provider, and names the call in a header of
//! each response that is past its own checks. A refusal for a budget comes before those, so it has neither.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::header::{self, HeaderMap};
use http::{StatusCode, response};
use serde_json::value::RawValue;
use sluice_contract::Usd;
use sluice_contract::budget::{BUDGET_EXCEEDED, BudgetRefusal, owner_in_words};

use crate::refusal::{Reason, Refusal};

/// Maximum length of a response that is read, in bytes.
pub const MAX: usize = 8192;

/// Returns true if a response with this head can be a refusal for a budget, so that its body has to be read first.
#[must_use]
pub fn is_candidate(head: &response::Parts) -> bool {
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    head.status.is_client_error()
        && (head.status == StatusCode::TOO_MANY_REQUESTS || !is_past_checks(&head.headers))
        && text(header::CONTENT_TYPE).starts_with("application/json")
        && text(header::CONTENT_LENGTH).parse().is_ok_and(|length: usize| (1..=MAX).contains(&length))
}

/// Returns the budget that LiteLLM refused the call for, if the response is such a refusal of LiteLLM's own.
#[must_use]
pub fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<BudgetRefusal> {
    let members: BTreeMap<&str, &RawValue> = serde_json::from_slice(body).ok()?;
    let error: BTreeMap<&str, &RawValue> = serde_json::from_str(members.get("error")?.get()).ok()?;
    let text = |name| serde_json::from_str::<Cow<'_, str>>(error.get(name)?.get()).ok();
    let message = text("message")?;
    // A router refuses after the checks, with a status that no provider bills.
    if status == StatusCode::TOO_MANY_REQUESTS
        && let Some(budget) = BudgetRefusal::of_router(&message)
    {
        return Some(budget);
    }
    let is_own = !is_past_checks(headers) && text("type")? == BUDGET_EXCEEDED && text("code")? == status.as_str();
    if is_own { BudgetRefusal::of_account(&message) } else { None }
}

/// Returns true if LiteLLM had admitted the request when it made the response.
fn is_past_checks(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("x-litellm-") || name.as_str().starts_with("llm_provider-"))
}

/// Returns the refusal that the agent gets.
#[must_use]
pub fn refusal(budget: &BudgetRefusal) -> Refusal {
    let usd = |nanos| Usd::from_nanos(nanos).to_string();
    let amounts = match (budget.spent, budget.limit) {
        (Some(spent), Some(limit)) => format!(" (${} spent or reserved of ${})", usd(spent), usd(limit)),
        _ => String::new(),
    };
    let message = format!(
        "LiteLLM refused the call: its budget for {} has no room left{amounts}; no provider was asked, and the call is not \
         billed; the operator has to raise that budget at LiteLLM, or wait until it is reset",
        owner_in_words(budget.owner)
    );
    Refusal::new(Reason::BudgetExceeded, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const MESSAGE: &str = "Budget has been exceeded! Key=alias-1 (sk-...goDw) Current cost: 0.3, Max budget: 0.25";

    fn own(message: &str) -> String {
        let error = serde_json::json!({"message": message, "type": "budget_exceeded", "param": null, "code": "422"});
        serde_json::json!({ "error": error }).to_string()
    }

    fn of_provider() -> HeaderMap {
        HeaderMap::from_iter([("x-litellm-call-id".parse().expect("a name"), HeaderValue::from_static("x"))])
    }

    fn read_422(body: &str) -> Option<BudgetRefusal> {
        read(StatusCode::UNPROCESSABLE_ENTITY, &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn a_refusal_names_the_budget_without_the_key() {
        let told = refusal(&read_422(&own(MESSAGE)).expect("one of LiteLLM's"));
        assert_eq!(told.reason, Reason::BudgetExceeded);
        assert!(told.message.contains("the key that the sidecar has"), "{}", told.message);
        assert!(told.message.contains("($0.3 spent or reserved of $0.25)"), "{}", told.message);
        assert!(!told.message.contains("alias-1") && !told.message.contains("goDw"), "{}", told.message);
    }

    #[test]
    fn an_error_of_a_provider_is_not_a_budget() {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        assert_eq!(read(status, &of_provider(), own(MESSAGE).as_bytes()), None, "past the checks");
        for body in [
            String::new(),
            "[]".to_owned(),
            own(&format!("litellm.BadRequestError: OpenAIException - {MESSAGE}")),
            format!(r#"{{"error":"{MESSAGE}"}}"#),
            format!(r#"{{"error":{{"message":"{MESSAGE}"}}}}"#),
            own(MESSAGE).replace("budget_exceeded", "invalid_request_error"),
            own(MESSAGE).replace("\"422\"", "\"400\""),
            own(MESSAGE).replace("\"422\"", "422"),
            own("Something else"),
        ] {
            assert_eq!(read_422(&body), None, "{body}");
        }
    }

    #[test]
    fn a_router_is_believed_with_its_own_status_alone() {
        let message = "No deployments available - crossed budget: Exceeded budget for provider anthropic: 2 >= 1\n";
        let error = serde_json::json!({"type": "rate_limit_error", "message": message});
        let body = serde_json::json!({"type": "error", "error": error}).to_string();
        let owner = |status| read(status, &of_provider(), body.as_bytes()).map(|budget| budget.owner);
        assert_eq!(owner(StatusCode::TOO_MANY_REQUESTS), Some("provider"));
        assert_eq!(owner(StatusCode::BAD_REQUEST), None);
    }

    #[test]
    fn only_short_refusals_are_read_before_they_go_on() {
        let head = |status: u16, headers: &[(&'static str, &str)]| {
            let mut head = http::Response::builder().status(status);
            for (name, value) in headers {
                head = head.header(*name, *value);
            }
            head.body(()).expect("a head").into_parts().0
        };
        let json = ("content-type", "application/json");
        let (short, long) = (("content-length", "164"), ("content-length", "8193"));
        for (status, headers, expected) in [
            (422, &[json, short][..], true),
            (400, &[json, short], true),
            (403, &[json, short], true),
            (429, &[json, short, ("x-litellm-call-id", "x")], true),
            (422, &[json, short, ("x-litellm-call-id", "x")], false),
            (422, &[json, long], false),
            (422, &[json], false),
            (422, &[short], false),
            (200, &[json, short], false),
            (500, &[json, short], false),
        ] {
            assert_eq!(is_candidate(&head(status, headers)), expected, "{status} {headers:?}");
        }
    }
}
