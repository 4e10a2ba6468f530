//! The upstream's list of models, cut down to those that the run may use.
//!
//! Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::refusal::{Reason, Refusal};
use crate::text::clip;

/// Maximum length of a list of models, in bytes.
pub const MAX: usize = 4 * 1024 * 1024;

#[derive(Deserialize)]
struct ModelEntry<'a> {
    #[serde(borrow)]
    id: std::borrow::Cow<'a, str>,
}

/// Error for a response that is not a list of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAList;

/// Admits a request for one model. An id of several segments must be one that the operator has named.
///
/// # Errors
/// `model_not_found`
pub fn admit(id: &str, allowed: &[String]) -> Result<(), Refusal> {
    let known = if allowed.is_empty() { !id.contains('/') } else { allowed.iter().any(|allowed| allowed == id) };
    if known { Ok(()) } else { Err(not_found(id)) }
}

/// Returns the refusal for a model that is not in the list.
#[must_use]
pub fn not_found(id: &str) -> Refusal {
    let message = format!("this run has no model '{}'; GET /v1/models lists those that it may use", clip(id, 64));
    Refusal::new(Reason::ModelNotFound, message).param("model").for_model(Some(id))
}

/// Returns the entry of one model, unchanged; `None` if the list does not have it.
///
/// # Errors
/// [`NotAList`]
pub fn find(list: &[u8], id: &str) -> Result<Option<Bytes>, NotAList> {
    let (_, models) = read(list)?;
    let is_asked =
        |model: &&&RawValue| serde_json::from_str::<ModelEntry<'_>>(model.get()).is_ok_and(|named| named.id == id);
    Ok(models.iter().find(is_asked).map(|model| Bytes::copy_from_slice(model.get().as_bytes())))
}

/// Returns the list without the models that are not allowed; the rest is unchanged.
///
/// # Errors
/// [`NotAList`]
pub fn filter(list: &[u8], allowed: &[String]) -> Result<Bytes, NotAList> {
    let (mut list, models) = read(list)?;
    let is_allowed = |model: &&&RawValue| {
        serde_json::from_str::<ModelEntry<'_>>(model.get()).is_ok_and(|named| allowed.iter().any(|id| *id == named.id))
    };
    let kept: Vec<&RawValue> = models.iter().filter(is_allowed).copied().collect();
    let kept = serde_json::value::to_raw_value(&kept).map_err(|_| NotAList)?;
    list.insert("data", &kept);
    serde_json::to_vec(&list).map(Bytes::from).map_err(|_| NotAList)
}

/// Returns the members of a list, and its models.
fn read(list: &[u8]) -> Result<(BTreeMap<&str, &RawValue>, Vec<&RawValue>), NotAList> {
    let list: BTreeMap<&str, &RawValue> = serde_json::from_slice(list).map_err(|_| NotAList)?;
    let data: &RawValue = list.get("data").ok_or(NotAList)?;
    let models = serde_json::from_str(data.get()).map_err(|_| NotAList)?;
    Ok((list, models))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_model_is_returned_unchanged() {
        let list = br#"{"object":"list","data":[{"no":"id"},{"id":"a","x":1.50},{"id":"b/c"}]}"#;
        assert_eq!(find(list, "a"), Ok(Some(Bytes::from_static(br#"{"id":"a","x":1.50}"#))));
        assert_eq!(find(list, "b/c"), Ok(Some(Bytes::from_static(br#"{"id":"b/c"}"#))));
        assert_eq!(find(list, "b"), Ok(None));
        for bad in [&b"[]"[..], b"{}", br#"{"data":{}}"#, b"x"] {
            assert_eq!(find(bad, "a"), Err(NotAList));
        }
    }

    #[test]
    fn an_id_with_slashes_must_be_allowed() {
        let allowed = ["a".to_owned(), "b/c".to_owned()];
        for (id, of_any, of_allowed) in
            [("a", true, true), ("b/c", false, true), ("b", true, false), ("b/d", false, false)]
        {
            assert_eq!((admit(id, &[]).is_ok(), admit(id, &allowed).is_ok()), (of_any, of_allowed), "{id}");
        }
        let refusal = admit("x", &allowed).expect_err("not named");
        assert_eq!((refusal.reason, refusal.model.as_deref()), (Reason::ModelNotFound, Some("x")));
    }

    #[test]
    fn only_allowed_models_are_left() {
        let list = br#"{"object":"list","data":[{"id":"a","x":1.50},{"id":"b"},{"no":"id"}]}"#;
        let kept = filter(list, &["a".to_owned()]).expect("a list");
        assert_eq!(kept, r#"{"data":[{"id":"a","x":1.50}],"object":"list"}"#);
        assert_eq!(filter(list, &[]).expect("a list"), r#"{"data":[],"object":"list"}"#);
        assert_eq!(filter(b"[]", &[]), Err(NotAList));
        assert_eq!(filter(br#"{"data":{}}"#, &[]), Err(NotAList));
    }
}
