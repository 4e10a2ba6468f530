//! The JSON objects of all commands: their schemas, their common members, and output that cannot be written.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use sluice_testkit::controller::{FinishedCommand, unique_run_id};
use sluice_testkit::{PATIENCE, Script, Sluice, Upstream, poll, schemas};

/// A command, the name of its schema, and its exit code.
#[derive(Clone)]
struct Case {
    words: Vec<String>,
    schema: &'static str,
    code: i32,
}

fn case(words: &str, schema: &'static str, code: i32) -> Case {
    Case { words: words.split(' ').map(str::to_owned).collect(), schema, code }
}

/// Prepares a state directory with one run, in which the second call has no known cost, with copies of its audit file
/// and a backup. Returns also the names of the run and of that call's receipt.
async fn prepared(upstream: &Upstream) -> (Sluice, String, String) {
    let sluice = Sluice::to(upstream);
    let script = r#"for model in m free; do
        curl -s "$OPENAI_BASE_URL/chat/completions" --json '{"model":"'$model'","messages":[]}'
    done; curl -s $OPENAI_BASE_URL/files"#;
    let run = sluice.run(["--json", "--", "sh", "-c", script]).finish().await.expect(0);
    let report = run.json();
    let (id, receipt) = (report.run_id, report.receipts[1].source_reference.clone());
    let text = fs::read_to_string(sluice.audit_path(&id)).expect("we are root");
    sluice.file("altered.jsonl", &text.replacen("\"route_not_allowed\"", "\"route_not_allowes\"", 1));
    sluice.file("foreign.jsonl", include_str!("../../../proxy/contract/tests/golden/unsigned.jsonl"));
    sluice.file("torn.jsonl", &text[..text.len() - 20]);
    sluice.file("other.pub", &format!("{}\n", sluice_contract::PrivateKey::from_seed(&[7; 32]).public()));
    sluice.command(["backup", "kept"]).finish().await.expect(0);
    (sluice, id, receipt)
}

/// Every command that prints an object, in an order in which each of them can do its work.
fn cases(id: &str, receipt: &str) -> Vec<Case> {
    [cases_of_runs(id), cases_of_state(receipt), cases_of_audit(id)].concat()
}

fn cases_of_runs(id: &str) -> Vec<Case> {
    vec![
        case("run --json -- true", "run", 0),
        case("run --json --bogus", "run", 125),
        case("run --json", "run", 125),
        case(&format!("rerun {id} --json"), "run", 0),
        case("rerun nope --json", "run", 125),
        case("rerun nope --json --server nonsense", "run", 125),
        case("ps --json", "ps", 0),
        case("ps --all --json", "ps", 0),
        case(&format!("inspect {id} --json"), "inspect", 0),
        case("inspect nope --json", "inspect", 2),
        case(&format!("cancel {id} --json"), "cancel", 1),
        case(&format!("diff {id} --json"), "diff", 2),
        case(&format!("apply {id} --json"), "apply", 2),
        case(&format!("push {id} --head x --json"), "push", 2),
        case(&format!("pr {id} --json"), "pr", 2),
        case(&format!("merge {id} --head x --json"), "merge", 2),
        case("cancel --all --json", "cancel", 125),
        case(&format!("wait {id} --json"), "wait", 0),
        case("wait nope --json", "wait", 2),
        case("run -d --json -- true", "run-detached", 125),
        case("run -d --json --repo . --volume a:/b -- true", "run-detached", 125),
        case("retry nope --json", "retry", 125),
        case("fail nope --reason none --json", "fail", 125),
        case("send nope hello --json", "send", 125),
        case("interrupt nope --json", "interrupt", 125),
        case("messages nope --json", "messages", 125),
        case("pause nope --json", "pause", 125),
        case("resume nope --json", "resume", 125),
        case("approvals --json", "approvals", 125),
        case("approve nope apr-1 --yes --json", "approve", 125),
        case("deny nope apr-1 --yes --json", "deny", 125),
        case("answer nope --json", "answer", 125),
        case(&format!("events {id} --json"), "events", 1),
        case(&format!("compare {id} {id} --json"), "compare", 0),
        case("compare nope nope --json", "compare", 2),
        case("top --json", "top", 0),
        case("open --json", "open", 125),
        case("exec nope --json -- true", "exec", 125),
        case("cp nope:/workspace out --json", "cp", 125),
        case("cp one two --json", "cp", 2),
        case("agent ls --json", "agent", 0),
        case("agent show nope --json", "agent", 2),
        case("agent add one --json", "agent", 125),
        case("agent suspend one --json", "agent", 125),
        case("agent resume one --json", "agent", 125),
        case("agent rm one --json", "agent", 125),
        case("preflight --json", "preflight", 0),
        case("preflight --json --image no/such:image", "preflight", 1),
        case("sweep --json", "sweep", 0),
    ]
}

