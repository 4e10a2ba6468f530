//! Answers that a provider cannot have billed.
//!
//! Pure: the status of the answer decides, and nothing else. The sidecar's caps and the ledger's reconciliation ask the
//! same function, so that a call cannot be free for one of them and open for the other.

/// The statuses of answers that no provider bills, each with its reason, in ascending order.
///
/// A status belongs here only if the request was refused before a model worked on it. Deliberately absent:
///
/// - 408 and 499: the wait was given up; the provider may have continued, and bills the generated tokens.
/// - 409 and 424: on these routes neither LiteLLM nor a provider documents their meaning.
/// - 422: LiteLLM also gives it for an answer of the provider that it could not read (Replicate, Predibase).
/// - 5xx: LiteLLM gives 500 when an answer fails its own checks after the provider made it, and 502 to 504 when a
///   connection broke while the provider may have been at work.
/// - Everything below 400: an answer began.
///
/// Three exceptions remain, all with 400, and only the spend log or the provider's invoice shows them: Azure bills the
/// prompt of a request that its content filter refuses; a guardrail of LiteLLM that checks answers refuses after the
/// provider answered; and LiteLLM turns an answer of Bedrock that it could not read into a 400.
pub const NEVER_BILLED: [(u16, &str); 10] = [
    (400, "the request is malformed, or breaks a limit or a rule that is checked before the model works"),
    (401, "the key is missing or wrong"),
    (402, "the account has no credit left"),
    (403, "the key may not use this model or this route"),
    (404, "there is no such model or route"),
    (405, "the route does not take this method"),
    (406, "the route has no answer of the type that was asked for"),
    (413, "the request is too large to be read"),
    (415, "the request's type of body is not read"),
    (429, "a rate limit or a budget refused the request"),
];

/// Returns whether a provider could bill a call whose answer had this status; `None` is a call without an answer.
///
/// It concerns calls that were sent, on routes that are billed. Where it returns true and no cost is known, the call
/// is charged as reserved until the spend log says otherwise. Statuses that [`NEVER_BILLED`] does not list could be
/// billed, also those that do not exist yet.
#[must_use]
pub fn could_be_billed(status: Option<u16>) -> bool {
    status.is_none_or(|status| NEVER_BILLED.iter().all(|(never, _)| *never != status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_was_refused_is_never_billed() {
        let free: Vec<u16> = (0..=u16::MAX).filter(|status| !could_be_billed(Some(*status))).collect();
        assert_eq!(free, [400, 401, 402, 403, 404, 405, 406, 413, 415, 429]);
        for status in [200, 204, 307, 408, 409, 422, 424, 499, 500, 502, 503, 504, 529, 599] {
            assert!(could_be_billed(Some(status)), "{status}");
        }
    }

    #[test]
    fn a_call_without_an_answer_could_be_billed() {
        assert!(could_be_billed(None));
    }

    #[test]
    fn each_status_is_listed_once_with_its_reason() {
        assert!(NEVER_BILLED.is_sorted_by(|one, next| one.0 < next.0));
        assert!(NEVER_BILLED.iter().all(|(_, reason)| !reason.is_empty()));
    }
}
