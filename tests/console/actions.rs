//! Actions of a person on runs in the pages; each test checks their effect through the API.

use serde_json::{Value, json};
use sluice_testkit::controller::Daemon;
use sluice_testkit::{PATIENCE, Sluice, TempDir, Upstream, poll};

use super::{Browser, agent, choose, configured, log_in};

/// Waits until the answer of the API at `path` satisfies `is_right`, and returns it.
async fn answers(daemon: &Daemon<'_>, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let mut answer = Value::Null;
    let right = poll(PATIENCE * 4, async || {
        answer = daemon.get(path).await.expect(200).json();
        is_right(&answer)
    });
    assert!(right.await, "{path}: {answer}");
    answer
}

/// Returns a script with the value of `test`, an expression over the text `panel` of the chosen tab.
fn panel(test: &str) -> String {
    format!("const panel = document.querySelector('[role=tabpanel]')?.innerText ?? ''; return {test}")
}

#[tokio::test]
async fn a_live_run_is_steered_from_its_page() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("steered", "echo 'a warning' >&2; sleep 600")).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.permits("notifications").await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    let run = format!("/api/v1/sandboxes/{id}");

    browser.press("Notify me").await;
    browser.shows("You are notified when it waits or ends.").await;
    browser.press("Pause").await;
    browser.becomes("return document.querySelector('.badge')?.textContent === 'Paused'").await;
    answers(&daemon, &run, |run| run["observed_state"] == "paused" && run["desired_state"] == "paused").await;
    browser.press("Resume").await;
    browser.becomes("return document.querySelector('.badge')?.textContent === 'Running'").await;
    answers(&daemon, &run, |run| run["observed_state"] != "paused" && run["desired_state"] == "running").await;
    browser.press("Interrupt").await;
    let interrupts = format!("{run}/events?event_type=run.interrupted");
    answers(&daemon, &interrupts, |page| page["events"].as_array().is_some_and(|events| events.len() == 1)).await;
    browser.fill("Message to the agent", "stop and think").await;
    browser.press("Interrupt with it").await;
    answers(&daemon, &interrupts, |page| page["events"].as_array().is_some_and(|events| events.len() == 2)).await;
    browser.becomes("return document.querySelector('.message-box textarea').value === ''").await;
    browser.fill("Message to the agent", "then go on").await;
    browser.press("Send").await;
    let sent = answers(&daemon, &format!("{run}/messages"), |page| page["messages"][1].is_object()).await;
    let of = |text: &str| {
        let messages = sent["messages"].as_array().into_iter().flatten();
        messages.clone().find(|message| message["content"] == text).map(|message| message["message_type"].clone())
    };
    assert_eq!(of("stop and think"), Some(json!("interrupt")), "{sent}");
    assert_eq!(of("then go on"), Some(json!("user_message")), "{sent}");
    browser.press("Cancel").await;
    browser.agree().await;
    browser.becomes("return document.querySelector('.badge')?.textContent === 'Cancelled'").await;
    assert_eq!(daemon.ended(&id).await["outcome"], "cancelled");
}

