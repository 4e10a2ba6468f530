//! The channel of a request as far as sessions depend on it: with TLS, or over loopback from a process of one user.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use tokio::task::spawn_blocking;

use crate::peer_user::peer_user;
use crate::request_source::{Authorities, ListenScheme, ReachedOrigin};
use crate::session_cookie::SessionCookie;
use crate::sessions::Binding;

/// A channel on which a request may have a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionChannel {
    /// Cookie of the sessions.
    pub(crate) cookie: SessionCookie,
    /// Both ends of a connection without TLS: the client's, and the daemon's.
    ends: Option<(SocketAddr, SocketAddr)>,
}

impl SessionChannel {
    /// Returns the channel of a request with a checked host. A unix socket has no channel, and plain HTTP beyond
    /// loopback has none either.
    #[must_use]
    pub(crate) fn of(names: &Authorities, headers: &HeaderMap, ends: Option<(SocketAddr, SocketAddr)>) -> Option<Self> {
        let origin = names.reached(headers)?;
        let cookie = SessionCookie::of(&origin);
        if origin.scheme == ListenScheme::Https {
            return Some(Self { cookie, ends: None });
        }
        let is_local = |end: &SocketAddr| end.ip().to_canonical().is_loopback();
        let direct = ends.filter(|(peer, local)| {
            is_local(peer) && is_local(local) && is_loopback_name(&origin) && local.port() == origin.port
        });
        direct.map(|ends| Self { cookie, ends: Some(ends) })
    }

    /// Returns what binds a session to this channel; `None` if the user of the process at the other end is unknown.
    pub(crate) async fn binding(&self) -> Option<Binding> {
        let Some((peer, local)) = self.ends else { return Some(Binding::Tls) };
        let uid = spawn_blocking(move || peer_user(peer, local)).await.ok()??;
        Some(Binding::Uid(uid))
    }
}

fn is_loopback_name(origin: &ReachedOrigin) -> bool {
    let ip = origin.host.trim_matches(['[', ']']).parse::<IpAddr>();
    origin.host == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::HOST;

    use super::*;

    #[test]
    fn without_tls_only_direct_loopback_has_sessions() {
        let names = Authorities::default()
            .with(ListenScheme::Http, "127.0.0.1", 8787)
            .with(ListenScheme::Https, "sluice.example.org", 443)
            .with(ListenScheme::Http, "sluice.example.org", 8080);
        let channel = |host, ends: Option<(&str, &str)>| {
            let ends = ends.map(|(peer, local)| (peer.parse().expect("an end"), local.parse().expect("an end")));
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            SessionChannel::of(&names, &headers, ends).map(|channel| channel.ends.is_some())
        };
        let local = Some(("127.0.0.1:40000", "127.0.0.1:8787"));
        assert_eq!(channel("127.0.0.1:8787", local), Some(true));
        assert_eq!(channel("sluice.example.org", local), Some(false), "the proxy has TLS");
        assert_eq!(channel("sluice.example.org", None), Some(false));
        for (host, ends) in [
            ("sluice.example.org:8080", local),
            ("127.0.0.1:8787", None),
            ("127.0.0.1:8787", Some(("10.0.0.7:40000", "127.0.0.1:8787"))),
            ("127.0.0.1:8787", Some(("127.0.0.1:40000", "10.0.0.1:8787"))),
            ("127.0.0.1:8787", Some(("127.0.0.1:40000", "127.0.0.1:9000"))),
            ("evil.example", local),
        ] {
            assert_eq!(channel(host, ends), None, "{host} {ends:?}");
        }
    }
}