fn cases_of_state(receipt: &str) -> Vec<Case> {
    vec![
        case("receipts --json", "receipts", 0),
        case("usage --json", "usage", 0),
        case("usage --by model --json", "usage", 0),
        case("usage --json --state-dir /nope", "usage", 2),
        case("ledger rebuild --json", "ledger-rebuild", 0),
        case("ledger rebuild --check --json", "ledger-rebuild", 0),
        case("ledger backup copy.db --json", "ledger-backup", 0),
        case("ledger backup copy.db --json", "ledger-backup", 1),
        case("ledger import foreign.jsonl --unsigned --state-dir imported --json", "ledger-import", 0),
        case("ledger import altered.jsonl nope.jsonl --json", "ledger-import", 1),
        case(&format!("ledger void {receipt} --reason gone --json"), "ledger-void", 0),
        case("ledger void r-1/0/nope --reason gone --json", "ledger-void", 2),
        case("backup copy --json", "backup", 0),
        case("backup copy --json", "backup", 1),
        case("restore kept --state-dir restored --json", "restore", 0),
        case("restore kept --state-dir restored --json", "restore", 1),
        case("prune --before 2020-01-01 --reason old --json", "prune", 0),
        case("prune --before never --reason old --json", "prune", 2),
        case("budget set acct-1 25 --json", "budget", 0),
        case("budget add acct-1 0.5 --json", "budget", 0),
        case("budget show --json", "budget", 0),
        case("run --json --account acct-1 --max-cost-usd 30 -- true", "run", 121),
        case("budget confirm --json", "budget", 0),
        case("budget remove acct-1 --json", "budget", 0),
        case("budget show acct-1 --json", "budget", 2),
        case("budget history --json", "budget-history", 0),
        case("token create --owner alice --role owner --account acct-1 --json", "token", 0),
        case("token create --owner alice --role owner --json", "token", 2),
        case("token list --json", "token", 0),
        case("token revoke tok_nope --json", "token", 2),
        case("webhook list --json", "webhook", 0),
        case("webhook dead --json", "webhook", 0),
        case("webhook test nope --json", "webhook", 2),
        case("webhook retry nope --json", "webhook", 2),
        case("reconcile --json --no-wait", "reconcile", 125),
    ]
}

fn cases_of_audit(id: &str) -> Vec<Case> {
    vec![
        case(&format!("audit verify {id} --json"), "audit-verify", 0),
        case("audit verify nope --json", "audit-verify", 4),
        case("audit verify ./altered.jsonl --json", "audit-verify", 1),
        case("audit verify ./torn.jsonl --json", "audit-verify", 3),
        case("audit verify control --json", "audit-verify", 0),
        case(&format!("audit show {id} --json"), "audit-show", 0),
        case("audit show ./altered.jsonl --json", "audit-show", 1),
        case("audit show nope --json", "audit-show", 4),
        case("audit show control --json", "audit-show", 2),
        case(&format!("audit hash {id} --json"), "audit-hash", 0),
        case("audit approvals --json", "audit-approvals", 0),
        case("audit keys --json", "audit-keys", 0),
        case("audit import-key other.pub --json", "audit-keys", 0),
        case("audit rotate-key --reason gone --json", "audit-keys", 0),
        case("agents --json", "agents", 0),
        case("config show --json", "config-show", 0),
        case("config show --json --config timeout.toml", "config-show", 2),
    ]
}

/// Runs every case, and returns what it printed.
async fn finished(sluice: &Sluice, cases: Vec<Case>) -> Vec<(Case, FinishedCommand)> {
    sluice.file("timeout.toml", "timeout = 'soon'\n");
    let mut all = Vec::new();
    for case in cases {
        let ran = sluice.command(&case.words).finish().await;
        assert_eq!(ran.code, case.code, "{}:\n{}\n{}", case.words.join(" "), ran.stdout, ran.stderr);
        all.push((case, ran));
    }
    all
}

/// Checks that nothing is left but the logs that `budget confirm` has put aside.
async fn nothing_left(sluice: &Sluice) {
    for entry in fs::read_dir(sluice.state()).expect("it exists").flatten() {
        if entry.file_name().to_string_lossy().starts_with("budgets.log.") {
            fs::remove_file(entry.path()).expect("we are root");
        }
    }
    sluice.assert_nothing_left().await;
}

async fn chat() -> Upstream {
    let plan = Upstream::with(|request| match request.target.as_str() {
        "/v1/chat/completions" if request.json()["model"] == "free" => {
            Script::chat("hello").without_header("x-litellm-response-cost")
        }
        "/v1/chat/completions" => Script::chat("hello"),
        _ => Script::json(200, json!({"data": []})),
    });
    plan.start().await
}

