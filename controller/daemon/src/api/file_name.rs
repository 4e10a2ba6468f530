//! Names and times of files in answers. A sandbox chooses both.
//!
//! Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use utoipa::ToSchema;

use crate::timestamp::timestamp;

/// A name: text, or bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct FileName {
    /// The name, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The bytes of another name, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_base64: Option<String>,
}

impl FileName {
    /// Returns a name of these bytes.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(name) => Self { name: Some(name), name_base64: None },
            Err(error) => Self { name: None, name_base64: Some(BASE64_STANDARD.encode(error.as_bytes())) },
        }
    }
}

/// Returns a time of a file in UTC, of seconds since 1970; none for a time that is not between 1970 and 9999.
pub(super) fn file_time(seconds: i64) -> Option<String> {
    const YEAR_10000: i64 = 253_402_300_800;
    (0..YEAR_10000).contains(&seconds).then(|| timestamp(seconds * 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_and_each_time_has_a_form() {
        let json = |bytes: &[u8]| serde_json::to_string(&FileName::of(bytes.to_vec())).expect("plain data");
        assert_eq!(json(b"a\nb"), r#"{"name":"a\nb"}"#);
        assert_eq!(json(b"\xff\0"), r#"{"name_base64":"/wA="}"#);
        assert_eq!(file_time(0).as_deref(), Some("1970-01-01T00:00:00.000000Z"));
        assert_eq!(file_time(253_402_300_799).as_deref(), Some("9999-12-31T23:59:59.000000Z"));
        for seconds in [-1, 253_402_300_800, i64::MAX, i64::MIN] {
            assert_eq!(file_time(seconds), None, "{seconds}");
        }
    }
}
