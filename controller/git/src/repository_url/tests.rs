use super::*;

#[test]
fn addresses_of_four_kinds_are_read() {
    for (text, kind, host, port, path) in [
        ("https://github.com/o/r.git", UrlKind::Https, "github.com", Some(443), "o/r.git"),
        ("https://Git.Example.org:8443/a/b/c", UrlKind::Https, "git.example.org", Some(8443), "a/b/c"),
        ("http://127.0.0.1:3000/o/r", UrlKind::Http, "127.0.0.1", Some(3000), "o/r"),
        ("http://[::1]:3000/o/r", UrlKind::Http, "[::1]", Some(3000), "o/r"),
        ("ssh://git@host:2222/o/r.git", UrlKind::Ssh, "host", Some(2222), "o/r.git"),
        ("ssh://host/~me/r", UrlKind::Ssh, "host", Some(22), "~me/r"),
        ("git@github.com:o/r.git", UrlKind::Ssh, "github.com", Some(22), "o/r.git"),
        ("file:///srv/git/r.git", UrlKind::Local, "", None, "/srv/git/r.git"),
        ("/srv/git/ä b", UrlKind::Local, "", None, "/srv/git/ä b"),
    ] {
        let url = RepositoryUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((url.kind(), url.host(), url.port(), url.path()), (kind, host, port, path), "{text}");
        assert_eq!(url.to_string(), text);
    }
}

#[test]
fn addresses_that_mean_more_are_refused() {
    for text in [
        "", "o/r", "ext::sh -c id", "git@host::x", "ext::sh@x:y", "git://h/r", "http://example.org/o/r", "ftp://h/r",
        "fd::17", "https://h", "https://h/", "https://-oProxyCommand=x/r", "ssh://-oProxyCommand=x/r", "ssh://-x@h/r",
        "-oX@h:r", "git@-oX:r", "git@h:-x", "git@h:../r", "https://h/../r", "https://h/a//b", "https://h/a?b",
        "https://h/a#b", "https://h/%2e%2e/r", "https://h:0/r", "https://h:99999/r", "https://h:+1/r", "https://h/r\n",
        "https://h/r\u{202e}", "https://h\u{430}/r", "file://host/r", "file:///", "/", "/a/../b", "file://../r",
        "https://[::1/r", "https://h/a b", "--upload-pack=x",
    ] {
        assert!(RepositoryUrl::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_password_is_refused_and_not_repeated() {
    for text in [
        "https://user:hunter2@h/r", "https://hunter2@h/r", "ssh://git:hunter2@h/r", "git:hunter2@h:r",
        "https://:hunter2@h/r",
    ] {
        let error = RepositoryUrl::parse(text).map(|url| url.to_string()).expect_err("it has a password").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn spellings_of_one_address_are_one() {
    let canonical = |text| RepositoryUrl::parse(text).expect("an address").canonical();
    assert_eq!(canonical("https://H/o/r.git"), canonical("https://h:443/o/r/"));
    assert_eq!(canonical("git@h:o/r"), canonical("ssh://git@h:22/o/r.git"));
    assert_ne!(canonical("https://h/o/r"), canonical("ssh://h/o/r"));
    assert_eq!(split_branch("https://h/r#b/c"), ("https://h/r", Some("b/c")));
    assert_eq!(split_branch("/r"), ("/r", None));
}
