use super::*;
use crate::json::TEXT_MAX;

fn complete(text: &str) -> StrPrefix<'_> {
    StrPrefix { head: text.as_bytes(), complete: true }
}

/// Returns the verdict on a long string for each split of its rest into pieces of one size.
fn long(begin: fn(&[u8]) -> LongString, text: &str) -> bool {
    let (head, rest) = text.as_bytes().split_at(TEXT_MAX);
    let verdicts = [1, 7, 4096, 1 << 20].map(|size| rest.chunks(size).fold(begin(head), LongString::then));
    let [one, ..] = verdicts.map(LongString::may_be_address);
    assert!(verdicts.iter().all(|verdict| verdict.may_be_address() == one), "{verdicts:?}");
    one
}

#[test]
fn a_host_is_seen_however_it_is_written() {
    let blanks = format!("{}http://x", " ".repeat(300));
    for url in [
        "http://x", "HTTPS://x", " http://x", "\thttp://x", "gs://b/o", "s3://b", "file:///etc/passwd", "//x/y",
        "ftp://x", "http:/x", "http:x", "http:\t//x", "ht\ttp:\n//x", "\\\\x", "/\\x",
        "data:image/png,https://x/a.png", &blanks,
    ] {
        assert!(is_remote(complete(url), LongString::Text), "{url:?}");
    }
    assert!(is_remote(StrPrefix { head: b"   ", complete: false }, LongString::default()));
    for inline in [
        "data:image/png;base64,AAAA", "DATA:,a:b", "file-abc123", "iVBORw0KGgo=", "", "a/b+c==", "/9j/4AAQ",
        "files/abc",
    ] {
        assert!(!is_remote(complete(inline), LongString::Address), "{inline:?}");
    }
}

#[test]
fn a_long_url_has_one_scheme_at_most() {
    let a = |n: usize| "A".repeat(n);
    for inline in [
        format!("data:image/png;base64,{}", a(5000)),
        format!("DATA:application/pdf;name=a%20b.pdf;BASE64,{}+/-_==", a(1000)),
        format!("data:;base64,{}", a(1000)),
        format!("data:image/png;base64,{}\r\n{}\n", a(760), a(76)),
        format!("data:image/png;base64, {}", a(1000)),
        format!("/9j/4{}=", a(9000)),
        format!("{}\n{}\n", a(76), a(900)),
        // No base64, and no address either.
        format!("{}.", a(1000)),
        format!("data:image/png;base64,{},{}", a(1000), a(9)),
        format!("data:image/png;base64,{}\u{e9}", a(5000)),
    ] {
        assert!(!long(LongString::of_url, &inline), "{}", &inline[..40]);
    }
    for url in [
        format!("{}http://host/exfil", " ".repeat(TEXT_MAX - 1)),
        format!("{}http://host/exfil", " ".repeat(TEXT_MAX + 1)),
        format!("\u{1}{}", a(1000)),
        format!("\n{}", a(1000)),
        format!("//localhost/{}", a(1000)),
        format!("/\n/localhost/{}", a(1000)),
        format!("http://host/{}", a(1000)),
        format!("{}://host/", a(1000)),
        format!("data:image/png;base64,{}https://host/", a(1000)),
        format!("data:image/png;base64,{}:", a(5000)),
        format!("data:image/png,{}", a(1000)),
        format!("data:{};base64,{}", a(1000), a(9)),
        format!("data:https://host/;base64,{}", a(1000)),
        format!(" data:image/png;base64,{}", a(1000)),
        format!("data:image/png; base64,{}", a(1000)),
    ] {
        assert!(long(LongString::of_url, &url), "{}", &url[..40]);
    }
}

#[test]
fn every_byte_of_the_head_is_judged() {
    for byte in 0..=255_u8 {
        let is_part = byte.is_ascii_alphanumeric() || b"+/=-_ \r\n".contains(&byte);
        for at in [0, 31, 32, 766, 767] {
            let mut text = vec![b'A'; 768];
            text[at] = byte;
            assert_eq!(is_base64(&text), is_part, "{byte:#x} at {at}");
        }
    }
}

#[test]
fn a_bucket_is_found_and_a_sentence_is_text() {
    for bucket in [
        "gs://b/o",
        " gs://b/o",
        "\n\tGS://b",
        "s3://b",
        "xgs://b/o",
        "gs://b/o ",
        "files/abc",
        "gs://b/my scan.png",
        "https://generativelanguage.googleapis.com/v1beta/files/abc",
    ] {
        assert!(is_stored(complete(bucket), LongString::Text), "{bucket:?}");
    }
    for text in ["files/ are", "see gs://b/o", "copy gs://a to s3://b", "plain", ""] {
        assert!(!is_stored(complete(text), LongString::Address), "{text:?}");
    }
}

#[test]
fn a_bucket_in_a_long_input_is_found() {
    let of = |one: &str, n: usize| one.repeat(n);
    for bucket in [
        format!("{}gs://b/x", of(" ", 770)),
        format!("{}files/abc", of("\n", 770)),
        format!("{}files/abc", of("\u{3000}", 300)),
        format!("{}gs://b/o.png", of("A", 800)),
        format!("{}S3://b/o.png", of("A", TEXT_MAX - 3)),
        format!("gs://b/{}  \n", of("a", 1000)),
        format!("{} gs://b/o\u{a0}", of("\u{a0}", 500)),
        format!("{}gs://b/o", of("\u{65e5}", 300)),
        format!("data:image/png;base64,{}gs://b/o", of("A", 1000)),
        format!("gs://b/{} scan.png", of("a", 1000)),
        format!("{}gs://b/my scan.png", of(" ", 770)),
        format!("https://generativelanguage.googleapis.com/v1beta/files/{}", of("a", 1000)),
        format!("{}https://generativelanguage.googleapis.com/v1beta/files/a", of(" ", 770)),
        format!("{}HTTPS://generativelanguage.googleapis.com/v1beta/files/a", of(" ", 740)),
    ] {
        assert!(long(LongString::of_input, &bucket), "{bucket:?}");
    }
    for text in [
        of("A plain text, see http://host/ or gs://b/o. ", 40),
        format!("{}def f(): return 'gs://b/o'", of(" ", 800)),
        format!("{} and a second word: gs://b/o", of("A", 800)),
        of("A", 5000),
        of(" ", 5000),
        of("\u{65e5}\u{672c}\u{8a9e}\u{3002}", 300),
        format!("{}http://host/a", of("\u{65e5}", 300)),
        format!("data:image/png;base64,{}", of("A", 5000)),
        format!("profiles/{}", of("a", 1000)),
    ] {
        assert!(!long(LongString::of_input, &text), "{}", text.chars().take(40).collect::<String>());
    }
}
