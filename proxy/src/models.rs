//! The upstream's list of models, cut down to those that the run may use.
//!
//! Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A list of models is not longer than this.
pub const MAX: usize = 4 * 1024 * 1024;

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    id: std::borrow::Cow<'a, str>,
}

/// The list without the models that are not allowed, everything else as it was; `None` if it is no list.
#[must_use]
pub fn filter(list: &[u8], allowed: &[String]) -> Option<Bytes> {
    let mut list: BTreeMap<&str, &RawValue> = serde_json::from_slice(list).ok()?;
    let models: Vec<&RawValue> = serde_json::from_str(list.get("data")?.get()).ok()?;
    let is_allowed = |model: &&&RawValue| {
        serde_json::from_str::<Named<'_>>(model.get()).is_ok_and(|named| allowed.iter().any(|id| *id == named.id))
    };
    let kept: Vec<&RawValue> = models.iter().filter(is_allowed).copied().collect();
    let kept = serde_json::value::to_raw_value(&kept).ok()?;
    list.insert("data", &kept);
    serde_json::to_vec(&list).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn only_allowed_models_are_left() {
        let list = br#"{"object":"list","data":[{"id":"a","x":1.50},{"id":"b"},{"no":"id"}]}"#;
        let kept = filter(list, &["a".to_owned()]).expect("a list");
        assert_eq!(kept, r#"{"data":[{"id":"a","x":1.50}],"object":"list"}"#);
        assert_eq!(filter(list, &[]).expect("a list"), r#"{"data":[],"object":"list"}"#);
        assert_eq!(filter(b"[]", &[]), None);
        assert_eq!(filter(br#"{"data":{}}"#, &[]), None);
    }
}
