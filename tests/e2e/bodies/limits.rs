//! The form of a body: one JSON object, not encoded, and not too large.

use serde_json::json;
use sluice_testkit::{Script, Sidecar, Upstream};

use super::{WIRES, body, passed, refused};

#[tokio::test]
async fn a_body_is_json_with_any_content_type() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let kinds = [
        "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
        "application/json; charset=utf-16", "application/octet-stream", "é",
    ];
    for (path, rest) in WIRES {
        for kind in kinds {
            let headers = [("content-type", kind)];
            sidecar.request("POST", path, &headers, body(rest, "")).await.expect(200);
            let received = upstream.received().await;
            assert_eq!(received.headers_named("content-type"), ["application/json"], "{path} {kind}");
            assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &body(rest, "")[1..]));

            let evil = body(rest, r#","no-log":true"#);
            let answer = sidecar.request("POST", path, &headers, evil).await;
            answer.expect_refusal(400, "param_not_allowed");
            for form in [
                "model=m&input=i&no-log=true",
                "--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm\r\n--x--\r\n",
            ] {
                let answer = sidecar.request("POST", path, &headers, form).await;
                answer.expect_refusal(400, "invalid_json");
            }
        }
    }
}

#[tokio::test]
async fn a_compressed_body_is_refused() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for (path, rest) in WIRES {
        for coding in
            ["gzip", "GZIP", "deflate", "br", "zstd", "identity, gzip", "gzip, identity", "x-gzip", "aws-chunked", ""]
        {
            let headers = [("content-encoding", coding)];
            let answer = sidecar.request("POST", path, &headers, body(rest, "")).await;
            assert_eq!((answer.status, answer.reason()), (415, "content_encoding_not_allowed"), "{path} {coding:?}");
        }
        let twice = [("content-encoding", "identity"), ("Content-Encoding", "gzip")];
        let answer = sidecar.request("POST", path, &twice, body(rest, "")).await;
        answer.expect_refusal(415, "content_encoding_not_allowed");
        sidecar.request("POST", path, &[("content-encoding", "Identity")], body(rest, "")).await.expect(200);
        assert_eq!(upstream.received().await.header("content-encoding"), None);
    }
}

