//! Addresses of the daemon, and the refusal to listen unsafely.
//!
//! Beyond this machine, requests need a token and a private channel: TLS of this daemon, or a proxy on this
//! machine that ends TLS.
//!
//! Pure.

use std::net::SocketAddr;

use crate::request_source::{Authorities, ListenScheme};

/// Everything that decides where the daemon listens.
#[derive(Debug, Clone, Default)]
pub struct ListenRequest<'a> {
    /// Each given address: `IP:PORT`, or `localhost:PORT`.
    pub listen: Vec<&'a str>,
    /// `--tls-cert` is given.
    pub has_certificate: bool,
    /// `--tls-key` is given.
    pub has_key: bool,
    /// `--behind-proxy`.
    pub behind_proxy: Option<&'a str>,
    /// The database has a token that is not revoked and has not expired.
    pub has_token: bool,
}

/// A safe plan of the listeners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenPlan {
    /// TCP listeners.
    pub tcp: Vec<TcpListen>,
    /// Origin of the proxy; requests over a socket and over TCP may name it as their host.
    pub proxy: Option<ProxyOrigin>,
}

/// One TCP listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpListen {
    /// Address.
    pub address: SocketAddr,
    /// With or without TLS.
    pub scheme: ListenScheme,
}

/// The origin of the proxy in front of this daemon. Its scheme is https.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyOrigin {
    /// Host; an IPv6 address in brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Reason that the daemon does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum ListenRefusal {
    #[error("--listen {0} is not an IP address with a port; write 127.0.0.1:8787, [::1]:8787 or 0.0.0.0:8787")]
    NotAnAddress(String),
    #[error("--tls-cert and --tls-key go together; name both files")]
    HalfTls,
    #[error("--behind-proxy means that the proxy ends TLS; leave out --tls-cert and --tls-key, or --behind-proxy")]
    TlsAndProxy,
    #[error("--behind-proxy {0} is not an origin; write https://sluice.example.org, without a path")]
    NotAnOrigin(String),
    #[error(
        "--behind-proxy {0} has no TLS, and others could read tokens and sessions on their way to the proxy; write \
         https://, and let the proxy end TLS"
    )]
    ProxyWithoutTls(String),
    #[error(
        "with --behind-proxy the daemon listens on loopback addresses alone, and {0} is none; write 127.0.0.1:8787"
    )]
    ProxyBeyondLoopback(String),
    #[error(
        "{0} can be reached from other machines, and requests would not be encrypted; name --tls-cert and --tls-key, or \
         listen on 127.0.0.1 and name --behind-proxy"
    )]
    NoTls(String),
    #[error("{0} can be reached from other machines, and there is no token; make one with sluice token create")]
    NoToken(String),
}

/// Decides where to listen.
///
/// # Errors
/// The first [`ListenRefusal`].
pub fn listen_plan(request: &ListenRequest<'_>) -> Result<ListenPlan, ListenRefusal> {
    if request.has_certificate != request.has_key {
        return Err(ListenRefusal::HalfTls);
    }
    if request.has_key && request.behind_proxy.is_some() {
        return Err(ListenRefusal::TlsAndProxy);
    }
    let proxy = request.behind_proxy.map(ProxyOrigin::parse).transpose()?;
    let mut tcp = Vec::new();
    for text in &request.listen {
        let address = address_of(text).ok_or_else(|| ListenRefusal::NotAnAddress((*text).to_owned()))?;
        if !address.ip().to_canonical().is_loopback() {
            let text = (*text).to_owned();
            match (&proxy, request.has_key, request.has_token) {
                (Some(_), ..) => return Err(ListenRefusal::ProxyBeyondLoopback(text)),
                (None, false, _) => return Err(ListenRefusal::NoTls(text)),
                (None, true, false) => return Err(ListenRefusal::NoToken(text)),
                (None, true, true) => {}
            }
        }
        let scheme = if request.has_key { ListenScheme::Https } else { ListenScheme::Http };
        tcp.push(TcpListen { address, scheme });
    }
    Ok(ListenPlan { tcp, proxy })
}

/// Returns the address of a text. Names are not looked up; `localhost` means 127.0.0.1.
fn address_of(text: &str) -> Option<SocketAddr> {
    let literal = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    literal.as_deref().unwrap_or(text).parse().ok()
}

/// Splits `HOST:PORT`; an IPv6 address is in brackets.
fn split(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let is_host = !host.is_empty() && (is_bracketed || !host.contains([':', '[', ']', '/', '@']));
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    if is_host && digits { Some((host, port.parse().ok()?)) } else { None }
}

impl ListenPlan {
    /// Returns the names of a unix socket.
    #[must_use]
    pub fn socket_names(&self) -> Authorities {
        self.with_proxy(Authorities::of_socket())
    }

    /// Returns the names of a TCP listener that is bound to this address; `certified` has the names in its certificate.
    #[must_use]
    pub fn tcp_names(&self, listen: &TcpListen, bound: SocketAddr, certified: &[String]) -> Authorities {
        let (scheme, port) = (listen.scheme, bound.port());
        let own = certified.iter().fold(Authorities::default(), |names, name| names.with(scheme, name, port));
        let own = if bound.ip().is_unspecified() { own } else { own.with(scheme, &literal(bound), port) };
        let is_local = bound.ip().to_canonical().is_loopback();
        self.with_proxy(if is_local { own.with(scheme, "localhost", port) } else { own })
    }

    fn with_proxy(&self, names: Authorities) -> Authorities {
        match &self.proxy {
            Some(ProxyOrigin { host, port }) => names.with(ListenScheme::Https, host, *port),
            None => names,
        }
    }
}

