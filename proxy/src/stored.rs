//! Objects that the provider stores, such as earlier responses: a run can name only those that it has received.

use std::sync::PoisonError;

use crate::body::ParsedBody;
use crate::refusal::{Reason, Refusal};
use crate::run::RunContext;
use crate::text::clip;

/// Maximum length of an id in messages.
const SHOWN_MAX: usize = 64;

/// Admits a request for a stored object by its id.
///
/// # Errors
/// `unknown_id`
pub fn admit(run: &RunContext, id: &str) -> Result<(), Refusal> {
    let is_known = run.known_ids.lock().unwrap_or_else(PoisonError::into_inner).tokens(id).is_some();
    if is_known {
        return Ok(());
    }
    let id = clip(id, SHOWN_MAX);
    let message = format!("this run has received no answer with the id '{id}'; it can name only its own");
    Err(Refusal::new(Reason::UnknownId, message))
}

/// Admits the objects that a call continues from, and counts the tokens that they add to its prompt.
///
/// # Errors
/// `param_not_allowed`, for an id that the run has not received.
pub fn admit_references(run: &RunContext, parsed: &mut ParsedBody) -> Result<(), Refusal> {
    let Some(rare) = parsed.rare.as_mut().filter(|rare| !rare.stored.is_empty()) else {
        return Ok(());
    };
    let known_ids = run.known_ids.lock().unwrap_or_else(PoisonError::into_inner);
    for stored in &rare.stored {
        let Some(tokens) = known_ids.tokens(&stored.id) else {
            let message = format!(
                "'{}' names '{}', and this run has received no answer with that id; send the whole conversation as input",
                stored.member,
                clip(&stored.id, SHOWN_MAX)
            );
            let refusal = Refusal::new(Reason::ParamNotAllowed, message).param(&stored.member);
            return Err(refusal.for_model(parsed.model.as_deref()));
        };
        let sum = rare.stored_tokens.get_or_insert(0);
        *sum = sum.saturating_add(tokens);
    }
    Ok(())
}
