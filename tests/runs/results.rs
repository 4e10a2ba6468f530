//! The result of a run: the answer, the JSON, the verdict and its exit code.

use std::collections::BTreeMap;

use serde_json::json;
use sluice_testkit::controller::RunReport;
use sluice_testkit::engine;
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::upstream::Script;
use sluice_testkit::{Sluice, Upstream};
use tokio::io::AsyncWriteExt;

mod input;
mod output;
mod terminal;
mod tty;

/// Calls the model twice, and fails if a call fails.
const TWO_CALLS: &str = r#"
ask() {
    curl --silent --show-error --fail "$OPENAI_BASE_URL/chat/completions" --output /dev/null \
        --json '{"model": "'"$SLUICE_MODEL"'", "messages": [{"role": "user", "content": "hello"}]}'
}
ask && ask"#;

/// Runs an agent of the configuration file; its program is this shell script.
async fn run_agent(sluice: &Sluice, script: &str, flags: &[&str]) -> RunReport {
    let argv = json!(["sh", "-c", script]);
    sluice.file("sluice.toml", &format!("[[agents]]\nagentId = \"sandbox:test\"\nargv = {argv}\n"));
    let words = ["--agent", "sandbox:test", "--model", "m", "--json"];
    sluice.run(words).args(flags).arg("hello").finish().await.json()
}

async fn run_program(sluice: &Sluice, flags: &[&str], script: &str) -> RunReport {
    sluice.run(["--json"]).args(flags).args(["--", "sh", "-c", script]).finish().await.json()
}

#[tokio::test]
async fn stdout_has_the_answer_and_stderr_the_receipt() {
    let sluice = Sluice::new().await;

    let ran = sluice.run(["--model", "gpt-4o-mini", "hello"]).finish().await.expect(0);

    assert_eq!(ran.stdout, "Hello from the mock model.\n");
    let lines: Vec<_> = ran.stderr.lines().map(|line| line.split_whitespace().next().unwrap_or_default()).collect();
    assert_eq!(lines, ["run", "time", "calls", "cost", "audit"], "{}", ran.stderr);
    let audit = sluice.assert_nothing_left().await.pop().expect("one run has one audit file");
    let (run_id, cost) = (audit.open()["run_id"].as_str().expect("a run has a name"), audit.only_call());
    let line = |at: usize| ran.stderr.lines().nth(at).unwrap_or_default();
    assert_eq!(line(0), format!("run     {run_id}.0  ok"));
    assert_eq!(line(2), "calls   1 (0 refused), 10 tokens in, 20 out");
    assert_eq!(line(3), format!("cost    ${}", cost.cost().expect("the mock has a price")));
    assert_eq!(line(4), format!("audit   {}  4 lines, complete", sluice.audit_path(run_id).display()));
}

#[tokio::test]
async fn quiet_keeps_stderr_for_what_went_wrong() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);

    let fine = sluice.run(["--quiet", "--model", "m", "hello"]).finish().await.expect(0);
    let failed = sluice.run(["-q", "--", "sh", "-c", "echo so >&2; exit 3"]).finish().await.expect(3);

    assert_eq!((fine.stdout.as_str(), fine.stderr.as_str()), ("hello\n", ""));
    assert_eq!(failed.stderr, "so\nsluice: container_failed: the program ended with exit code 3\n");
}

