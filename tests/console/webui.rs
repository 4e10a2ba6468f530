//! Open WebUI, unmodified, with the agents of a daemon as its models: `make test-webui`.

use serde_json::json;
use sluice_testkit::webui::WebUi;
use sluice_testkit::{Sluice, Upstream};

use super::Browser;

/// Settings with an agent that appends its message to a file of its workspace and prints the file, with an image and
/// HTML that point to another server.
fn settings(elsewhere: &str) -> String {
    let script = "printf '%s\\\\n' \\\"$1\\\" | tail -n 1 >> notes; tr '\\\\n' ' ' < notes; \
                  echo '![i](ELSEWHERE/i) <img src=ELSEWHERE/h> said'";
    let script = script.replace("ELSEWHERE", elsewhere);
    format!(
        "model = \"small\"\n[[agents]]\nagentId = \"sandbox:notes\"\nimage = \"sluice-runtime:latest\"\n\
         argv = [\"sh\", \"-c\", \"{script}\", \"sh\", \"{{message}}\"]\noutput = \"plain\"\n"
    )
}

/// Writes a message into the chat, and sends it.
async fn say(browser: &Browser, text: &str) {
    browser.write("#chat-input", &format!("{text}\u{e007}")).await;
}

#[tokio::test]
#[ignore = "two gigabytes of another program: make test-webui"]
async fn webui_chats_with_agents_in_sandboxes() {
    let (upstream, elsewhere) = (Upstream::never().start().await, Upstream::never().start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &settings(elsewhere.url()));
    let daemon = sluice.serve().await;
    let words = "token create --owner alice --role chat --account acct-1 --json";
    let made = sluice.command(words.split(' ')).finish().await.expect(0).value();
    let key = made["value"].as_str().expect("it is shown once");
    let webui = WebUi::start(&format!("http://{}/v1", daemon.address()), key).await;
    let browser = Browser::start().await;
    // The pages belong to another program, so any fault is allowed.
    browser.expects_fault("");

    browser.open(&format!("{}/?models=sandbox:notes", webui.url())).await;
    // A dialog with the news of Open WebUI covers the page at first.
    let close = "const go = [...document.querySelectorAll('button')].find(it => it.innerText.startsWith('Okay')); \
                 go?.click(); return go != null";
    browser.becomes(close).await;
    browser.becomes("return document.querySelector('[role=dialog], .modal') == null").await;
    browser.click("#model-selector-model-button").await;
    for model in ["sandbox:agent", "sandbox:claude", "sandbox:notes@small"] {
        browser.shows(model).await;
    }
    browser.open(&format!("{}/?models=sandbox:notes", webui.url())).await;
    browser
        .becomes("return document.querySelector('#model-selector-model-button')?.innerText == 'sandbox:notes'")
        .await;

    say(&browser, "one").await;
    browser.shows("one !").await;
    browser.shows("said").await;
    say(&browser, "two").await;
    browser.shows("one two !").await;

    let runs = daemon.get("/api/v1/sandboxes").await.expect(200).json();
    let runs = runs["sandboxes"].as_array().expect("a list");
    assert_eq!(runs.len(), 2, "a turn is one run: {runs:?}");
    for run in runs {
        let id = run["sandbox_id"].as_str().expect("an id");
        let ended = daemon.ended(id).await;
        assert_eq!(ended["outcome"], "success", "{ended}");
        let names = &ended["metadata"];
        assert!(names["user_id"].is_string() && names["session_id"].is_string(), "{names}");
    }
    let images = "return [...document.querySelectorAll('img')].map(it => it.src).filter(it => /\\/[ih]$/.test(it))";
    assert_eq!(browser.script(images).await, json!([]));
    assert_eq!(elsewhere.connections(), 0, "what an agent says fetches nothing");
    drop(browser);
    daemon.stop().await;
}
