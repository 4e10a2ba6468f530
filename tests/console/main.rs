//! The console in a real browser, against a real daemon with real sandboxes.

mod accessible;
mod actions;
mod faults;
mod figures;
mod foreign;
mod forms;
mod git;
mod late;
mod load;
mod overview;
mod pages;
mod parts;
mod pictures;
mod reading;
mod refused;
mod security;
mod story;
mod tabs;
mod watching;
mod webui;

use serde_json::{Value, json};
use sluice_testkit::Sluice;
use sluice_testkit::browser::Browser;
use sluice_testkit::controller::Daemon;

/// Shell code of an agent: its events, its calls and a file that it writes.
const AGENT: &str = r#"
run=$(curl -sf http://localhost:8080/health | sed -n 's/.*"runId":"\([^"]*\)".*/\1/p')
event() { curl -sf --json "{\"event_type\":\"$1\",\"event_data\":$2}" "http://localhost:8080/api/v1/sandboxes/$run/events" > /dev/null; }
call() { curl -sf --json '{"model":"m","messages":[]}' "$OPENAI_BASE_URL/chat/completions" > /dev/null; }
event agent.user_message '{"text":"Fix the failing test in parser.py, and explain what was wrong."}'
call
event agent.thinking '{"text":"The test fails because the last token is dropped. I look at the parser first."}'
event agent.assistant_message '{"text":"I look at the parser first, and then I run the tests."}'
event agent.tool_use '{"id":"t1","name":"Bash","input":{"command":"python -m pytest -q"}}'
printf 'def parse(text):\n    return text.split()[:-1]\n' > parser.py
event agent.tool_result '{"tool_use_id":"t1","name":"Bash","content":"1 failed, 1 passed","is_error":true,"exit_code":1}'
call
printf '\033[32m2 passed\033[0m in 0.02 s\n'
"#;

/// Events and output with markup, terminal codes and wrong types.
const HOSTILE: &str = r#"
event agent.assistant_message '{"text":"<script>document.title=\"owned\"</script><img src=x onerror=\"document.title=1\"> \u202egnp.exe\u202c [x](javascript:alert(1))"}'
event agent.tool_use '{"id":"t2","name":"<b onmouseover=alert(1)>Bash</b>","input":{"command":"\u001b]0;owned\u0007echo \u001b[31mred"}}'
event agent.file_edited '{"file_path":"odd","change_type":"<b>","diff_preview":{},"lines_added":{"a":1},"lines_removed":"\u202e"}'
event agent.file_edited '{"file_path":"wide","diff_preview":"+'$(head -c 5000 /dev/zero | tr '\0' 'y')'hidden"}'
head -c 10000000 /dev/zero | tr '\0' 'x'; echo
printf '\033]0;owned\007\033[2J<script>document.title="owned"</script>\n'
"#;

/// Writes the configuration of a daemon with a model and its prices, and returns the path.
fn configured(sluice: &Sluice, more: &str) -> String {
    let prices =
        r#"{"data":[{"model_name":"m","model_info":{"input_cost_per_token":1e-9,"output_cost_per_token":1e-9}}]}"#;
    let prices = sluice.file("prices.json", prices);
    sluice.file("sluice.toml", &format!("model = \"m\"\nprices = \"{prices}\"\n{more}"))
}

/// Clicks on a tab of a run, once the script of the page has drawn it.
async fn choose(browser: &Browser, tab: &str) {
    let script = format!(
        "const tab = [...document.querySelectorAll('[role=tab]')].find(one => one.textContent === '{tab}'); \
         tab?.click(); return tab !== undefined"
    );
    browser.becomes(&script).await;
}

fn agent(name: &str, script: &str) -> Value {
    json!({"argv": ["sh", "-c", format!("{AGENT}{script}")], "model": "m", "name": name})
}

/// Returns an agent that asks a person at its cap of a thousandth of a cent.
fn asking_agent() -> Value {
    let mut asking = agent("asking", "sleep 600");
    asking["on_cap"] = json!("ask");
    asking["max_cost_usd"] = json!("0.00001");
    asking
}

/// Expects faults of requests while no daemon listens, and of a session that ended with the daemon.
fn expects_dead_daemon(browser: &Browser) {
    // Chromium reports a different error for each moment at which the connection is lost.
    for text in [
        "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_CONNECTION_CLOSED", "ERR_EMPTY_RESPONSE",
        "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_SOCKET_NOT_CONNECTED", "status of 401",
    ] {
        browser.expects_fault(text);
    }
}

/// Returns a new login code for the console.
async fn code(daemon: &Daemon<'_>, flags: &[&str]) -> String {
    let words = ["open", "--print", "--json"].iter().chain(flags);
    let printed = daemon.command(words).finish().await.expect(0).value();
    printed["code"].as_str().expect("a code").to_owned()
}

/// Logs a browser in by the pages of the login.
async fn log_in(browser: &Browser, daemon: &Daemon<'_>) {
    log_in_as(browser, daemon, &[], "owner").await;
}

/// Logs a browser in as an admin by the pages of the login.
async fn log_in_as_admin(browser: &Browser, daemon: &Daemon<'_>) {
    log_in_as(browser, daemon, &["--admin"], "admin").await;
}

/// Logs a browser in without leaving its page, as another tab does.
async fn log_in_again(browser: &Browser, daemon: &Daemon<'_>) {
    let script = format!(
        "return fetch('/login/confirm', {{method: 'POST', redirect: 'manual', body: 'code={}', \
         headers: {{'Content-Type': 'application/x-www-form-urlencoded'}}}}).then(() => true)",
        code(daemon, &[]).await
    );
    assert_eq!(browser.script(&script).await, true);
}

async fn log_in_as(browser: &Browser, daemon: &Daemon<'_>, flags: &[&str], role: &str) {
    browser.open(&format!("http://{}/login", daemon.address())).await;
    browser.write("input[name=code]", &code(daemon, flags).await).await;
    browser.click("button").await;
    browser.shows(&format!("Log in as root ({role})")).await;
    browser.click("button").await;
    browser.shows("Sandboxes").await;
}
