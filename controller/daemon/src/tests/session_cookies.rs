//! Cookies of other pages beside the cookie of a session: cookies do not know ports, so any page of this host can set them.

use super::sessions::log_in;
use crate::test_daemon::TestDaemon;

/// Returns the status of a page, or of a route of the API, for a browser that sends these cookies.
async fn status(daemon: &TestDaemon, path: &str, cookies: &[&str]) -> u16 {
    let host = format!("Host: {}", daemon.address());
    let headers = [&[&*host, "X-Sluice: 1"], cookies].concat();
    daemon.bare("GET", path, &headers).await.status
}

#[tokio::test]
async fn a_foreign_cookie_of_any_bytes_changes_nothing() {
    let daemon = TestDaemon::start().await;
    let browser = log_in(&daemon, "slu_alice", false).await;
    let own = browser.cookie.strip_prefix("Cookie: ").expect("a header");
    let before = format!("Cookie: x=\u{e9}; {own}");
    let after = format!("{}; \u{e9}", browser.cookie);

    assert_eq!(status(&daemon, "/login", &["Cookie: x=\u{e9}"]).await, 200);
    for cookies in [&[&*before][..], &[&*after], &["Cookie: x=\u{e9}", &*browser.cookie]] {
        assert_eq!(status(&daemon, "/sandboxes", cookies).await, 200, "{cookies:?}");
        assert_eq!(status(&daemon, "/api/v1/session", cookies).await, 200, "{cookies:?}");
    }
}

#[tokio::test]
async fn a_planted_cookie_leaves_the_login_open() {
    let daemon = TestDaemon::with(|settings| settings.limits.failed_logins = 1000).await;
    let browser = log_in(&daemon, "slu_alice", false).await;
    let name = format!("Cookie: sluice-{}", daemon.address().port());
    let (text, long) = (format!("{name}=\u{e9}"), format!("{name}={}", "a".repeat(129)));

    for cookies in [&[&*browser.cookie, &*browser.cookie][..], &[&*browser.cookie, &*text], &[&*text], &[&*long]] {
        assert_eq!(status(&daemon, "/login", cookies).await, 200, "{cookies:?}");
        assert_eq!(status(&daemon, "/sandboxes", cookies).await, 401, "the page that asks for a login: {cookies:?}");
        assert_eq!(status(&daemon, "/api/v1/session", cookies).await, 401, "{cookies:?}");
    }
    let bearer = daemon.bearer("slu_alice");
    assert_eq!(status(&daemon, "/login", &[&*bearer, &*browser.cookie]).await, 401, "two credentials are none");
}
