//! The cookie of a browser session.
//!
//! Browsers do not separate cookies by port: pages of every port of this host send and set the same ones. So the name
//! has the port of the daemon, and cookies of other names are ignored.
//!
//! Pure.

use http::HeaderValue;
use http::header::{COOKIE, HeaderMap};

use crate::request_source::{ListenScheme, ReachedOrigin};
use crate::sessions::LIFE;

/// The cookie of a listener's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionCookie {
    name: String,
    is_secure: bool,
}

/// The cookie of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentCookie<'a> {
    /// No cookie has this name.
    None,
    /// Value.
    Value(&'a str),
    /// The cookie occurs twice, or its value is not text.
    Invalid,
}

impl SessionCookie {
    /// Returns the cookie of an origin. With TLS, no other host of the domain can set it.
    #[must_use]
    pub(crate) fn of(origin: &ReachedOrigin) -> Self {
        let is_secure = origin.scheme == ListenScheme::Https;
        let prefix = if is_secure { "__Host-" } else { "" };
        Self { name: format!("{prefix}sluice-{}", origin.port), is_secure }
    }

    /// Returns the value that a request has. Cookies of other pages may have any bytes.
    #[must_use]
    pub(crate) fn sent<'a>(&self, headers: &'a HeaderMap) -> SentCookie<'a> {
        let pairs = headers.get_all(COOKIE).iter().flat_map(|header| header.as_bytes().split(|byte| *byte == b';'));
        let mut values = pairs.filter_map(|pair| self.value_in(pair));
        match (values.next(), values.next()) {
            (None, _) => SentCookie::None,
            (Some(value), None) => std::str::from_utf8(value).map_or(SentCookie::Invalid, SentCookie::Value),
            (Some(_), Some(_)) => SentCookie::Invalid,
        }
    }

    /// Returns the value in a pair of a name and a value, if it has the name of this cookie.
    fn value_in<'a>(&self, pair: &'a [u8]) -> Option<&'a [u8]> {
        pair.trim_ascii().strip_prefix(self.name.as_bytes())?.strip_prefix(b"=")
    }

    /// Returns the header that sets the cookie.
    #[must_use]
    pub(crate) fn set(&self, value: &str) -> HeaderValue {
        self.header(value, LIFE.as_secs())
    }

    /// Returns the header that removes the cookie.
    #[must_use]
    pub(crate) fn clear(&self) -> HeaderValue {
        self.header("", 0)
    }

    fn header(&self, value: &str, max_age: u64) -> HeaderValue {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let text = format!("{}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}", self.name);
        HeaderValue::from_str(&text).expect("hex digits and words")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(scheme: ListenScheme) -> SessionCookie {
        SessionCookie::of(&ReachedOrigin { scheme, host: "x".to_owned(), port: 8787 })
    }

    #[test]
    fn the_name_has_the_port_and_with_tls_the_host() {
        let plain = cookie(ListenScheme::Http).set("v");
        assert_eq!(plain, "sluice-8787=v; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
        let secure = cookie(ListenScheme::Https).clear();
        assert_eq!(secure, "__Host-sluice-8787=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure");
    }

    #[test]
    fn cookies_of_other_pages_are_not_looked_at() {
        let sent = |rows: &[&str]| {
            let mut headers = HeaderMap::new();
            for row in rows {
                headers.append(COOKIE, HeaderValue::from_bytes(row.as_bytes()).expect("a value"));
            }
            match cookie(ListenScheme::Http).sent(&headers) {
                SentCookie::Value(value) => value.to_owned(),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(sent(&[]), "None");
        assert_eq!(sent(&["a=b; sluice-8788=x; xsluice-8787=y; sluice-8787"]), "None");
        assert_eq!(sent(&["a=b; sluice-8787=v"]), "v");
        assert_eq!(sent(&["a=b", "sluice-8787=v=w"]), "v=w");
        assert_eq!(sent(&["é=é; sluice-8787=v; ü", "é"]), "v");
        assert_eq!(sent(&["é; xsluice-8787=é; sluice-8787é=v"]), "None");
        assert_eq!(sent(&["sluice-8787=v; sluice-8787=v"]), "Invalid");
        assert_eq!(sent(&["sluice-8787=v", "sluice-8787=w"]), "Invalid");
    }
}