#[tokio::test]
async fn a_body_is_one_object_of_strict_json() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let deep =
        |open: &str, close: &str| body(&format!(r#""messages":{}{}"#, open.repeat(5000), close.repeat(5000)), "");
    let utf16: Vec<u8> = body(r#""messages":[]"#, "").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let text = |text: &str| text.as_bytes().to_vec();
    for bad in [
        text(""),
        text(" "),
        text("[]"),
        text(r#"[{"model":"m"}]"#),
        text("1"),
        text("null"),
        text("true"),
        text(r#""model""#),
        text("model=m"),
        text(r#"{"model":"m""#),
        text(r#"{"model":"m",}"#),
        text(r#"{"model":"m"}}"#),
        text(r#"{"model":"m"}{"no-log":true}"#),
        text(r#"{"model":"m"} x"#),
        text(r#"{model:"m"}"#),
        text(r#"{'model':'m'}"#),
        text("{\"model\":\"m\" /* c */}"),
        text("\u{feff}{\"model\":\"m\"}"),
        text(r#"{"model":"m","temperature":NaN}"#),
        text(r#"{"model":"m","temperature":Infinity}"#),
        text(r#"{"model":"m","temperature":-Infinity}"#),
        text(r#"{"model":"m","temperature":01}"#),
        text(r#"{"model":"m","temperature":.5}"#),
        text(r#"{"model":"m","temperature":+1}"#),
        text(r#"{"model":"m","x":True}"#),
        text(r#"{"model":"m","x":"\x41"}"#),
        text(r#"{"model":"m","x":"\ud800"}"#),
        text(r#"{"model":"m","x":"\udc00\ud800"}"#),
        text("{\"model\":\"m\",\"x\":\"a\nb\"}"),
        text("{\"model\":\"m\",\"x\":\"a\0b\"}"),
        b"{\"model\":\"m\",\"x\":\"\xff\"}".to_vec(),
        b"{\"model\":\"m\",\"x\":\"\xc0\xae\"}".to_vec(),
        b"{\"model\":\"m\",\"x\":\"\xed\xa0\x80\"}".to_vec(),
        utf16,
        text(&deep("[", "]")),
        text(&deep(r#"{"a":"#, "}").replace(r#""a":}"#, r#""a":1}"#)),
    ] {
        for (path, _) in WIRES {
            let answer = sidecar.post(path, &bad).await;
            let shown = String::from_utf8_lossy(&bad[..bad.len().min(60)]).into_owned();
            assert_eq!((answer.status, answer.reason()), (400, "invalid_json"), "{path} {shown}: {}", answer.text());
        }
    }
    assert_eq!((upstream.begun(), sidecar.audit().intents().len()), (0, 0));
}

#[tokio::test]
async fn a_duplicate_member_is_refused() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for (path, rest) in WIRES {
        for (more, param) in [
            (r#","stream":false,"stream":true"#, "stream"),
            (r#","user":"a","user":"b""#, "user"),
            (r#","user":"a","\u0075ser":"b""#, "user"),
            (r#","unknown":1,"unknown":1"#, "unknown"),
            (r#","max_tokens":1,"temperature":1,"temperature":2"#, "temperature"),
        ] {
            let rest = rest.replace(r#""max_tokens":9,"#, "");
            refused(&sidecar, path, &body(&rest, more), 400, "duplicate_member", Some(param)).await;
        }
        let many: String = (0..200).map(|number| format!(r#","m{number}":1"#)).collect();
        refused(&sidecar, path, &body(rest, &many), 400, "invalid_param", None).await;
    }
    assert_eq!(upstream.begun(), 0);
}

#[tokio::test]
async fn an_oversized_body_is_refused_by_length_and_bytes() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--max-body", "1000"]).start().await;
    for (path, rest) in WIRES {
        let sized = |size: usize| {
            let fill = size - body(rest, r#","temperature":1,"stop":"""#).len();
            body(rest, &format!(r#","temperature":1,"stop":"{}""#, "x".repeat(fill)))
        };
        sidecar.post(path, sized(1000)).await.expect(200);
        upstream.received().await;
        sidecar.post(path, sized(1001)).await.expect_refusal(413, "body_too_large");

        // The sidecar refuses by the head alone: the client sends nothing of the body.
        let mut raw = sidecar.connect().await;
        raw.send(format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n")).await;
        raw.read_response().await.expect_refusal(413, "body_too_large");

        for (size, status) in [(1000, 200), (1001, 413), (5000, 413)] {
            let mut raw = sidecar.connect().await;
            raw.send(format!("POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")).await;
            for piece in sized(size).as_bytes().chunks(300) {
                let piece = String::from_utf8_lossy(piece);
                raw.send(format!("{:x}\r\n{piece}\r\n", piece.len())).await;
            }
            raw.send("0\r\n\r\n").await;
            let answer = raw.read_response().await.expect(status);
            if status == 200 {
                upstream.received().await;
            } else {
                answer.expect_refusal(413, "body_too_large");
            }
        }
    }
    assert_eq!(upstream.begun(), 2 * WIRES.len());
    assert_eq!(sidecar.audit().refused_reasons(), vec!["body_too_large"; 4 * WIRES.len()]);
}

#[tokio::test]
async fn an_image_of_20_megabytes_passes_untouched() {
    let upstream = Upstream::answering(Script::chat("hi")).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let picture = "iVBORw0KGgo+/8=A".repeat(1_400_000);
    let part = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{picture}")}});
    let sent = json!({"model": "m", "messages": [{"role": "user", "content": [part]}]}).to_string();
    assert!(sent.len() > 20 * 1024 * 1024);

    let received = passed(&upstream, &sidecar, "/v1/chat/completions", &sent).await;

    // assert_eq! would print both bodies.
    assert!(
        received.body == format!(r#"{{"user":"acct-1",{}"#, &sent[1..]).as_bytes(),
        "the body was changed on its way"
    );
    assert_eq!(sidecar.audit().only_call().intent["req_bytes"], sent.len());
}
