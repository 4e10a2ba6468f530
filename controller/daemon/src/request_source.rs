//! The check that a request was meant for this daemon: `Host`, `Origin` and `Sec-Fetch-Site`.
//!
//! A page in a browser can send requests to every address that its machine reaches. A name that was rebound to such an
//! address is in `Host`, and the page's own origin is in `Origin`. `Sec-Fetch-Site` reveals pages of other ports.
//!
//! Pure.

use http::header::{HOST, HeaderMap, ORIGIN};
use http::{Method, Uri};

/// Names under which a listener is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities {
    /// Values of `Host`, in lower case.
    hosts: Vec<String>,
    /// Values of `Origin`, in lower case.
    origins: Vec<String>,
}

/// The origin that a request has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedOrigin {
    /// Scheme.
    pub scheme: ListenScheme,
    /// Host; an IPv6 address in brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Scheme of a listener's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenScheme {
    /// Without TLS.
    Http,
    /// With TLS, of this daemon or of a proxy in front of it.
    Https,
}

/// Reason that a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignRequest {
    /// `Host` is missing, occurs twice, or is not a name of this daemon.
    Host,
    /// `Origin` is not an origin of this daemon.
    Origin,
    /// A page of another site or port sent it.
    FetchSite,
}

impl ListenScheme {
    /// Returns the word in a URL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl Authorities {
    /// Returns the names of a unix socket: clients state `localhost`, and no page has an origin there.
    #[must_use]
    pub fn of_socket() -> Self {
        Self { hosts: vec!["localhost".to_owned()], origins: Vec::new() }
    }

    /// Adds a host with its port. An IPv6 address is in brackets.
    #[must_use]
    pub fn with(mut self, scheme: ListenScheme, host: &str, port: u16) -> Self {
        let host = host.to_ascii_lowercase();
        let mut names = vec![format!("{host}:{port}")];
        if port == scheme.default_port() {
            names.push(host);
        }
        self.origins.extend(names.iter().map(|name| format!("{}://{name}", scheme.as_str())));
        self.hosts.extend(names);
        self
    }

    /// Returns the origin that a request has reached; none on a socket, or for a host that is not one of these.
    #[must_use]
    pub fn reached(&self, headers: &HeaderMap) -> Option<ReachedOrigin> {
        let host = single(headers, HOST.as_str())??.to_ascii_lowercase();
        let scheme = [ListenScheme::Https, ListenScheme::Http]
            .into_iter()
            .find(|scheme| self.origins.iter().any(|origin| *origin == format!("{}://{host}", scheme.as_str())))?;
        match host.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((name, port)) => Some(ReachedOrigin { scheme, host: name.to_owned(), port: port.parse().ok()? }),
            None => Some(ReachedOrigin { scheme, host, port: scheme.default_port() }),
        }
    }

    /// Returns the origins, each once.
    #[must_use]
    pub fn origins(&self) -> Vec<String> {
        let ports = [ListenScheme::Http, ListenScheme::Https]
            .map(|scheme| (format!("{}://", scheme.as_str()), scheme.default_port()));
        let is_long = |origin: &&String| {
            ports.iter().any(|(start, port)| origin.starts_with(start) && origin.ends_with(&format!(":{port}")))
        };
        // A default port is omitted.
        self.origins.iter().filter(|origin| !is_long(origin)).cloned().collect()
    }

    /// Checks a request before it is routed.
    ///
    /// # Errors
    /// [`ForeignRequest`]
    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), ForeignRequest> {
        let host = single(headers, HOST.as_str()).ok_or(ForeignRequest::Host)?.ok_or(ForeignRequest::Host)?;
        // The absolute form of a target would be a second host.
        if uri.authority().is_some() || !is_one_of(&self.hosts, host) {
            return Err(ForeignRequest::Host);
        }
        match single(headers, ORIGIN.as_str()).ok_or(ForeignRequest::Origin)? {
            Some(origin) if !is_one_of(&self.origins, origin) => return Err(ForeignRequest::Origin),
            _ => {}
        }
        let navigates = || method == Method::GET && matches!(single(headers, "sec-fetch-mode"), Some(Some("navigate")));
        match single(headers, "sec-fetch-site").ok_or(ForeignRequest::FetchSite)? {
            None | Some("same-origin") => Ok(()),
            Some("none") if navigates() => Ok(()),
            Some(_) => Err(ForeignRequest::FetchSite),
        }
    }
}

