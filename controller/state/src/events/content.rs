//! The rules for the content of an event: its type, and its JSON.
//!
//! Content comes from sandboxes, so it is bounded before anything else reads it.
//!
//! Pure.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Maximum size of the data of an event, in bytes.
pub const EVENT_DATA_MAX: usize = 100_000;
/// Maximum length of the type of an event, in bytes.
pub const EVENT_TYPE_MAX: usize = 100;
/// Maximum nesting depth of arrays and objects.
pub const JSON_DEPTH_MAX: u32 = 32;
/// Maximum number of members of one object.
pub const JSON_MEMBERS_MAX: usize = 1_000;

/// Reason that the content of an event is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventFault {
    /// The type is not valid.
    #[error("an event type is 1 to {EVENT_TYPE_MAX} characters of A-Z, a-z, 0-9, '_' and '.'")]
    Type,
    /// The type belongs to the system.
    #[error("an agent reports events whose type begins with 'agent.' only")]
    ReservedType,
    /// The data is too large.
    #[error("event_data has {0} bytes; the limit is {EVENT_DATA_MAX}")]
    TooLarge(usize),
    /// The event without its diff, or the diff, is larger than the quota of the run for it.
    #[error("the event has {bytes} bytes, and the quota of its run is {quota}")]
    OverQuota {
        /// Size of the event without its diff, or of the diff.
        bytes: u64,
        /// Limit of the run.
        quota: u64,
    },
    /// The data is not JSON that is accepted.
    #[error("event_data is not accepted: {0}")]
    Json(String),
}

/// Checks the type of an event.
///
/// # Errors
/// [`EventFault::Type`]
pub fn check_event_type(text: &str) -> Result<(), EventFault> {
    let is_valid = (1..=EVENT_TYPE_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
    if is_valid { Ok(()) } else { Err(EventFault::Type) }
}

/// Checks the data of an event: one JSON value of bounded size, depth and width, without NUL and without half a surrogate
/// pair.
///
/// # Errors
/// [`EventFault::TooLarge`], [`EventFault::Json`].
pub fn check_event_data(text: &str) -> Result<(), EventFault> {
    if text.len() > EVENT_DATA_MAX {
        return Err(EventFault::TooLarge(text.len()));
    }
    check_json(text)
}

/// Checks that a text is one JSON value that is accepted.
fn check_json(text: &str) -> Result<(), EventFault> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let checked = BoundedValue { depth: 0 }.deserialize(&mut reader).and_then(|()| reader.end());
    checked.map_err(|error| EventFault::Json(error.to_string()))
}

/// A JSON value at this depth, which is read and dropped.
#[derive(Clone, Copy)]
struct BoundedValue {
    depth: u32,
}

/// The name of a member.
struct BoundedName;

impl BoundedValue {
    fn inner<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        if depth > JSON_DEPTH_MAX {
            return Err(E::custom(format_args!("it is nested deeper than {JSON_DEPTH_MAX}")));
        }
        Ok(Self { depth })
    }
}

fn text<E: Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') { Err(E::custom("a text has U+0000")) } else { Ok(()) }
}

impl<'de> DeserializeSeed<'de> for BoundedValue {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        text(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        let mut count = 0;
        while members.next_key_seed(BoundedName)?.is_some() {
            count += 1;
            if count > JSON_MEMBERS_MAX {
                return Err(A::Error::custom(format_args!("an object has more than {JSON_MEMBERS_MAX} members")));
            }
            members.next_value_seed(inner)?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for BoundedName {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_words_and_dots() {
        for good in ["agent.started", "a", "Z_9.", &"x".repeat(100)] {
            assert_eq!(check_event_type(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "a-b", "é", "a\n", &"x".repeat(101)] {
            assert_eq!(check_event_type(bad), Err(EventFault::Type), "{bad}");
        }
    }

    #[test]
    fn ordinary_json_is_accepted() {
        for good in ["{}", "null", "[1,-2,3.5,true,\"x\"]", r#"{"a":{"b":[{}]},"\ud83d\ude00":"\ud83d\ude00"}"#] {
            assert_eq!(check_event_data(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn json_that_breaks_readers_is_refused() {
        let refused = [
            "", "{", "{} {}", "nul", "{'a':1}", "[1,]", "\"\u{0}\"", r#""\u0000""#, r#"{"\u0000":1}"#, r#""\ud800""#,
            r#""\udc00x""#, r#"{"\ud800":1}"#, "1e999", "NaN", "{1:2}",
        ];
        for bad in refused {
            assert!(matches!(check_event_data(bad), Err(EventFault::Json(_))), "{bad:?}");
        }
    }

    #[test]
    fn size_depth_and_width_are_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check_event_data(&nested(32)), Ok(()));
        assert!(check_event_data(&nested(33)).is_err());
        assert!(check_event_data(&nested(40_000)).is_err());
        let members = |count: usize| {
            let members: Vec<_> = (0..count).map(|number| format!("\"{number}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert_eq!(check_event_data(&members(1000)), Ok(()));
        assert!(check_event_data(&members(1001)).is_err());
        let sized = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
        assert_eq!(check_event_data(&sized(EVENT_DATA_MAX)), Ok(()));
        assert_eq!(check_event_data(&sized(EVENT_DATA_MAX + 1)), Err(EventFault::TooLarge(EVENT_DATA_MAX + 1)));
    }
}
