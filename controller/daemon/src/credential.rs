//! The credential of a request: a bearer token, the cookie of a session, or none.
//!
//! A request with a credential is judged by that credential alone. A malformed credential, or more than one, fails: it
//! never counts as a missing credential.
//!
//! Pure.

use http::header::{AUTHORIZATION, COOKIE, HeaderMap};

use crate::session_cookie::{SentCookie, SessionCookie};

/// The credential of a request.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum RequestCredential {
    /// The request carries no credential.
    None,
    /// A token.
    Bearer(String),
    /// The value of a session.
    Session(String),
    /// The session cookie occurs twice, or its value is too long or not text.
    InvalidSession,
    /// An invalid credential.
    Invalid,
}

/// Maximum number of bytes of a token or a session value that is looked up.
const TOKEN_MAX: usize = 128;

impl RequestCredential {
    /// Returns the credential of a request. A token in the query is never a credential. Where the listener has no
    /// sessions, every cookie is a credential that fails.
    #[must_use]
    pub(crate) fn of(headers: &HeaderMap, cookie: Option<&SessionCookie>) -> Self {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next(), headers.contains_key(COOKIE)) {
            (None, _, false) => Self::None,
            (None, _, true) => cookie.map_or(Self::Invalid, |cookie| match cookie.sent(headers) {
                SentCookie::None => Self::None,
                SentCookie::Value(value) if value.len() <= TOKEN_MAX => Self::Session(value.to_owned()),
                SentCookie::Value(_) | SentCookie::Invalid => Self::InvalidSession,
            }),
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

/// Leaves the token out.
impl std::fmt::Debug for RequestCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Bearer(_) => "Bearer",
            Self::Session(_) => "Session",
            Self::InvalidSession => "InvalidSession",
            Self::Invalid => "Invalid",
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use http::header::HeaderValue;

    use super::*;
    use crate::request_source::{ListenScheme, ReachedOrigin};

    fn of(rows: &[(&str, &str)]) -> RequestCredential {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            headers.append(name.parse::<HeaderName>().expect("a name"), HeaderValue::from_str(value).expect("a value"));
        }
        RequestCredential::of(&headers, None)
    }

    #[test]
    fn only_one_bearer_token_is_a_credential() {
        let token = RequestCredential::Bearer("slu_abc-1".to_owned());
        assert_eq!(of(&[]), RequestCredential::None);
        assert_eq!(of(&[("authorization", "Bearer slu_abc-1")]), token);
        assert_eq!(of(&[("authorization", "bearer slu_abc-1")]), token);
        let long = format!("Bearer {}", "a".repeat(129));
        for value in ["", "Bearer", "Bearer ", "Bearer  a", "Bearer a b", "Basic YTpi", "slu_abc", "Bearer a,b", &long]
        {
            assert_eq!(of(&[("authorization", value)]), RequestCredential::Invalid, "{value}");
        }
    }

    #[test]
    fn a_second_credential_makes_both_invalid() {
        let bearer = ("authorization", "Bearer slu_abc");
        for rows in [&[bearer, bearer][..], &[bearer, ("cookie", "a=b")], &[("cookie", "a=b")], &[("cookie", "")]] {
            assert_eq!(of(rows), RequestCredential::Invalid, "{rows:?}");
        }
    }

    #[test]
    fn the_cookie_of_a_session_is_a_credential() {
        let origin = ReachedOrigin { scheme: ListenScheme::Http, host: "localhost".to_owned(), port: 8787 };
        let cookie = SessionCookie::of(&origin);
        let with = |rows: &[(&'static str, &'static str)]| {
            let rows =
                rows.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            RequestCredential::of(&rows.collect(), Some(&cookie))
        };
        assert_eq!(with(&[("cookie", "a=b; sluice-8787=v")]), RequestCredential::Session("v".to_owned()));
        assert_eq!(with(&[("cookie", "a=b")]), RequestCredential::None, "pages of other ports have cookies too");
        assert_eq!(with(&[("cookie", "sluice-8787=v; sluice-8787=v")]), RequestCredential::InvalidSession);
        let both = [("authorization", "Bearer slu_abc"), ("cookie", "sluice-8787=v")];
        assert_eq!(with(&both), RequestCredential::Invalid);
        assert_eq!(of(&[("cookie", "sluice-8787=v")]), RequestCredential::Invalid, "a socket has no sessions");
    }

    #[test]
    fn debug_shows_no_token() {
        assert_eq!(format!("{:?}", of(&[("authorization", "Bearer slu_abc")])), "Bearer");
    }
}
