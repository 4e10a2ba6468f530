//! A virtual key for a run: made before its sidecar, deleted after it, also after a kill in between.

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_testkit::controller::FinishedCommand;
use sluice_testkit::engine::Hold;
use sluice_testkit::sidecar::CANARY;
use sluice_testkit::upstream::{Script, UpstreamPlan};
use sluice_testkit::{ReceivedRequest, Sluice, Upstream};

mod gateway;

const ASK: &str = r#"
curl --silent --show-error --fail "$OPENAI_BASE_URL/chat/completions" --output /dev/null \
    --json '{"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "hello"}]}'
"#;
const RUN: [&str; 6] = ["--account", "acct-1", "--model", "m", "--key-mode", "per-run"];

/// Prefix of every key of the scripted LiteLLM.
const VIRTUAL: &str = "sk-virtual-key-";

/// A LiteLLM that makes and deletes keys for the master key, and answers calls with a key that exists.
#[derive(Debug, Clone, Default)]
struct ScriptedKeys(Arc<Mutex<Shop>>);

#[derive(Debug, Default)]
struct Shop {
    /// The requests for keys.
    made: Vec<Value>,
    /// The keys that exist.
    live: Vec<LiveKey>,
}

#[derive(Debug)]
struct LiveKey {
    alias: String,
    key: String,
}

impl ScriptedKeys {
    fn lock(&self) -> MutexGuard<'_, Shop> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> UpstreamPlan {
        self.failing_at("", &Script::close())
    }

    /// Answers requests for `target` with `failure`.
    fn failing_at(&self, target: &'static str, failure: &Script) -> UpstreamPlan {
        let (shop, failure) = (self.clone(), failure.clone());
        Upstream::with(move |request| if request.target == target { failure.clone() } else { shop.answer(request) })
    }

    fn answer(&self, request: &ReceivedRequest) -> Script {
        let bearer =
            request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let is_master = bearer == CANARY;
        let mut shop = self.lock();
        match request.target.as_str() {
            "/key/generate" if is_master => {
                shop.made.push(request.json());
                let alias = request.json()["key_alias"].as_str().expect("a name").to_owned();
                let key = format!("{VIRTUAL}{}", shop.made.len());
                shop.live.push(LiveKey { alias, key: key.clone() });
                Script::json(200, json!({"key": key, "token": "hash"}))
            }
            "/key/delete" if is_master => {
                let aliases = request.json()["key_aliases"].clone();
                let before = shop.live.len();
                shop.live.retain(|live| live.alias != aliases[0]);
                if shop.live.len() < before {
                    Script::json(200, json!({"deleted_keys": aliases}))
                } else {
                    Script::json(404, json!({"error": {"message": "No keys found"}}))
                }
            }
            "/v1/models" if is_master => Script::json(200, json!({"data": []})),
            "/v1/chat/completions" if is_master || shop.live.iter().any(|live| live.key == bearer) => {
                Script::provider("hello")
            }
            _ => Script::json(401, json!({"error": {"message": format!("Received API Key = {bearer}")}})),
        }
    }
}

/// The keys that calls came with.
fn keys_of_calls(upstream: &Upstream) -> Vec<String> {
    let requests = upstream.requests();
    let calls = requests.iter().filter(|request| request.target == "/v1/chat/completions");
    calls.map(|call| call.header("authorization").expect("a key").trim_start_matches("Bearer ").to_owned()).collect()
}

/// The reasons for the end of the keys in the database, or null.
async fn ends(sluice: &Sluice) -> String {
    sluice.sql("SELECT why FROM virtual_keys LEFT JOIN virtual_key_ends USING (alias) ORDER BY asked_us").await
}

/// Fails if a file or an output holds a key of the scripted LiteLLM.
#[track_caller]
fn assert_unseen(sluice: &Sluice, ran: &FinishedCommand) {
    let mut places = vec![sluice.state()];
    let mut seen = vec![ran.stdout.contains(VIRTUAL), ran.stderr.contains(VIRTUAL)];
    while let Some(place) = places.pop() {
        if place.is_dir() {
            places.extend(fs::read_dir(&place).expect("it is ours").map(|entry| entry.expect("it is ours").path()));
        } else {
            let bytes = fs::read(&place).expect("it is ours");
            seen.push(bytes.windows(VIRTUAL.len()).any(|window| window == VIRTUAL.as_bytes()));
        }
    }
    // Both outputs, and at least the instance name, the signing key and the database, whose WAL may be gone.
    assert!(seen.len() >= 5 && !seen.contains(&true), "{seen:?}");
}

