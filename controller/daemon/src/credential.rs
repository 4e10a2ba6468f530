//! The credential of a request: a bearer token, or none.
//!
//! A request with a credential is judged by that credential alone. What is not one well-formed bearer token is a
//! credential that fails, never the absence of one.
//!
//! Pure.

use http::header::{AUTHORIZATION, COOKIE, HeaderMap};

/// The credential of a request.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// The request carries none.
    None,
    /// A token.
    Bearer(String),
    /// Something that is no valid credential here.
    Invalid,
}

/// Bytes of the longest token that is looked up.
const TOKEN_MAX: usize = 128;

impl Credential {
    /// Returns the credential of a request. A token in the query is never one.
    #[must_use]
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next(), headers.contains_key(COOKIE)) {
            (None, _, false) => Self::None,
            (Some(value), None, false) => {
                let token = value.to_str().ok().and_then(|value| value.split_once(' ')).filter(|(scheme, token)| {
                    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
                    scheme.eq_ignore_ascii_case("bearer")
                        && (1..=TOKEN_MAX).contains(&token.len())
                        && token.bytes().all(is_token)
                });
                token.map_or(Self::Invalid, |(_, token)| Self::Bearer(token.to_owned()))
            }
            _ => Self::Invalid,
        }
    }
}

/// Without the token.
impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Bearer(_) => "Bearer",
            Self::Invalid => "Invalid",
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use http::header::HeaderValue;

    use super::*;

    fn of(rows: &[(&str, &str)]) -> Credential {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            headers.append(name.parse::<HeaderName>().expect("a name"), HeaderValue::from_str(value).expect("a value"));
        }
        Credential::of(&headers)
    }

    #[test]
    fn only_one_bearer_token_is_a_credential() {
        let token = Credential::Bearer("slu_abc-1".to_owned());
        assert_eq!(of(&[]), Credential::None);
        assert_eq!(of(&[("authorization", "Bearer slu_abc-1")]), token);
        assert_eq!(of(&[("authorization", "bearer slu_abc-1")]), token);
        let long = format!("Bearer {}", "a".repeat(129));
        for value in ["", "Bearer", "Bearer ", "Bearer  a", "Bearer a b", "Basic YTpi", "slu_abc", "Bearer a,b", &long]
        {
            assert_eq!(of(&[("authorization", value)]), Credential::Invalid, "{value}");
        }
    }

    #[test]
    fn a_second_credential_makes_both_invalid() {
        let bearer = ("authorization", "Bearer slu_abc");
        for rows in [&[bearer, bearer][..], &[bearer, ("cookie", "a=b")], &[("cookie", "a=b")], &[("cookie", "")]] {
            assert_eq!(of(rows), Credential::Invalid, "{rows:?}");
        }
    }

    #[test]
    fn debug_shows_no_token() {
        assert_eq!(format!("{:?}", of(&[("authorization", "Bearer slu_abc")])), "Bearer");
    }
}
