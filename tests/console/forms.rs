//! Actions of a person on a page: a new sandbox, an approval, a chat, the suspension of an agent.

use serde_json::{Value, json};
use sluice_testkit::{PATIENCE, Sluice, Upstream, poll};

use super::{Browser, agent, asking_agent, configured, expects_dead_daemon, log_in, log_in_again};

#[tokio::test]
async fn a_sandbox_is_created_by_its_form() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/new", daemon.address())).await;

    browser.write("#task", "say 'hello' to $HOME").await;
    browser.write("#model", "m").await;
    browser.write("#name", "by-form").await;
    browser.shows(r"sluice run -d --name by-form --agent sandbox:agent --model m --on-cap refuse 'say '\''hello'\'' to $HOME'").await;
    browser.shows("--oauth2-bearer \"$SLUICE_TOKEN\"").await;
    browser.expects_fault("422");
    browser.write("#memory", "900g").await;
    browser.click("#new-run button.primary").await;
    browser.shows("limits.memory").await;
    browser.script("const field = document.getElementById('memory'); field.value = ''; field.dispatchEvent(new Event('input', {bubbles: true}))").await;
    browser.click("#new-run button.primary").await;
    browser.shows("First answer").await;
    browser.becomes("return document.querySelector('.badge')?.textContent === 'Completed'").await;

    browser.click("a.button.primary").await;
    browser.shows("by-form").await;
    let calls = upstream.requests().len();
    assert_eq!(calls, 1, "one click creates one run");
}

/// Notes whether each button of an approval is disabled when it appears.
const NOTE_BUTTONS: &str = "window.inert = []; \
    new MutationObserver(() => { \
        const button = document.querySelector('.approval button.primary'); \
        if (!button || button.isNoted) return; \
        button.isNoted = true; \
        window.inert.push(button.disabled); \
    }).observe(document, { childList: true, subtree: true });";

#[tokio::test]
async fn a_session_approves_up_to_its_amount() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let config = configured(&sluice, "session_approval_max = 1\n");
    let daemon = sluice.serve_with(["--config", &config]).await;
    let cheap = daemon.create(asking_agent()).await;
    let mut asking = asking_agent();
    asking["name"] = json!("many");
    asking["max_cost_usd"] = Value::Null;
    asking["limits"] = json!({"max_calls": 2});
    let many = daemon.create(asking).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    browser.open(&format!("http://{}/sandboxes/{many}", daemon.address())).await;
    browser.shows("A browser session can raise a cap of cost to at most $1.00").await;
    let approves =
        "return [...document.querySelectorAll('.approval button')].some(one => one.textContent.includes('Approve'))";
    assert_eq!(browser.script(approves).await, false, "calls are not raised here");

    browser.before_each_page(NOTE_BUTTONS).await;
    browser.open(&format!("http://{}/sandboxes/{cheap}", daemon.address())).await;
    browser.shows("Approve:").await;
    assert_eq!(browser.script("return window.inert").await, json!([true]), "a click cannot hit what has just appeared");
    browser.becomes("return document.querySelector('.approval button.primary')?.disabled === false").await;
    browser.click(".approval button.primary").await;
    let mut approvals = Value::Null;
    let is_decided = poll(PATIENCE, async || {
        approvals = daemon.get(&format!("/api/v1/sandboxes/{cheap}/approvals")).await.expect(200).json();
        approvals["approvals"][0]["decision"] == "approve"
    });
    assert!(is_decided.await, "{approvals}");
}

#[tokio::test]
async fn a_session_approves_within_the_cap_of_all_attempts() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let config = configured(&sluice, "session_approval_max = 1\n");
    let daemon = sluice.serve_with(["--config", &config]).await;
    let id = daemon.create(asking_agent()).await;
    daemon.reaches(&id, "RUNNING").await;
    // This is the state after attempts that have spent two dollars.
    sluice.sql(&format!("UPDATE sandboxes SET cap_nano = cap_nano + 2000000000 WHERE run_id = '{id}'")).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.shows("this run with all its attempts would have $2.00").await;
    let approves = "return document.querySelectorAll('.approval button.primary').length";
    assert_eq!(browser.script(approves).await, 0, "the daemon would refuse it");
}

