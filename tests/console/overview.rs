//! The pages about all runs: spending, and the host.

use serde_json::json;
use sluice_testkit::upstream::ClosedPort;
use sluice_testkit::{Sluice, Upstream};

use super::{Browser, agent, configured, log_in, log_in_as_admin};

#[tokio::test]
async fn spending_shows_budgets_and_sums() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &configured(&sluice, "")]).await;
    daemon.request("PUT", "/api/v1/budgets/default", &json!({"kind": "set", "usd": "20"})).await.expect(200);
    let id = daemon.create(agent("paid", "")).await;
    daemon.reaches(&id, "COMPLETED").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/spending", daemon.address())).await;

    browser.shows("$20.00").await;
    browser.shows("Each run has its final bill.").await;
    let choose = |words: &str| {
        format!("[...document.querySelectorAll('.filters button')].find(one => one.textContent === '{words}').click()")
    };
    browser.script(&choose("Run")).await;
    browser.becomes(&format!("return document.querySelector('a[href=\"/sandboxes/{id}\"]') !== null")).await;
    browser.script(&choose("Model")).await;
    browser.becomes("return document.querySelector('tfoot')?.textContent.startsWith('All2')").await;
}

#[tokio::test]
async fn the_list_selects_runs_that_await_approvals() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let waits = r#"curl -sf --retry 10 --retry-max-time 600 --json '{"model":"m","messages":[]}' "$OPENAI_BASE_URL/chat/completions"; true"#;
    let mut asking = agent("asking", waits);
    asking["on_cap"] = json!("ask");
    asking["limits"] = json!({"max_calls": 2});
    let id = daemon.create(asking).await;
    let other = daemon.create(agent("other", "")).await;
    daemon.reaches(&other, "COMPLETED").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    let waiting = "const one = [...document.querySelectorAll('.filters button')].find(one => one.textContent.includes('Awaiting approval'));";
    browser.becomes(&format!("{waiting} return one?.querySelector('.count').textContent === '1'")).await;

    browser.script(&format!("{waiting} one.click()")).await;
    let names = "return [...document.querySelectorAll('table.runs .main-cell a')].map(one => one.textContent).join() === 'asking'";
    browser.becomes(names).await;
    browser.becomes("return document.querySelector('.badge')?.textContent === 'Awaiting approval'").await;
    browser.becomes("return location.search === '?waiting_for=approval'").await;
    // The address shows the same selection again, with and without the script.
    browser.open(&format!("http://{}/sandboxes?waiting_for=approval", daemon.address())).await;
    browser.becomes(&format!("{waiting} return one?.getAttribute('aria-pressed') === 'true'")).await;
    browser.becomes(names).await;
    let approvals = daemon.get(&format!("/api/v1/sandboxes/{id}/approvals")).await.expect(200).json();
    let approval = &approvals["approvals"][0];
    let path =
        format!("/api/v1/sandboxes/{id}/approvals/{}/decision", approval["approval_id"].as_str().expect("an id"));
    let denial = json!({"decision": "deny", "digest": approval["digest"]});
    daemon.request("POST", &path, &denial).await.expect(200);
    browser.shows("No sandbox matches").await;
    browser.becomes(&format!("{waiting} return one.querySelector('.count').textContent === '0'")).await;
}

#[tokio::test]
async fn the_list_shows_why_a_run_waits() {
    let nowhere = ClosedPort::new();
    let sluice = Sluice::with(&nowhere.url(), "sk-some-key");
    let daemon = sluice.serve().await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    let id = daemon.create(agent("again", "")).await;
    // By default, the run fails for good after a minute.
    sluice.sql("UPDATE sandboxes SET max_retries = 100").await;
    daemon.process().says("creation_failed: ").await;
    let mut after = agent("after", "");
    after["depends_on"] = json!([id]);
    daemon.create(after).await;

    browser.shows("waits for retry: creation_failed").await;
    browser.shows("waits for dependencies").await;
}

#[tokio::test]
async fn the_host_is_shown_to_admins_alone() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let (owner, admin) = (Browser::start().await, Browser::start().await);
    log_in(&owner, &daemon).await;
    log_in_as_admin(&admin, &daemon).await;
    let page = format!("http://{}/host", daemon.address());

    owner.expects_fault("status of 403");
    owner.open(&page).await;
    owner.shows("Its figures are for admins").await;
    assert!(!owner.text().await.contains("Sidecars"));
    admin.open(&page).await;
    admin.shows("Disk of the state").await;
    admin
        .becomes(
            "return [...document.querySelectorAll('.badge')].filter(one => one.textContent === 'Answers').length === 2",
        )
        .await;
    for text in ["Version of the engine", "Upstream", "Before the daemon started:", "Passed", "sidecar program"] {
        admin.shows(text).await;
    }
    let text = admin.text().await;
    for secret in [sluice.key(), &*sluice.state().display().to_string(), &*daemon.sockets().display().to_string()] {
        assert!(!text.contains(secret), "{secret} is in the page");
    }
}
