//! The pages: who may see them, what they show, and how they go on after a daemon was killed.

use serde_json::{Value, json};
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, HOSTILE, agent, expects_dead_daemon, log_in, log_in_again};

/// Positions of the rows of the transcript, in their order.
const ROWS: &str = "return [...document.querySelectorAll('.transcript article')].map(row => Number(row.id.slice(4)))";

#[tokio::test]
async fn a_browser_without_a_login_sees_nothing() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(json!({"argv": ["sleep", "600"], "model": "m", "name": "secret-name"})).await;
    let browser = Browser::start().await;
    browser.expects_fault("status of 401");

    for path in [
        "/",
        "/sandboxes",
        "/sandboxes/new",
        "/approvals",
        "/agents",
        "/spending",
        "/host",
        "/chat",
        &format!("/sandboxes/{id}"),
    ] {
        browser.open(&format!("http://{}{path}", daemon.address())).await;
        let text = browser.text().await;
        assert!(text.contains("You are not logged in") && !text.contains("secret-name"), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_run_is_followed_to_its_end() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.shows("No sandboxes yet").await;

    let waits =
        "while [ ! -e go ]; do sleep 0.2; done; event agent.assistant_message '{\"text\":\"All tests pass now.\"}'";
    let id = daemon.create(agent("followed", waits)).await;
    browser.shows("followed").await;
    browser.becomes("return document.querySelector('.badge')?.textContent === 'Running'").await;
    browser.click("td.main-cell a").await;
    browser.shows("I look at the parser first").await;
    browser.becomes("return document.querySelector('.live')?.textContent === 'Live'").await;
    browser.write(".message-box textarea", "and the documentation\u{e007}").await;
    browser.becomes("return document.querySelector('.message')?.textContent.includes('and the documentation')").await;
    daemon.request("PUT", &format!("/api/v1/sandboxes/{id}/files/workspace/go"), &json!({})).await.expect(200);
    browser.shows("All tests pass now.").await;
    browser.becomes("return document.querySelector('.live')?.textContent === 'Ended'").await;
    browser.becomes("return document.querySelector('.badge')?.textContent === 'Completed'").await;

    browser.open(&format!("http://{}/approvals", daemon.address())).await;
    browser.shows("Nothing waits for you").await;
}

#[tokio::test]
async fn hostile_text_stays_text() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(agent("hostile", HOSTILE)).await;
    daemon.reaches(&id, "COMPLETED").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    browser.shows("<script>document.title=\"owned\"</script><img src=x").await;
    browser.shows("<b onmouseover=alert(1)>Bash</b>").await;
    browser.becomes("return document.querySelector('.output')?.innerText.includes('<script>document.title')").await;

    let made = "return document.querySelectorAll('#app script, #app img, #app b, #app a[href^=javascript]').length";
    assert_eq!(browser.script(made).await, json!(0));
    let codes = "return [...document.querySelectorAll('.codepoint')].map(code => code.textContent)";
    assert_eq!(
        browser.script(codes).await,
        json!(["U+202E", "U+202C", "U+001B", "U+0007"]),
        "directions, and what a terminal would hide, are shown, and nothing else is left"
    );
    browser
        .becomes(
            "return document.querySelector('.diff')?.closest('#app').textContent.includes('[911 characters more]')",
        )
        .await;
    let title = browser.script("return document.title").await;
    assert_eq!(title, "Completed: hostile - Sluice");
    assert_eq!(browser.script("return document.querySelector('.tool .ansi-red')?.textContent").await, "red");
}

#[tokio::test]
async fn a_question_is_answered_in_its_frame() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let ask = r#"curl -sf --json '{"question":"Approve: <b>delete</b>?","options":["Approve","No"]}' "http://localhost:8080/api/v1/sandboxes/$run/questions"; sleep 600"#;
    let id = daemon.create(agent("asking", ask)).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/approvals", daemon.address())).await;
    browser.shows("Approve: <b>delete</b>?").await;

    let enabled = "return [...document.querySelectorAll('.question button')].every(button => !button.disabled)";
    browser.becomes(enabled).await;
    let words =
        browser.script("return [...document.querySelectorAll('.ask button')].map(button => button.textContent.trim())");
    assert_eq!(words.await, json!(["Answer: Approve", "Answer: No"]), "no button of a question approves");
    browser.click(".question button").await;
    browser.shows("Nothing waits for you").await;

    let questions = daemon.get(&format!("/api/v1/sandboxes/{id}/questions")).await.expect(200).json();
    assert_eq!(questions["questions"][0]["answer"], "Approve", "{questions}");
}

#[tokio::test]
async fn a_page_goes_on_after_a_killed_daemon() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let ticks = "i=0; while [ ! -e go ]; do i=$((i + 1)); event agent.progress \"{\\\"tick\\\":$i}\"; sleep 1; done";
    let id = daemon.create(agent("survivor", ticks)).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    let address = daemon.address();
    browser.open(&format!("http://{address}/sandboxes/{id}")).await;
    browser.shows("agent.progress").await;
    // The page without its script shows these rows too, so wait for the script.
    browser.becomes("return document.querySelector('.live')?.textContent === 'Live'").await;

    expects_dead_daemon(&browser);
    daemon.kill().await;
    browser.becomes("return document.querySelector('.live')?.textContent === 'Reconnecting'").await;
    let daemon = sluice.serve_with(["--listen", &address]).await;
    browser.shows("Your session has ended").await;
    log_in_again(&browser, &daemon).await;
    browser.becomes("return document.querySelector('.live')?.textContent === 'Live'").await;
    daemon.request("PUT", &format!("/api/v1/sandboxes/{id}/files/workspace/go"), &json!({})).await.expect(200);
    browser.becomes("return document.querySelector('.live')?.textContent === 'Ended'").await;

    let events = daemon.events(&id).await;
    let is_row =
        |event: &&Value| !matches!(event["event_type"].as_str(), Some("llm.call_started" | "agent.tool_result"));
    let expected: Vec<_> = events.iter().filter(is_row).map(|event| event["seq"].clone()).collect();
    // The badge may change before the last rows are there.
    let all = format!("return document.querySelectorAll('.transcript article').length >= {}", expected.len());
    browser.becomes(&all).await;
    assert_eq!(browser.script(ROWS).await, Value::Array(expected), "no event is missing, and none is there twice");
}
