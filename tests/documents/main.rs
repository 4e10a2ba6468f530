//! Every shell command of README and guide, run in order in a fresh directory, against a real LiteLLM.
//!
//! A command must exit with 0. `special.rs` lists the few that exit with another code, that go on until they are
//! stopped, or that cannot be run in a test, each with its reason; a row that fits no command fails the test.

mod commands;
mod session;
mod special;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use commands::{ShellCommand, commands_of};
use session::Session;
use sluice_testkit::litellm::LiteLlm;
use special::{SPECIAL, Treatment};

/// The pages whose commands are run: an operator reads them in this order.
const PAGES: [&str; 21] = [
    "README.md", "docs/guide/first-run.md", "docs/guide/runs.md", "docs/guide/git.md", "docs/guide/agents.md",
    "docs/guide/history.md", "docs/guide/budgets.md", "docs/guide/ledger.md", "docs/guide/reconciliation.md",
    "docs/guide/virtual-keys.md", "docs/guide/audit.md", "docs/guide/operations.md", "docs/guide/serve.md",
    "docs/guide/console.md", "docs/guide/approvals.md", "docs/guide/chat.md", "docs/guide/observability.md",
    "docs/guide/moving.md", "docs/guide/sidecar.md", "docs/guide/worker.md", "deploy/README.md",
];

fn checkout() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn page(name: &str) -> Vec<ShellCommand> {
    let text = fs::read_to_string(checkout().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    commands_of(name, &text)
}

#[test]
fn every_page_with_commands_is_run() {
    let guide = fs::read_dir(checkout().join("docs/guide")).expect("the guide is a directory");
    let names = guide.map(|entry| format!("docs/guide/{}", entry.expect("a page").file_name().to_string_lossy()));
    let missing: Vec<_> = names.filter(|name| !PAGES.contains(&name.as_str())).collect();

    assert!(missing.is_empty(), "add to PAGES: {missing:?}");
}

#[test]
fn every_special_row_fits_a_command() {
    let commands: Vec<_> = PAGES.iter().flat_map(|name| page(name)).collect();
    let unused: BTreeSet<_> =
        SPECIAL.iter().filter(|row| !commands.iter().any(|command| row.fits(command))).map(|row| row.start).collect();

    assert!(unused.is_empty(), "no command begins so: {unused:?}");
}

#[tokio::test]
async fn every_command_of_the_pages_works() {
    let litellm = LiteLlm::with_spend_log().await;
    let failures = tokio::task::spawn_blocking(|| run_all(&Session::new(litellm.url(), litellm.key()))).await;

    let failures = failures.expect("it does not panic");
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Runs all pages, and returns a text for each command that did not end as it should.
fn run_all(session: &Session) -> Vec<String> {
    let mut failures = Vec::new();
    for name in PAGES {
        let commands = page(name);
        let planned: Vec<_> = commands.iter().map(|command| (command, special::treatment(command))).collect();
        let run: Vec<_> =
            planned.into_iter().filter(|(_, treatment)| !matches!(treatment, Treatment::Skip(_))).collect();
        failures.extend(session.run(&run));
    }
    failures
}