#[tokio::test]
async fn output_is_filtered_and_saved() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let saved = TempDir::new();
    let id = daemon.create(agent("speaks", "echo 'a warning' >&2; exit 3")).await;
    assert_eq!(daemon.ended(&id).await["state"], "FAILED");
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.saves_in(saved.path()).await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    let run = format!("/api/v1/sandboxes/{id}");

    browser.becomes(&panel("panel.includes('2 passed') && panel.includes('a warning')")).await;
    browser.press("stdout").await;
    browser.becomes(&panel("panel.includes('2 passed') && !panel.includes('a warning')")).await;
    browser.press("stderr").await;
    browser.becomes(&panel("!panel.includes('2 passed') && panel.includes('a warning')")).await;
    browser.press("Both").await;
    browser.becomes(&panel("panel.includes('2 passed') && panel.includes('a warning')")).await;
    browser.press("Download").await;
    let whole = daemon.connect().await.request("GET", &format!("{run}/logs"), &[("accept", "text/plain")], ()).await;
    let file = saved.path().join(format!("{id}.txt"));
    let is_saved = poll(PATIENCE, async || std::fs::read_to_string(&file).is_ok_and(|text| text == whole.text()));
    assert!(is_saved.await && whole.text().contains("a warning"), "{:?}", std::fs::read_to_string(&file));

    browser.press("Retry").await;
    browser.shows("attempt 2").await;
    answers(&daemon, &run, |run| run["attempt"] == 1 && run["state"] == "FAILED").await;
    browser.becomes("return document.querySelector('.badge')?.textContent === 'Failed'").await;
    browser.press("Log out").await;
    browser.shows("Run sluice open on the host").await;
    browser.expects_fault("401");
    let status = "return fetch('/api/v1/session', {headers: {'X-Sluice': '1'}}).then(answer => answer.status)";
    assert_eq!(browser.script(status).await, 401, "the session is over, not only its page");
}

/// Adds 105 ended runs, which are copies of the run `id`, and 210 agents.
async fn fill_lists(sluice: &Sluice, id: &str) {
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 210)";
    let runs = format!(
        "INSERT INTO sandboxes (run_id, owner, agent_id, agent_ephemeral, name, account, state, desired_state, outcome, \
         max_retries, retry_on, request, priority, labels, hold_nano, created_us, ended_us, run_time_us) {numbers} \
         SELECT 'r_copy' || i, owner, 'r_copy' || i, 1, 'copy-' || i, account, 'COMPLETED', 'stopped', 'success', max_retries, \
         retry_on, request, priority, labels, hold_nano, 1700000000000000 + i, 1700000000000000 + i, run_time_us \
         FROM sandboxes, n WHERE run_id = '{id}' AND i <= 105"
    );
    sluice.sql(&runs).await;
    let agents = format!(
        "INSERT INTO agents (owner, agent_id, billing_account_id, allow_sandbox, grants, state, metadata, ephemeral, created_us, \
         updated_us) {numbers} SELECT 'root', printf('agent-%03d', i), 'default', 0, '[]', 'IDLE', '{{}}', 0, 0, 0 FROM n"
    );
    sluice.sql(&agents).await;
}

#[tokio::test]
async fn lists_are_searched_filtered_and_read_on() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let needle = daemon.create(agent("needle", "")).await;
    daemon.reaches(&needle, "COMPLETED").await;
    fill_lists(&sluice, &needle).await;
    let failed = daemon.create(agent("broken", "exit 3")).await;
    assert_eq!(daemon.ended(&failed).await["state"], "FAILED");
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    let rows = |count: u32| format!("return document.querySelectorAll('table tbody tr').length === {count}");
    let first = |name: &str| {
        format!(
            "const rows = [...document.querySelectorAll('table tbody tr')]; \
             return rows.length === 1 && rows[0].innerText.includes('{name}')"
        )
    };

    browser.becomes(&rows(100)).await;
    browser.press("Show older sandboxes").await;
    browser.becomes(&rows(107)).await;
    browser.fill("Search by name", "needle").await;
    browser.becomes(&first("needle")).await;
    browser.becomes("return location.search === '?q=needle'").await;
    browser.press("Failed 0").await;
    browser.press("Show all").await;
    browser.becomes(&rows(100)).await;
    browser.press("Failed 1").await;
    browser.becomes(&first("broken")).await;
    let counts = daemon.get("/api/v1/sandboxes?limit=1").await.expect(200).json();
    assert_eq!((&counts["counts"]["COMPLETED"], &counts["counts"]["FAILED"]), (&json!(106), &json!(1)), "{counts}");
    browser.press("Completed 106").await;
    browser.becomes(&rows(100)).await;
    browser.press("All 107").await;
    browser.becomes("return document.querySelector('table tbody')?.innerText.includes('broken')").await;

    browser.open(&format!("http://{}/agents", daemon.address())).await;
    browser.becomes(&rows(200)).await;
    browser.press("Show more agents").await;
    browser.becomes(&rows(210)).await;
}