/// Returns whether a request is a navigation from a page without an origin, such as a file of this machine.
#[must_use]
pub fn comes_from_a_file(headers: &HeaderMap) -> bool {
    let is = |name, expected: &[Option<&str>]| single(headers, name).is_some_and(|value| expected.contains(&value));
    is(ORIGIN.as_str(), &[Some("null")])
        && is("sec-fetch-mode", &[None, Some("navigate")])
        && is("sec-fetch-dest", &[None, Some("document")])
}

/// Returns the value of a header, `Some(None)` if it is absent, and `None` if it occurs twice or is not text.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Some(None),
        (Some(value), None) => value.to_str().ok().map(Some),
        (Some(_), Some(_)) => None,
    }
}

fn is_one_of(names: &[String], given: &str) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(given))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use http::header::HeaderValue;

    use super::*;

    fn loopback() -> Authorities {
        Authorities::default()
            .with(ListenScheme::Http, "127.0.0.1", 8787)
            .with(ListenScheme::Http, "localhost", 8787)
            .with(ListenScheme::Http, "[::1]", 8787)
    }

    fn headers(rows: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            let name: HeaderName = name.parse().expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    fn check(names: &Authorities, rows: &[(&str, &str)]) -> Result<(), ForeignRequest> {
        names.check(&Method::POST, &Uri::from_static("/api/v1/budgets"), &headers(rows))
    }

    #[test]
    fn only_configured_hosts_pass() {
        for host in ["127.0.0.1:8787", "localhost:8787", "LOCALHOST:8787", "[::1]:8787"] {
            assert_eq!(check(&loopback(), &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            // Rebound names, a final dot, other ports, user information, other spellings of an address.
            "evil.example", "evil.example:8787", "127.0.0.1.evil.example:8787", "localhost.:8787", "127.0.0.1.:8787",
            "127.0.0.1", "127.0.0.1:80", "127.0.0.1:08787", "a@127.0.0.1:8787", "127.1:8787", "2130706433:8787",
            "0.0.0.0:8787", "::1:8787", "[::1]", "[::ffff:127.0.0.1]:8787", "[0:0:0:0:0:0:0:1]:8787", "", " ",
            "127.0.0.1:8787 ", "127.0.0.1:8787,evil.example",
        ] {
            assert_eq!(check(&loopback(), &[("host", host)]), Err(ForeignRequest::Host), "{host}");
        }
    }

    #[test]
    fn a_missing_or_second_host_is_refused() {
        let own = ("host", "127.0.0.1:8787");
        for rows in [&[][..], &[own, own], &[own, ("host", "evil.example")], &[("host", "evil.example"), own]] {
            assert_eq!(check(&loopback(), rows), Err(ForeignRequest::Host), "{rows:?}");
        }
        let absolute = Uri::from_static("http://127.0.0.1:8787/alive");
        assert_eq!(loopback().check(&Method::GET, &absolute, &headers(&[own])), Err(ForeignRequest::Host));
    }

    #[test]
    fn a_present_origin_must_be_our_own() {
        let with = |origin| check(&loopback(), &[("host", "127.0.0.1:8787"), ("origin", origin)]);
        assert_eq!(with("http://127.0.0.1:8787"), Ok(()));
        for origin in [
            "null", "", "http://evil.example", "http://127.0.0.1:9000", "http://127.0.0.1", "https://127.0.0.1:8787",
            "http://127.0.0.1:8787/", "http://127.0.0.1:8787.evil.example",
        ] {
            assert_eq!(with(origin), Err(ForeignRequest::Origin), "{origin}");
        }
        let twice = [("host", "127.0.0.1:8787"), ("origin", "http://127.0.0.1:8787"), ("origin", "http://evil")];
        assert_eq!(check(&loopback(), &twice), Err(ForeignRequest::Origin));
    }

    #[test]
    fn pages_of_other_sites_and_ports_are_refused() {
        let with = |site| check(&loopback(), &[("host", "127.0.0.1:8787"), ("sec-fetch-site", site)]);
        assert_eq!(with("same-origin"), Ok(()));
        for site in ["same-site", "cross-site", "none", "", "Same-Origin"] {
            assert_eq!(with(site), Err(ForeignRequest::FetchSite), "{site}");
        }
        let typed = headers(&[("host", "127.0.0.1:8787"), ("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")]);
        let (uri, names) = (Uri::from_static("/alive"), loopback());
        assert_eq!(names.check(&Method::GET, &uri, &typed), Ok(()));
        assert_eq!(names.check(&Method::POST, &uri, &typed), Err(ForeignRequest::FetchSite));
    }

    #[test]
    fn a_request_has_reached_one_origin() {
        let names = loopback().with(ListenScheme::Https, "sluice.example.org", 443);
        let reached = |host| names.reached(&headers(&[("host", host)]));
        let origin = |scheme, host: &str, port| Some(ReachedOrigin { scheme, host: host.to_owned(), port });
        assert_eq!(reached("LOCALHOST:8787"), origin(ListenScheme::Http, "localhost", 8787));
        assert_eq!(reached("[::1]:8787"), origin(ListenScheme::Http, "[::1]", 8787));
        for host in ["sluice.example.org", "sluice.example.org:443"] {
            assert_eq!(reached(host), origin(ListenScheme::Https, "sluice.example.org", 443));
        }
        assert_eq!(
            (reached("evil.example"), Authorities::of_socket().reached(&headers(&[("host", "localhost")]))),
            (None, None)
        );
        let expected =
            ["http://127.0.0.1:8787", "http://localhost:8787", "http://[::1]:8787", "https://sluice.example.org"];
        assert_eq!(names.origins(), expected);
    }

    #[test]
    fn a_file_is_a_navigation_without_an_origin() {
        let file = |rows: &[(&str, &str)]| comes_from_a_file(&headers(rows));
        let (null, navigates) = (("origin", "null"), ("sec-fetch-mode", "navigate"));
        assert!(file(&[null]) && file(&[null, navigates, ("sec-fetch-site", "cross-site")]));
        for rows in [
            &[][..],
            &[navigates],
            &[("origin", "http://evil.example"), navigates],
            &[null, ("sec-fetch-mode", "no-cors")],
            &[null, navigates, ("sec-fetch-dest", "iframe")],
            &[null, null],
        ] {
            assert!(!file(rows), "{rows:?}");
        }
    }

    #[test]
    fn a_default_port_may_be_left_out() {
        let names = Authorities::default().with(ListenScheme::Https, "Sluice.example.org", 443);
        for host in ["sluice.example.org", "sluice.example.org:443"] {
            assert_eq!(check(&names, &[("host", host), ("origin", "https://sluice.example.org")]), Ok(()), "{host}");
        }
        assert_eq!(check(&names, &[("host", "sluice.example.org:80")]), Err(ForeignRequest::Host));
    }

    #[test]
    fn a_socket_has_one_host_and_no_origin() {
        assert_eq!(check(&Authorities::of_socket(), &[("host", "localhost")]), Ok(()));
        assert_eq!(check(&Authorities::of_socket(), &[("host", "evil.example")]), Err(ForeignRequest::Host));
        let page = [("host", "localhost"), ("origin", "http://localhost")];
        assert_eq!(check(&Authorities::of_socket(), &page), Err(ForeignRequest::Origin));
    }
}
