//! Passes over a scripted log.

use futures_util::stream;

use super::*;

fn sink(log_max: u64, first: Option<(RecordedStream, i64)>) -> Arc<Mutex<LogSink>> {
    Arc::new(Mutex::new(LogSink {
        captures: [Capture::new(1000), Capture::new(1000)],
        seen: [0; 2],
        record: None,
        record_error: None,
        first,
        log_max,
        loss: None,
    }))
}

fn out(text: &str) -> Result<LogOutput, ()> {
    let message = format!("2026-11-22T21:30:00.332116089Z {text}").into_bytes().into();
    Ok(LogOutput::StdOut { message })
}

fn stdout(sink: &Mutex<LogSink>) -> String {
    lock(sink).captures[0].clone().finish().text()
}

#[tokio::test]
async fn a_broken_pass_is_continued_without_a_gap() {
    let sink = sink(10_000, None);
    let broken = [out("a\n"), out("b\n"), Err(()), out("lost\n")];
    assert!(!take_all(stream::iter(broken), true, &sink).await);
    assert_eq!(stdout(&sink), "a\nb\n");
    let console = LogOutput::Console { message: "error grabbing logs".into() };
    assert!(!take_all(stream::iter([out("a\n"), out("b\n"), out("c\n"), Ok(console)]), true, &sink).await);
    // A pass that follows can end without the last line.
    assert!(!take_all(stream::iter([out("a\n"), out("b\n"), out("c\n")]), true, &sink).await);
    assert!(take_all(stream::iter([out("a\n"), out("b\n"), out("c\n"), out("end")]), false, &sink).await);
    assert_eq!((stdout(&sink).as_str(), lock(&sink).loss), ("a\nb\nc\nend", None));
}

#[tokio::test]
async fn a_log_whose_beginning_is_gone_adds_nothing() {
    let moved = sink(10_000, Some((RecordedStream::Stdout, 5)));
    assert!(take_all(stream::iter([out("a\n")]), true, &moved).await);
    assert_eq!((stdout(&moved).as_str(), lock(&moved).loss), ("", Some(LogLoss::Full)));
    let full = sink(60, None);
    assert!(!take_all(stream::iter([out("a\n")]), true, &full).await);
    assert!(take_all(stream::iter([out("a\n"), out("b\n"), out("c\n")]), true, &full).await);
    assert_eq!((stdout(&full).as_str(), lock(&full).loss), ("a\n", Some(LogLoss::Full)));
}

#[test]
fn short_lines_are_stored_together() {
    let piece = |stream, offset, time_us, text: &str| LogPiece { stream, offset, time_us, bytes: text.into() };
    let (out, err) = (RecordedStream::Stdout, RecordedStream::Stderr);
    let pieces = [
        piece(out, 0, 0, "a"),
        piece(out, 1, 5, "b"),
        piece(err, 0, 6, "e"),
        piece(out, 2, 7, "c"),
        piece(out, 3, 20_000, "d"),
    ];
    let expected = [piece(out, 0, 0, "ab"), piece(err, 0, 6, "e"), piece(out, 2, 7, "c"), piece(out, 3, 20_000, "d")];
    assert_eq!(joined(pieces.to_vec()), expected);
}