#[tokio::test]
async fn the_json_receipts_agree_with_litellm() {
    let litellm = LiteLlm::shared().await;
    let sluice = Sluice::new().await;

    let words = ["--model", "gpt-4o-mini", "--account", "acct-77", "--json", "--", "sh", "-c", TWO_CALLS];
    let report = sluice.run(words).finish().await.expect(0).json();

    assert_eq!((report.verdict(), report.error_message.clone()), ((true, None, 0), None));
    assert_eq!((report.attempt, report.refused, report.oom_seen, report.output_truncated), (0, 0, false, false));
    assert_eq!((report.content.as_str(), report.stdout.as_str(), report.stderr.as_str()), ("", "", ""));
    assert_eq!((report.usage.input, report.usage.output, report.usage.total), (Some(20), Some(40), Some(60)));
    let timings = report.timings;
    for part in
        [timings.sidecar_ready, timings.container_create, timings.container_start, timings.run, timings.teardown]
    {
        assert!(part.is_some_and(|ms| ms > 0.0 && ms < 60_000.0), "{timings:?}");
    }
    assert_eq!(report.receipts.len(), 2);
    let mut sum = 0.0;
    for receipt in &report.receipts {
        let record = litellm.record_for(&receipt.call_id).await;
        assert_eq!(record["spend_logs_metadata"]["run_id"], report.run_id.as_str(), "{record}");
        assert_eq!(record["end_user"], "acct-77", "{record}");
        let cost: f64 = receipt.cost_usd.as_deref().and_then(|cost| cost.parse().ok()).expect("the mock has a price");
        assert!((cost - record["response_cost"].as_f64().expect("a cost")).abs() < 1e-12, "{receipt:?} {record}");
        sum += cost;
        let usage = receipt.usage.expect("the mock counts tokens");
        assert_eq!(
            (json!(usage.input), json!(usage.output)),
            (record["prompt_tokens"].clone(), record["completion_tokens"].clone())
        );
        assert_eq!(receipt.source_reference, format!("{}/0/{}", report.run_id, receipt.call_id));
        assert_eq!((receipt.status.as_str(), receipt.result.as_deref()), ("posted", Some("ok")));
        assert_eq!((receipt.model.as_deref(), receipt.null_reason.as_deref()), (Some("gpt-4o-mini"), None));
        assert_eq!(receipt.litellm_call_id.as_deref(), Some(receipt.call_id.as_str()));
    }
    let total: f64 = report.cost_usd.as_deref().and_then(|cost| cost.parse().ok()).expect("a total");
    assert!((total - sum).abs() < 1e-12, "{total} is not {sum}");

    let audit = sluice.audit(&report.run_id);
    assert_eq!((audit.lines().len() as u64, audit.is_closed()), (report.audit.lines, report.audit.complete));
    assert_eq!(report.audit.file, sluice.audit_path(&report.run_id).display().to_string());
    let ids: Vec<_> = audit.calls().iter().map(|call| call.id().to_owned()).collect();
    assert_eq!(ids, report.receipts.iter().map(|receipt| receipt.call_id.clone()).collect::<Vec<_>>());
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn messages_reach_the_model_unchanged() {
    let messages = json!([
        {"role": "system", "content": "be brief \"\\ \u{1F600}"},
        {"role": "user", "content": [{"type": "text", "text": "hello\n"}]},
    ]);
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let file = sluice.file("messages.json", &format!(" {messages}\n"));

    let words = ["--model", "m", "--quiet", "--messages"];
    sluice.run(words).arg(&file).finish().await.expect(0);
    sluice.run(words).arg("-").stdin(messages.to_string()).finish().await.expect(0);

    let sent: Vec<_> = upstream.requests().iter().map(|request| request.json()["messages"].clone()).collect();
    assert_eq!(sent, [messages.clone(), messages]);
}

#[tokio::test]
async fn the_exit_code_is_the_programs_own() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let failed = Some("container_failed");
    for (argv, code, word, message) in [
        (&["true"][..], 0, None, ""),
        (&["sh", "-c", "exit 42"], 42, failed, "exit code 42"),
        (&["/etc/passwd"], 126, failed, "126"),
        (&["no-such-program"], 127, failed, "127"),
        (&["sh", "-c", "kill -KILL $$"], 137, failed, "signal 9"),
        (&["sh", "-c", "kill -TERM $$"], 143, failed, "signal 15"),
    ] {
        let ran = sluice.run(["--json", "--"]).args(argv).finish().await;
        let report = ran.json();
        assert_eq!((ran.code, report.verdict()), (code, (word.is_none(), word, code)), "{argv:?}");
        assert!(report.error_message.unwrap_or_default().contains(message), "{argv:?}");
        assert!(!report.oom_seen, "{argv:?}");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_is_stopped_at_its_timeout() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for script in ["exec sleep 60", "trap '' TERM INT HUP; while :; do sleep 60; done", "while :; do :; done"] {
        let ran = sluice.run(["--timeout", "1s", "--json", "--", "sh", "-c", script]).finish().await.expect(124);

        let report = ran.json();
        assert_eq!(report.verdict(), (false, Some("timeout"), 124), "{script}");
        assert!(report.message().contains("--timeout"), "{}", report.message());
        let took = report.timings.run.expect("it ran");
        // The limit, the grace of a program that ignores SIGTERM, and the delay of a busy machine.
        assert!((1000.0..20_000.0).contains(&took), "{script} ran for {took} ms");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_timed_out_calls_receipt_says_so() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);

    let report = sluice.run(["--timeout", "20s", "--model", "m", "--json", "hello"]).finish().await.expect(124).json();

    assert_eq!(report.verdict(), (false, Some("timeout"), 124));
    let receipt = report.only_receipt();
    let told = (receipt.result.as_deref(), receipt.status.as_str(), receipt.null_reason.as_deref());
    assert_eq!((told, receipt.cost_usd.as_deref()), ((Some("deadline"), "pending_cost", Some("cut")), None));
    // The wait for the cost of the answer is bounded.
    assert!(report.timings.teardown.is_some_and(|ms| ms < 20_000.0), "{:?}", report.timings);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn out_of_memory_is_distinguished_from_a_signal() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);

    let words = ["--memory", "64m", "--json", "--", "node", "-e", "Buffer.alloc(200e6, 1)"];
    // On a busy machine the engine misses one in fifty, since the container ends at the same moment.
    let mut tries = 0;
    let itself = loop {
        tries += 1;
        let report = sluice.run(words).finish().await.expect(137).json();
        assert!(report.message().contains("--memory"), "{}", report.message());
        if report.oom_seen || tries == 3 {
            break report;
        }
    };

    assert_eq!((itself.verdict(), itself.oom_seen), ((false, Some("oom_killed"), 137), true));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_killed_child_does_not_end_its_program() {
    let upstream = Upstream::never().start().await;
    for (code, word) in [(0, None), (3, Some("container_failed"))] {
        let sluice = Sluice::to(&upstream);
        // It ends only after the engine has seen the kill.
        let script =
            format!("node -e 'Buffer.alloc(200e6, 1)'; until [ -e /tmp/seen ]; do sleep 0.1; done; exit {code}");
        let words = ["--memory", "64m", "--json", "--", "sh", "-c", &script];
        let live = sluice.run(words).spawn();
        let container = sluice.container_event("oom", 1).await;
        assert_eq!(engine::exec(&container, ["touch", "/tmp/seen"]).await.code, 0);

        let report = live.finish().await.json();

        assert_eq!((report.verdict(), report.oom_seen), ((word.is_none(), word, code), true));
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn survived_memory_shortage_is_reported() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // Data that fit, and a file that does not fit beside them: the kernel reads it again and again.
    let program = "import mmap\ndata = bytearray(40 << 20)\nfor i in range(0, len(data), 4096): data[i] = 1\n\
        with open('file', 'wb') as file:\n    for _ in range(32): file.write(bytes(1 << 20))\n\
        file = open('file', 'rb'); pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n\
        while True: sum(pages[i] for i in range(0, len(pages), 4096))";
    for (memory, is_short) in [("64m", true), ("512m", false)] {
        let timeout = if is_short { "90s" } else { "12s" };
        let words = ["--memory", memory, "--timeout", timeout, "--json", "--", "python3", "-c", program];
        let report = sluice.run(words).finish().await.expect(124).json();

        assert_eq!((report.verdict(), report.oom_seen), ((false, Some("timeout"), 124), false), "{memory}");
        assert_eq!(report.short_of_memory, is_short, "{memory}");
        assert_eq!(report.message().contains("short of memory, with 64m (--memory)"), is_short, "{}", report.message());
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_agents_reported_failure_overrides_its_exit_code() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let envelope = r#"{"payloads":[{"text":"half"}],"meta":{"error":{"code":"llm_error","message":"no luck"}}}"#;
    for (exit, code) in [(0, 1), (5, 5)] {
        let report = run_agent(&sluice, &format!("cat <<'END'\n{envelope}\nEND\nexit {exit}"), &[]).await;
        assert_eq!(report.verdict(), (false, Some("container_failed"), code), "{report:?}");
    }
}

#[tokio::test]
async fn a_reached_cap_fails_only_a_failing_program() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let capped = ["--model", "m", "--max-calls", "1"];

    let failed = run_program(&sluice, &capped, TWO_CALLS).await;
    let content = run_program(&sluice, &capped, &format!("{TWO_CALLS}; echo so be it")).await;
    let under = run_program(&sluice, &["--model", "m", "--max-calls", "2"], TWO_CALLS).await;

    assert_eq!((failed.verdict(), failed.refused), ((false, Some("budget_exceeded"), 121), 1));
    assert!(failed.message().contains("--max-calls"), "{}", failed.message());
    assert_eq!(failed.refused_by_reason, BTreeMap::from([("budget_exceeded".to_owned(), 1)]));
    assert_eq!(under.refused_by_reason, BTreeMap::new());
    assert_eq!((content.verdict(), content.refused, content.content.as_str()), ((true, None, 0), 1, "so be it\n"));
    assert_eq!((under.verdict(), under.refused, under.receipts.len()), ((true, None, 0), 0, 2));
    assert_eq!(upstream.requests().len(), 4);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_temporary_refusal_is_not_a_reached_cap() {
    // The program makes one call more than may be open at once, and fails for another reason.
    let script = r#"
        const body = JSON.stringify({ model: "m", messages: [] });
        const headers = { "content-type": "application/json" };
        const ask = () => fetch(process.env.OPENAI_BASE_URL + "/chat/completions", { method: "POST", headers, body })
            .then((answer) => { if (answer.status !== 200) console.log("status", answer.status); return answer.text(); });
        await Promise.all(Array.from({ length: 65 }, ask));
        process.exit(3);"#;
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--model", "m", "--", "node", "--input-type=module", "-e", script]).spawn();

    live.prints("status 429\n").await;
    upstream.held(64).await;
    upstream.release();

    let ran = live.finish().await.expect(3);
    assert!(ran.stderr.contains("sluice: container_failed: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("calls   64 (1 refused: too_many_calls)"), "{}", ran.stderr);
}

/// The port speaks HTTP, and the address says https.
#[tokio::test]
async fn a_failed_tls_handshake_is_told_with_its_cause() {
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("https://{}", plain.local_addr().expect("bound"));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = plain.accept().await {
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
        }
    });
    let sluice = Sluice::with(&url, "sk-some-key");

    let ran = sluice.run(["--model", "m", "hi"]).finish().await.expect(1);

    for words in [
        "(tls: the TLS handshake failed)",
        "received corrupt message of type InvalidContentType",
        url.as_str(),
        "use http:// if it has no TLS",
    ] {
        assert!(ran.stderr.contains(words), "no {words:?} in {}", ran.stderr);
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_upstream_that_fails_is_the_agents_to_tell() {
    let upstream = Upstream::answering(Script::json(500, json!({"error": {"message": "it hurts"}}))).start().await;
    let sluice = Sluice::to(&upstream);

    let ran = sluice.run(["--model", "m", "hello"]).finish().await.expect(1);

    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.starts_with("sluice: container_failed: llm_error: HTTP 500: it hurts"), "{}", ran.stderr);
    sluice.assert_nothing_left().await;
}