#[tokio::test]
async fn a_runs_own_key_is_deleted_at_its_end() {
    let shop = ScriptedKeys::default();
    let upstream = shop.plan().start().await;
    let sluice = Sluice::to(&upstream);
    let prices = sluice.file(
        "prices.json",
        r#"{"data":[{"model_name":"m","model_info":{"input_cost_per_token":1e-6,"output_cost_per_token":1e-6}}]}"#,
    );
    let words = ["--run-id", "r1", "--max-cost-usd", "0.25", "--prices", &prices, "--timeout", "60s", "--json"];

    let ran = sluice.run(RUN).args(words).args(["--", "sh", "-ec"]).arg(ASK).finish().await.expect(0);

    assert_eq!(keys_of_calls(&upstream), [format!("{VIRTUAL}1")]);
    let made = shop.lock().made.clone();
    let alias = made[0]["key_alias"].as_str().expect("a name").to_owned();
    assert!(alias.starts_with("sluice-") && alias.ends_with("-r1.0"), "{alias}");
    let metadata =
        json!({"made_by": "sluice", "run_id": "r1", "attempt": 0, "account": "acct-1", "graph_id": "sandbox:agent"});
    assert_eq!(
        made,
        [json!({"key_alias": alias, "duration": "240s", "models": ["m"], "max_budget": 25, "key_type": "llm_api",
                "metadata": metadata})]
    );
    assert!(shop.lock().live.is_empty());
    assert_eq!(ends(&sluice).await, r#"[["deleted"]]"#);
    let order: Vec<_> = upstream.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(order, ["/key/generate", "/v1/chat/completions", "/key/delete"]);
    assert_unseen(&sluice, &ran);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn by_default_no_key_is_asked_for() {
    let shop = ScriptedKeys::default();
    let upstream = shop.plan().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["--model", "m", "--", "sh", "-ec", ASK]).finish().await.expect(0);
    assert_eq!((keys_of_calls(&upstream), upstream.requests().len()), (vec![CANARY.to_owned()], 1));
}

/// All ways in which LiteLLM makes no key: its answer, a word of the message, and true if it certainly made none.
fn failures() -> Vec<(Script, &'static str, bool)> {
    let error = |text: &str| json!({"error": {"message": format!("{text} {CANARY} {VIRTUAL}x")}});
    vec![
        (Script::json(500, error("DB not connected. This endpoint needs a database")), "has no database", true),
        (Script::json(500, error("internal")), "status 500", false),
        (Script::json(401, error("Received API Key")), "refuses the key", true),
        (Script::json(403, error("Only proxy admins")), "refuses the key", true),
        (Script::json(404, error("Not Found")), "status 404", true),
        (Script::json(400, error("duration is over max limit set in config")), "shorten --timeout", true),
        (Script::json(403, error("You must be a LiteLLM Enterprise user")), "licence", true),
        (
            Script::json(
                422,
                json!({"error": {"type": "budget_exceeded",
                                 "message": format!("Budget has been exceeded! Key={VIRTUAL} Current cost: 2, Max budget: 1")}}),
            ),
            "$2 spent or reserved of $1",
            true,
        ),
        (Script::json(200, json!({"key": ""})), "holds no key", false),
        (Script::json(200, json!({"token": format!("{VIRTUAL}x")})), "holds no key", false),
        (Script::raw("HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{\"key\": \"sk-virtual-key-x"), "broke off", false),
        (Script::reset(), "broke off", false),
    ]
}

#[tokio::test]
async fn a_run_that_requires_its_key_needs_one() {
    for (failure, word, certain) in failures() {
        let upstream = ScriptedKeys::default().failing_at("/key/generate", &failure).start().await;
        let sluice = Sluice::to(&upstream);

        let ran = sluice.run(RUN).args(["--json", "--", "sh", "-ec", ASK]).finish().await.expect(125);

        let report = ran.json();
        assert_eq!(report.error_code.as_deref(), Some("creation_failed"), "{word}");
        assert!(report.message().contains(word) && report.message().contains("--key-mode master"), "{report:?}");
        assert_eq!(keys_of_calls(&upstream).len(), 0);
        assert_unseen(&sluice, &ran);
        // The next controller asks again for keys that may have been made.
        let expected = if certain { r#"[["refused"]]"# } else { "[[null]]" };
        assert_eq!(ends(&sluice).await, expected, "{word}");
        assert_eq!(sluice.leftovers().await.len(), usize::from(!certain), "{word}");
        assert!(certain || ran.stderr.contains("sluice sweep tries again"), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn a_run_falls_back_to_the_operators_key() {
    for (failure, word, _) in failures() {
        let upstream = ScriptedKeys::default().failing_at("/key/generate", &failure).start().await;
        let sluice = Sluice::to(&upstream);

        let words = ["--model", "m", "--key-mode", "auto", "--", "sh", "-ec", ASK];
        let ran = sluice.run(words).finish().await.expect(0);

        let said: Vec<_> = ran.stderr.lines().filter(|line| line.contains("none of its own")).collect();
        assert!(said.len() == 1 && said[0].contains(word), "{}", ran.stderr);
        assert_eq!(keys_of_calls(&upstream), [CANARY]);
        assert_unseen(&sluice, &ran);
    }
    let shop = ScriptedKeys::default();
    let upstream = shop.plan().start().await;
    let sluice = Sluice::to(&upstream);
    let ran = sluice.run(["--model", "m", "--key-mode", "auto", "--", "sh", "-ec", ASK]).finish().await.expect(0);
    assert!(!ran.stderr.contains("none of its own"), "{}", ran.stderr);
    assert_eq!(keys_of_calls(&upstream), [format!("{VIRTUAL}1")]);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_key_accepts_litellms_lower_budget() {
    let shop = ScriptedKeys::default();
    let told = "max_budget is over max limit set in config - user_value=25.0; max_value=5.0";
    let refusal = Script::json(400, json!({"detail": {"error": told}}));
    let keys = shop.clone();
    let upstream = Upstream::with(move |request| {
        let is_too_much = request.target == "/key/generate" && request.json().get("max_budget").is_some();
        if is_too_much { refusal.clone() } else { keys.answer(request) }
    });
    let upstream = upstream.start().await;
    let sluice = Sluice::to(&upstream);
    let prices = sluice.file(
        "prices.json",
        r#"{"data":[{"model_name":"m","model_info":{"input_cost_per_token":1e-6,"output_cost_per_token":1e-6}}]}"#,
    );
    let words = ["--max-cost-usd", "0.25", "--prices", &prices];

    sluice.run(RUN).args(words).args(["--", "sh", "-ec", ASK]).finish().await.expect(0);

    assert_eq!(shop.lock().made[0].get("max_budget"), None);
    assert_eq!(keys_of_calls(&upstream), [format!("{VIRTUAL}1")]);
    assert!(shop.lock().live.is_empty());
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn every_end_of_a_run_deletes_its_key() {
    let shop = ScriptedKeys::default();
    let upstream = shop.plan().start().await;
    let sluice = Sluice::to(&upstream);
    for (words, code) in [
        (&["--", "sh", "-c", "exit 3"][..], 3),
        (&["--timeout", "1s", "--", "sleep", "60"][..], 124),
        (&["--image", "no-such-image", "--", "true"][..], 125),
        (&["--proxy", "/bin/false", "--", "true"][..], 125),
    ] {
        sluice.run(RUN).args(words).finish().await.expect(code);
    }
    let live = sluice.run(RUN).args(["--", "sh", "-c", "echo up; sleep 60"]).spawn();
    live.prints("up\n").await;
    live.signal(Signal::SIGTERM);
    live.finish().await.expect(143);
    // The prices cannot be fetched, while a key is made.
    sluice.run(RUN).args(["--max-cost-usd", "1", "--", "true"]).finish().await.expect(125);

    // A missing image is noticed before a key is made.
    assert_eq!(shop.lock().made.len(), 5);
    assert!(shop.lock().live.is_empty());
    assert_eq!(ends(&sluice).await, json!(vec![["deleted"]; 5]).to_string().replace(',', ", "));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_next_controller_deletes_a_killed_ones_key() {
    let shop = ScriptedKeys::default();
    let upstream = shop.plan().start().await;
    let sluice = Sluice::to(&upstream);
    for by_sweep in [true, false] {
        for hold in [Hold::answer("/containers/create"), Hold::answer("/start"), Hold::answer("DELETE /")] {
            let live = sluice.run(RUN).args(["--", "true"]).env("SLUICE_DOCKER_HOST", hold.host()).spawn();
            hold.held().await;
            while upstream.received().await.target != "/key/generate" {}
            assert_eq!(shop.lock().live.len(), 1);
            live.kill().await.expect(-9);

            if by_sweep {
                let swept = sluice.command(["sweep"]).finish().await.expect(0);
                let alias =
                    shop.lock().made.last().expect("one was made")["key_alias"].as_str().expect("a name").to_owned();
                assert!(swept.stdout.contains(&format!("{:<10} {alias:<32} removed\n", "key")), "{}", swept.stdout);
            } else {
                // Two runs are needed: the first one deletes keys while it takes down runs.
                sluice.run(["-q", "--", "true"]).finish().await.expect(0);
                sluice.run(["-q", "--", "true"]).finish().await.expect(0);
            }

            assert!(shop.lock().live.is_empty());
        }
    }
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}

#[tokio::test]
async fn an_undeleted_key_is_reported_and_tried_again() {
    let shop = ScriptedKeys::default();
    let failing = shop.failing_at("/key/delete", &Script::json(500, json!({"error": CANARY}))).start().await;
    let sluice = Sluice::to(&failing);
    let ran = sluice.run(RUN).args(["--", "true"]).finish().await.expect(0);
    assert!(
        ran.stderr.contains("has not deleted the run's virtual key") && ran.stderr.contains("500"),
        "{}",
        ran.stderr
    );
    let left = sluice.leftovers().await;
    assert_eq!((left.len(), left[0].0.as_str()), (1, "key"));
    let swept = sluice.command(["sweep"]).finish().await.expect(1);
    assert!(swept.stdout.contains("NOT removed") && swept.stdout.contains("500"), "{}", swept.stdout);

    // Sluice does not look for the key at another LiteLLM.
    let other = ScriptedKeys::default().plan().start().await;
    let swept = sluice.command(["sweep", "--upstream", other.url()]).finish().await.expect(1);
    assert!(swept.stdout.contains(failing.url()), "{}", swept.stdout);
    assert_eq!(other.requests().len(), 0);
    assert_eq!(shop.lock().live.len(), 1);
}

#[tokio::test]
async fn a_former_litellms_key_does_not_block_other_deletions() {
    let failing = ScriptedKeys::default().failing_at("/key/delete", &Script::json(500, json!({}))).start().await;
    let sluice = Sluice::to(&failing);
    sluice.run(RUN).args(["--", "true"]).finish().await.expect(0);
    let shop = ScriptedKeys::default();
    let upstream = shop.plan().start().await;
    let hold = Hold::answer("/start");
    let there = ["--upstream", upstream.url(), "--", "true"];
    let live = sluice.run(RUN).args(there).env("SLUICE_DOCKER_HOST", hold.host()).spawn();
    hold.held().await;
    while shop.lock().live.is_empty() {
        upstream.received().await;
    }
    live.kill().await.expect(-9);

    for _ in 0..2 {
        sluice.run(["-q"]).args(there).finish().await.expect(0);
    }

    assert!(shop.lock().live.is_empty());
    assert_eq!(ends(&sluice).await, r#"[[null], ["deleted"]]"#);
    // The key has expired.
    sluice.sql("UPDATE virtual_keys SET expires_us = expires_us - 7200000000").await;
    sluice.command(["sweep", "--upstream", upstream.url()]).finish().await.expect(0);
    assert_eq!(ends(&sluice).await, r#"[["expired"], ["deleted"]]"#);
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}

#[tokio::test]
async fn a_keys_name_is_recorded_before_its_request() {
    let upstream = ScriptedKeys::default().failing_at("/key/generate", &Script::never()).start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(RUN).args(["--", "true"]).spawn();
    let asked = upstream.received().await;
    live.kill().await.expect(-9);

    assert_eq!(asked.target, "/key/generate");
    let alias = asked.json()["key_alias"].clone();
    assert_eq!(sluice.sql("SELECT alias FROM virtual_keys").await, json!([[alias]]).to_string());
    // The key does not exist yet but may still come: that is reported, and its record stays.
    let swept = sluice.command(["sweep"]).finish().await.expect(1);
    assert!(swept.stdout.contains("may still be making it"), "{}", swept.stdout);
    assert_eq!(ends(&sluice).await, "[[null]]");
    sluice.sql("UPDATE virtual_keys SET asked_us = asked_us - 61000000").await;
    sluice.command(["sweep"]).finish().await.expect(0);
    assert_eq!(ends(&sluice).await, r#"[["not_found"]]"#);
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}

#[tokio::test]
async fn preflight_tries_what_runs_will_ask_for() {
    let shop = ScriptedKeys::default();
    let refuses = Script::json(403, json!({"error": {"message": "Only proxy admins"}}));
    let good = shop.plan().start().await;
    let bad = shop.failing_at("/key/generate", &refuses).start().await;
    for (upstream, mode, code, status) in [
        (&good, "master", 0, None),
        (&good, "per-run", 0, Some("pass")),
        (&good, "auto", 0, Some("pass")),
        (&bad, "per-run", 1, Some("fail")),
        (&bad, "auto", 0, Some("warn")),
    ] {
        let sluice = Sluice::to(upstream);
        let ran = sluice.command(["preflight", "--json"]).env("SLUICE_KEY_MODE", mode).finish().await.expect(code);
        let said = ran.value();
        let check = said["checks"].as_array().expect("a list").iter().find(|check| check["name"] == "virtual key");
        assert_eq!(check.map(|check| check["status"].as_str().expect("a word")), status, "{mode}: {said}");
        let detail = check.map_or_else(String::new, |check| check["detail"].to_string());
        assert!(status != Some("fail") || detail.contains("--key-mode master"), "{detail}");
        assert!(shop.lock().live.is_empty(), "{mode}: a key stayed behind");
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(VIRTUAL) && !sluice.state().exists(), "{mode}");
        sluice.assert_nothing_left().await;
    }
}