#[tokio::test]
async fn a_chat_shows_its_answer_and_run() {
    let upstream = Upstream::provider("hello from the model").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &configured(&sluice, "")]).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/chat", daemon.address())).await;

    browser.write("#chat-message", "say hello\u{e007}").await;
    browser
        .becomes("return document.querySelector('.turns .from-agent')?.textContent.includes('hello from the model')")
        .await;
    browser.becomes("return document.querySelector('.turns a')?.pathname.startsWith('/sandboxes/r_')").await;
    browser.becomes("return document.querySelector('.message-box button:not(.primary)') === null").await;
    browser.write("#chat-message", "and again\u{e007}").await;
    browser.becomes("return document.querySelectorAll('.turns a').length === 2").await;
}

#[tokio::test]
async fn a_chat_goes_on_after_a_killed_daemon() {
    let upstream = Upstream::chat_stream(["one ", "two"]).hold_after(1).start().await;
    let sluice = Sluice::to(&upstream);
    let settings = configured(&sluice, "");
    let daemon = sluice.serve_with(["--config", &settings]).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    let address = daemon.address();
    browser.open(&format!("http://{address}/chat")).await;
    browser.write("#chat-message", "count\u{e007}").await;
    browser.becomes("return document.querySelector('.turns .from-agent')?.textContent.includes('one')").await;

    // The page gives up after five failed requests: they wait until the new daemon listens.
    let hold = "const { fetch } = window; const back = new Promise(done => { window.back = done; }); \
                window.fetch = async (...request) => { await back; return fetch(...request); }";
    browser.script(hold).await;
    expects_dead_daemon(&browser);
    daemon.kill().await;
    let daemon = sluice.serve_with(["--config", &settings, "--listen", &address]).await;
    browser.script("window.back()").await;
    browser.shows("Your session has ended").await;
    log_in_again(&browser, &daemon).await;
    upstream.release();

    let whole = "return document.querySelector('.turns .text')?.textContent.endsWith('one two')";
    browser.becomes(whole).await;
    browser.becomes("return document.querySelector('.message-box button:not(.primary)') === null").await;
    assert_eq!(browser.script("return document.querySelectorAll('.turns .fault-text').length").await, 0);
}

#[tokio::test]
async fn an_owner_suspends_an_agent() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let bot = json!({"agent_id": "bot", "allow_sandbox": true});
    daemon.request("POST", "/api/v1/agents", &bot).await.expect(201);
    let mut run = agent("of-bot", "sleep 600");
    run["agent_id"] = json!("bot");
    let id = daemon.create(run).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/agents", daemon.address())).await;

    browser.shows("of-bot").await;
    browser.click("summary").await;
    browser.becomes("return document.querySelector('.plain-events a')?.pathname.startsWith('/sandboxes/r_')").await;
    browser.click("button.danger").await;
    browser.agree().await;
    browser.shows("Suspended").await;
    let bot = daemon.get("/api/v1/agents/bot").await.expect(200).json();
    assert_eq!(bot["state"], "SUSPENDED", "{bot}");
    browser.press("Resume bot").await;
    browser.shows("Connected").await;
    assert_eq!(daemon.run(&id).await["agent_id"], "bot");
}

#[tokio::test]
async fn a_resumed_agent_is_idle_and_runs_at_once() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    daemon.request("POST", "/api/v1/agents", &json!({"agent_id": "bot", "allow_sandbox": true})).await.expect(201);
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/agents", daemon.address())).await;
    browser.click("button.danger").await;
    browser.agree().await;
    browser.shows("Suspended").await;

    browser.press("Resume bot").await;

    browser.shows("Idle").await;
    let mut run = agent("of-bot", "");
    run["agent_id"] = json!("bot");
    let id = daemon.create(run).await;
    assert_eq!(daemon.run(&id).await["agent_id"], "bot");
    daemon.reaches(&id, "COMPLETED").await;
}