/// Returns the host of an address in the form for a URL.
#[must_use]
pub fn literal(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

impl ProxyOrigin {
    fn parse(text: &str) -> Result<Self, ListenRefusal> {
        let refused = || ListenRefusal::NotAnOrigin(text.to_owned());
        if text.starts_with("http://") {
            return Err(ListenRefusal::ProxyWithoutTls(text.to_owned()));
        }
        let rest = text.strip_prefix("https://").ok_or_else(refused)?;
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let with_port = if has_port { rest.to_owned() } else { format!("{rest}:443") };
        let (host, port) = split(&with_port).ok_or_else(refused)?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'[' | b']' | b':');
        if port == 0 || !host.bytes().all(is_name) {
            return Err(refused());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method, Uri};

    use super::*;

    fn request(text: &str) -> ListenRequest<'_> {
        ListenRequest { listen: vec![text], ..ListenRequest::default() }
    }

    #[test]
    fn loopback_needs_neither_token_nor_tls() {
        for address in ["127.0.0.1:8787", "localhost:1", "127.9.9.9:1", "[::1]:8787", "[::ffff:127.0.0.1]:8787"] {
            let plan = listen_plan(&request(address)).expect("it is loopback");
            assert_eq!((plan.tcp.len(), plan.tcp[0].scheme), (1, ListenScheme::Http), "{address}");
        }
        assert!(listen_plan(&ListenRequest::default()).expect("sockets alone").tcp.is_empty());
    }

    #[test]
    fn beyond_loopback_a_token_and_tls_are_needed() {
        for address in ["0.0.0.0:8787", "[::]:8787", "192.168.1.2:8787", "8.8.8.8:443", "[fe80::1]:8787"] {
            let plain = request(address);
            let with = |token, tls| {
                listen_plan(&ListenRequest { has_token: token, has_certificate: tls, has_key: tls, ..plain.clone() })
            };
            assert_eq!(with(true, false), Err(ListenRefusal::NoTls(address.to_owned())));
            assert_eq!(with(false, false), Err(ListenRefusal::NoTls(address.to_owned())));
            assert_eq!(with(false, true), Err(ListenRefusal::NoToken(address.to_owned())));
            assert_eq!(with(true, true).expect("it is safe").tcp[0].scheme, ListenScheme::Https);
        }
    }

    #[test]
    fn a_proxy_needs_a_loopback_listener_without_tls() {
        let proxied = |text, tls| {
            let plain = request(text);
            let origin = Some("https://sluice.example.org");
            listen_plan(&ListenRequest {
                behind_proxy: origin,
                has_token: true,
                has_key: tls,
                has_certificate: tls,
                ..plain
            })
        };
        let plan = proxied("127.0.0.1:8787", false).expect("it is safe");
        assert_eq!(
            plan.proxy.as_ref().map(|proxy| (proxy.host.as_str(), proxy.port)),
            Some(("sluice.example.org", 443))
        );
        let public = "192.168.1.2:8787";
        assert_eq!(proxied(public, false), Err(ListenRefusal::ProxyBeyondLoopback(public.to_owned())));
        assert_eq!(proxied("127.0.0.1:8787", true), Err(ListenRefusal::TlsAndProxy));
        for origin in
            ["sluice.example.org", "https://", "https://a/b", "https://a/", "https://u@a", "ftp://a", "https://a:0"]
        {
            let bad = ListenRequest { behind_proxy: Some(origin), ..ListenRequest::default() };
            assert_eq!(listen_plan(&bad), Err(ListenRefusal::NotAnOrigin(origin.to_owned())), "{origin}");
        }
    }

    #[test]
    fn a_proxy_without_tls_is_refused() {
        for origin in ["http://sluice.example.org", "http://localhost:8080", "http://127.0.0.1"] {
            let plain = ListenRequest { behind_proxy: Some(origin), ..ListenRequest::default() };
            let refused = listen_plan(&plain).expect_err(origin);
            assert_eq!(refused, ListenRefusal::ProxyWithoutTls(origin.to_owned()));
            let message = refused.to_string();
            assert!(message.contains(origin) && message.contains("write https://"), "{message}");
        }
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        for text in
            ["8787", ":8787", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "::1:8787", "a/b:1", "a@b:1", "a:99999"]
        {
            assert_eq!(listen_plan(&request(text)), Err(ListenRefusal::NotAnAddress(text.to_owned())), "{text}");
        }
        let half = ListenRequest { has_key: true, ..ListenRequest::default() };
        assert_eq!(listen_plan(&half), Err(ListenRefusal::HalfTls));
    }

    #[test]
    fn names_follow_from_the_bound_address() {
        let plan =
            listen_plan(&ListenRequest { behind_proxy: Some("https://sluice.example.org"), ..request("127.0.0.1:0") })
                .expect("it is safe");
        let names =
            plan.tcp_names(&plan.tcp[0], "127.0.0.1:4000".parse().expect("an address"), &["box.example".to_owned()]);
        let passes = |names: &Authorities, host: &'static str| {
            let headers = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static(host))]);
            names.check(&Method::GET, &Uri::from_static("/"), &headers).is_ok()
        };
        for host in
            ["127.0.0.1:4000", "localhost:4000", "box.example:4000", "sluice.example.org", "sluice.example.org:443"]
        {
            assert!(passes(&names, host), "{host}");
        }
        assert!(!passes(&names, "127.0.0.1:0") && !passes(&names, "sluice.example.org:4000"));
        assert!(passes(&plan.socket_names(), "localhost") && !passes(&plan.socket_names(), "127.0.0.1:4000"));
    }
}