#[tokio::test]
async fn a_person_denies_and_answers_in_words() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &configured(&sluice, "")]).await;
    let mut capped = agent("capped", "sleep 600");
    capped["on_cap"] = json!("ask");
    capped["limits"] = json!({"max_calls": 2});
    let capped = daemon.create(capped).await;
    let ask = r#"curl -sf --json '{"question":"Which branch?"}' "http://localhost:8080/api/v1/sandboxes/$run/questions"; sleep 600"#;
    let asking = daemon.create(agent("asking", ask)).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/approvals", daemon.address())).await;
    browser.shows("Which branch?").await;
    browser.shows("The cap of calls is").await;

    browser.press("Deny").await;
    let denied = format!("/api/v1/sandboxes/{capped}/approvals");
    let denied = answers(&daemon, &denied, |page| page["approvals"][0]["decision"].is_string()).await;
    assert_eq!(denied["approvals"][0]["decision"], "deny", "{denied}");
    browser.becomes("return document.querySelectorAll('.ask').length === 1").await;
    browser.fill("Your answer", "feature/x, not main").await;
    browser.press("Answer").await;
    let answered = format!("/api/v1/sandboxes/{asking}/questions");
    let answered = answers(&daemon, &answered, |page| page["questions"][0]["answer"].is_string()).await;
    assert_eq!(answered["questions"][0]["answer"], "feature/x, not main", "{answered}");
    browser.shows("Nothing waits for you").await;
}

#[tokio::test]
async fn a_person_stops_an_answer_of_a_chat() {
    let upstream = Upstream::chat_stream(["one ", "two"]).hold_after(1).start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &configured(&sluice, "")]).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/chat", daemon.address())).await;
    browser.fill("Message", "count").await;
    browser.press("Send").await;
    browser.becomes("return document.querySelector('.turns .from-agent')?.textContent.includes('one')").await;

    browser.press("Stop").await;
    browser.shows("You have stopped it.").await;
    browser.becomes("return document.querySelector('.turns a')?.pathname.startsWith('/sandboxes/r_')").await;
    upstream.release();
}

/// Waits until the panel of a tab shows a text.
async fn panel_shows(browser: &Browser, text: &str) {
    browser.becomes(&panel(&format!("panel.includes('{text}')"))).await;
}

#[tokio::test]
async fn files_and_commands_are_read_in_tabs() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon
        .create(agent("files", "mkdir notes; echo 'inside the plan' > notes/plan.txt; echo written; sleep 600"))
        .await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.permits("clipboard-read").await;
    browser.permits("clipboard-write").await;
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.becomes(&panel("panel.includes('written')")).await;

    choose(&browser, "Files").await;
    browser.press("Refresh").await;
    panel_shows(&browser, "parser.py").await;
    browser.press("Refresh").await;
    browser.press("notes/").await;
    browser.press("plan.txt").await;
    panel_shows(&browser, "inside the plan").await;
    browser.press("Up").await;
    panel_shows(&browser, "notes/").await;
    let later = format!("/api/v1/sandboxes/{id}/files/workspace/later.txt");
    daemon.request("PUT", &later, &json!({})).await.expect(200);
    browser.press("Refresh").await;
    panel_shows(&browser, "later.txt").await;

    choose(&browser, "Details").await;
    browser.press("In a terminal").await;
    let commands = daemon.get(&format!("/api/v1/sandboxes/{id}/commands")).await.expect(200).json();
    let first = &commands["commands"][0];
    let label = format!("Copy: {}, as a command of sluice", first["name"].as_str().expect("a name"));
    browser.press(&label).await;
    browser.becomes(&format!("return navigator.clipboard.readText().then((text) => text === {})", first["cli"])).await;
}