#[tokio::test]
async fn every_object_has_its_schema_and_common_members() {
    let upstream = chat().await;
    let (sluice, id, receipt) = prepared(&upstream).await;
    let open = unique_run_id("open");
    let live = sluice.run(["--quiet", "--run-id", &open, "--", "sleep", "600"]).spawn();
    // An earlier run has started containers too, so their events do not show this one.
    let is_known = async || sluice.command(["inspect", &open, "--json"]).finish().await.code == 0;
    assert!(poll(PATIENCE, is_known).await, "the run does not begin");

    let mut all =
        finished(&sluice, vec![case("ps --json", "ps", 0), case(&format!("inspect {open} --json"), "inspect", 0)])
            .await;
    all.extend(finished(&sluice, vec![case(&format!("cancel {open} --wait --json"), "cancel", 0)]).await);
    live.finish().await.expect(130);
    all.extend(finished(&sluice, cases(&id, &receipt)).await);

    let objects: Vec<_> = all
        .iter()
        .map(|(case, ran)| json!({ "schema": case.schema, "case": case.words.join(" "), "object": ran.value() }))
        .collect();
    let faults = schemas::faults(&objects).await;
    assert!(faults.is_empty(), "{faults}");
    for (case, ran) in &all {
        let (object, words) = (ran.value(), case.words.join(" "));
        assert_eq!((&object["ok"], &object["exit_code"]), (&json!(case.code == 0), &json!(case.code)), "{words}");
        let is_explained = object["error_code"].is_string() && object["error_message"].is_string();
        assert_eq!(is_explained, case.code != 0, "{words}: {object}");
        assert_eq!(ran.stdout.lines().count(), 1, "{words}: an object in a pipe is one line");
    }
    let word = |wanted: &str| {
        let found = all.iter().find(|(case, _)| case.words.join(" ") == wanted);
        found.map(|(_, ran)| ran.value()["error_code"].clone()).unwrap_or_default()
    };
    assert_eq!(word("audit verify nope --json"), "unreadable");
    assert_eq!(word("audit verify ./altered.jsonl --json"), "tampered");
    assert_eq!(word("audit show ./altered.jsonl --json"), "tampered");
    assert_eq!(word("ledger import altered.jsonl nope.jsonl --json"), "failed");
    assert_eq!(word("audit verify ./torn.jsonl --json"), "incomplete");
    assert_eq!(word("config show --json --config timeout.toml"), "usage");
    nothing_left(&sluice).await;
}

/// The names of the commands below these words that have no commands of their own.
async fn leaves(sluice: &Sluice, above: &[String]) -> Vec<(String, String)> {
    let help = sluice.command(above).args(["--help"]).finish().await.expect(0).stdout;
    let (_, listed) = help.split_once("\nCommands:\n").unwrap_or_default();
    let lines = listed.lines().take_while(|line| line.starts_with("  ")).filter(|line| !line.starts_with("   "));
    let names: Vec<_> =
        lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    if names.is_empty() {
        return vec![(above.join(" "), help)];
    }
    let mut all = Vec::new();
    for name in names {
        let words = [above, &[name.to_owned()]].concat();
        all.extend(Box::pin(leaves(sluice, &words)).await);
    }
    all
}

#[tokio::test]
async fn every_command_has_json_and_a_case_here() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // These commands print text for a shell or an editor, the output of a program, or the lines of a file. `serve` goes
    // on, and answers over HTTP.
    let without = ["completions", "man", "schema", "logs", "attach", "audit tail", "serve"];
    let known: BTreeSet<_> = cases("x", "x").into_iter().map(|case| case.words.join(" ")).collect();

    for (words, help) in leaves(&sluice, &[]).await {
        if without.contains(&words.as_str()) {
            continue;
        }
        assert!(help.contains("--json"), "sluice {words} has no --json");
        assert!(known.iter().any(|case| case.starts_with(&words)), "sluice {words} has no case in {}", file!());
    }
}

