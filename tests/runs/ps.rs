//! `sluice ps`: the runs that go on, and those that are over.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{PATIENCE, Sluice, Upstream, poll};

async fn list(sluice: &Sluice, words: &[&str]) -> Vec<Value> {
    let listed = sluice.command(["ps", "--json"]).args(words).finish().await.expect(0).value();
    listed["runs"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn an_open_run_shows_its_calls_and_cost() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("open");
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let shell = format!(
        "curl -sf -H 'content-type: application/json' -d '{body}' $OPENAI_BASE_URL/chat/completions >/dev/null && echo called; sleep 600"
    );
    let words = ["--quiet", "--run-id", &run, "--account", "acct-1", "--model", "m", "--", "sh", "-c", &shell];
    let live = sluice.run(words).spawn();
    live.prints("called").await;

    // The program can be ahead of the record that it runs.
    let mut open = Vec::new();
    let runs = poll(PATIENCE, async || {
        open = list(&sluice, &[]).await;
        open.iter().any(|run| run["state"] == "running")
    });
    assert!(runs.await, "{open:?}");
    let text = sluice.command(["ps"]).finish().await.expect(0).stdout;
    let others = list(&sluice, &["--account", "acct-2"]).await;
    live.signal(Signal::SIGINT);
    live.finish().await.expect(130);

    assert_eq!(open.len(), 1, "{open:?}");
    let [calls, open_calls, state, program] =
        ["calls", "open_calls", "state", "program"].map(|name| open[0][name].clone());
    assert_eq!((calls, open_calls), (json!(1), json!(0)));
    assert_eq!((state, program), (json!("running"), json!("sh")));
    assert!(text.contains(&run) && text.contains("running"), "{text}");
    assert_eq!(others, [Value::Null; 0]);
    assert_eq!(list(&sluice, &[]).await, [Value::Null; 0]);
    let all = list(&sluice, &["--all", "--account", "acct-1", "--since", "1h"]).await;
    assert_eq!(
        (&all[0]["state"], &all[0]["exit_code"], &all[0]["calls"]),
        (&json!("cancelled"), &json!(130), &json!(1))
    );
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_prefix_of_several_runs_names_them() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let prefix = unique_run_id("pre");
    let runs = [format!("{prefix}-a"), format!("{prefix}-b")];
    for run in &runs {
        sluice.run(["--quiet", "--run-id", run, "--", "true"]).finish().await.expect(0);
    }
    let several = sluice.command(["inspect", &prefix]).finish().await.expect(2);
    assert!(runs.iter().all(|run| several.stderr.contains(run.as_str())), "{}", several.stderr);
    let one = sluice.command(["inspect", &format!("{prefix}-b")]).finish().await.expect(0);
    assert!(one.stdout.contains(&runs[1]), "{}", one.stdout);
    assert!(one.stdout.contains("0 calls, 0 refused, 0 tokens in, 0 out, $0\n"), "{}", one.stdout);
    let all = list(&sluice, &["--all"]).await;
    assert!(all.len() == 2 && all.iter().all(|run| run["cost_usd"] == "0"), "{all:?}");
    let unknown = sluice.command(["logs", "no-such-run"]).finish().await.expect(2);
    assert!(unknown.stderr.contains("there is no run 'no-such-run'"), "{}", unknown.stderr);
    sluice.assert_nothing_left().await;
}