#[tokio::test]
async fn commands_that_print_lines_print_no_error_object() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("lines");
    sluice.run(["--quiet", "--run-id", &run, "--", "true"]).finish().await.expect(0);

    for (words, code, told) in [
        ("logs nope --json", 2, "there is no run 'nope'"),
        ("logs -f nope --json", 2, "there is no run 'nope'"),
        ("logs RUN --json --since never", 2, "--since never"),
        ("logs RUN --json --since 1h", 2, "--since"),
        ("logs RUN --json --server unix:/nowhere.sock", 125, "cannot connect to"),
        ("events -f nope --json", 2, "there is no run 'nope'"),
        ("events -f RUN --json", 1, "which has no events"),
        ("events -f RUN --json --server unix:/nowhere.sock", 125, "cannot connect to"),
        ("audit tail nope --json", 4, "there is no such file"),
    ] {
        let words = words.replace("RUN", &run);
        let ran = sluice.command(words.split(' ')).finish().await.expect(code);
        assert_eq!(ran.stdout, "", "{words}");
        assert!(ran.stderr.contains(told), "{words}: {}", ran.stderr);
    }
    // These command lines are refused before their command begins.
    for words in ["logs --json", "logs RUN --json --tail many", "events -f --json --bogus", "audit tail --json"] {
        let ran = sluice.command(words.split(' ')).finish().await.expect(2);
        assert_eq!((&ran.value()["ok"], &ran.value()["error_code"]), (&json!(false), &json!("usage")), "{words}");
    }
    sluice.assert_nothing_left().await;
}

/// Removes the copies that commands make, so that they can make them again.
fn remove_copies(sluice: &Sluice) {
    let _ = fs::remove_file(sluice.dir().join("copy.db"));
    for name in ["copy", "restored", "imported"] {
        let _ = fs::remove_dir_all(sluice.dir().join(name));
    }
}

#[tokio::test]
async fn output_that_cannot_be_written_is_an_error() {
    let upstream = chat().await;
    let (sluice, id, _) = prepared(&upstream).await;
    let full = ["sh", "-c", r#""$@" > /dev/full"#, "sh"];
    let gone = ["bash", "-c", r#"exec 3> >(:); wait $!; "$@" >&3"#, "bash"];
    let as_text = |case: &Case| case.words.iter().filter(|word| *word != "--json").cloned().collect::<Vec<_>>();
    let mut all: Vec<Vec<String>> = Vec::new();
    // The list below has the runs, and a receipt can be voided only once.
    let is_apart = |word: &String| ["true", "rerun", "void"].contains(&word.as_str());
    for case in cases(&id, "x").into_iter().filter(|case| case.code == 0 && !case.words.iter().any(is_apart)) {
        all.extend([as_text(&case), case.words]);
    }
    let fixed = [
        "--help", "--version", "run --help", "receipts --csv", "usage --csv", "budget history --csv",
        "run --json -- true",
    ];
    let of_run =
        ["audit tail ID", "audit tail ID --json", "logs ID", "logs -f ID", "logs --controller ID", "rerun ID --json"];
    for words in fixed.iter().chain(&of_run) {
        all.push(words.replace("ID", &id).split(' ').map(str::to_owned).collect());
    }

    for words in &all {
        remove_copies(&sluice);
        sluice.command(["budget", "set", "acct-1", "1"]).finish().await.expect(0);
        let ran = sluice.command(words).wrapper(full).finish().await;
        assert_eq!(ran.code, 74, "{words:?}: {}", ran.stderr);
        let said = "sluice: cannot write to stdout: No space left on device";
        assert!(ran.stderr.contains(said), "{words:?}: {}", ran.stderr);

        remove_copies(&sluice);
        sluice.command(["budget", "set", "acct-1", "1"]).finish().await.expect(0);
        let ran = sluice.command(words).wrapper(gone).finish().await;
        assert_eq!(ran.code, 141, "{words:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("cannot write"), "{words:?}: {}", ran.stderr);
    }
    nothing_left(&sluice).await;
}

#[tokio::test]
async fn a_lost_answer_is_told_after_the_run() {
    let upstream = Upstream::with(|_| Script::chat("hello")).start().await;
    let sluice = Sluice::to(&upstream);
    let full = ["sh", "-c", r#""$@" > /dev/full"#, "sh"];

    let ran = sluice.run(["--model", "m", "say hello"]).wrapper(full).finish().await.expect(74);

    assert!(ran.stderr.contains("the run is over, and its answer could not be written"), "{}", ran.stderr);
    assert!(ran.stderr.contains("  ok\n"), "the receipt follows: {}", ran.stderr);
    let failed = sluice.run(["--json", "--", "sh", "-c", "exit 9"]).wrapper(full).finish().await.expect(9);
    assert!(failed.stderr.contains("cannot write to stdout"), "{}", failed.stderr);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_object_on_a_terminal_is_indented() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/python/in_terminal.py");

    let ran = sluice.command(["config", "show", "--json"]).wrapper(["python3", driver, "[]"]).finish().await;

    assert!(ran.stdout.starts_with("{\r\n  \"ok\": true,\r\n"), "{}", ran.stdout);
    let object: Value = serde_json::from_str(&ran.stdout).expect("one object");
    assert_eq!(object["timeout"]["value"], "120s");
}
