//! Agents, spending, the host and chats as HTML that needs no script.
//!
//! Pure.

use std::fmt::Write;

use sluice_state::agents::Agent;
use sluice_state::budget::{Balance, BudgetHold};
use sluice_state::ledger::{UsageTable, usd};

use super::foreign::foreign;
use super::html::escape;

/// Facts of a host.
pub(super) struct HostFacts {
    pub(super) version: &'static str,
    pub(super) not_ready: Vec<&'static str>,
    pub(super) runs: Vec<(&'static str, u64)>,
    pub(super) sidecars: u64,
    /// Maximum number of running runs; `None` if no sandboxes may be created.
    pub(super) running_max: Option<u32>,
}

/// Returns the registered agents.
pub(super) fn agent_rows(agents: &[Agent]) -> String {
    let registered = agents.iter().filter(|agent| !agent.ephemeral);
    let mut rows = String::new();
    for agent in registered {
        let _ = writeln!(
            rows,
            "<tr><td class=\"main-cell\">{}</td><td data-label=\"State\">{}</td><td data-label=\"Generation\">{}</td>\
             <td data-label=\"Account\">{}</td></tr>",
            foreign(&agent.agent_id),
            agent.state.as_str(),
            agent.generation,
            escape(&agent.billing_account_id)
        );
    }
    if rows.is_empty() {
        return "<p>No agent is registered. <code>sluice agent add reviewer</code> registers one.</p>\n".to_owned();
    }
    format!(
        "<table class=\"list\"><thead><tr><th scope=\"col\">Agent</th><th scope=\"col\">State</th>\
         <th scope=\"col\">Generation</th><th scope=\"col\">Account</th></tr></thead><tbody>\n{rows}</tbody></table>\n"
    )
}

/// Returns the budgets of accounts.
pub(super) fn balances(budgets: &[(String, Balance, Vec<BudgetHold>)]) -> String {
    if budgets.is_empty() {
        return "<h2>Budgets</h2>\n<p>No account has a budget: none has a limit.</p>\n".to_owned();
    }
    let mut rows = String::new();
    for (account, balance, _) in budgets {
        let _ = writeln!(
            rows,
            "<tr><td class=\"main-cell\">{}</td><td data-label=\"Granted\">${}</td><td data-label=\"Spent\">${}</td>\
             <td data-label=\"Held\">${}</td><td data-label=\"Left\">${}</td></tr>",
            escape(account),
            usd(balance.granted),
            usd(balance.spent),
            usd(balance.held),
            usd(balance.left())
        );
    }
    format!(
        "<h2>Budgets</h2>\n<table class=\"list\"><thead><tr><th scope=\"col\">Account</th><th scope=\"col\">Granted</th>\
         <th scope=\"col\">Spent</th><th scope=\"col\">Held</th><th scope=\"col\">Left</th></tr></thead><tbody>\n\
         {rows}</tbody></table>\n"
    )
}

/// Returns the calls and the costs of accounts.
pub(super) fn totals(usage: &UsageTable) -> String {
    let mut rows = String::new();
    for (account, total) in &usage.groups {
        let cost = total.nano_usd.map_or_else(|| "not known".to_owned(), |nanos| format!("${}", usd(nanos)));
        let _ = writeln!(
            rows,
            "<tr><td class=\"main-cell\">{}</td><td data-label=\"Calls\">{}</td><td data-label=\"Cost\">{cost}</td>\
             <td data-label=\"Unknown\">{}</td></tr>",
            escape(account),
            total.calls,
            total.open
        );
    }
    if rows.is_empty() {
        return "<h2>Usage</h2>\n<p>No call has been paid for yet.</p>\n".to_owned();
    }
    format!(
        "<h2>Usage</h2>\n<table class=\"list\"><thead><tr><th scope=\"col\">Account</th><th scope=\"col\">Calls</th>\
         <th scope=\"col\">Cost</th><th scope=\"col\">Of unknown cost</th></tr></thead><tbody>\n{rows}</tbody></table>\n"
    )
}

/// Returns the part that users who are not admins see instead of the figures.
pub(super) fn host_refusal(creates_runs: bool) -> String {
    let creates =
        if creates_runs { "creates sandboxes" } else { "creates no sandboxes: <code>sandbox_enabled</code> is off" };
    format!(
        "<p>This host {creates}.</p>\n<p>Its figures are for admins. <code>sluice open --admin</code> shows them here, and \
         <code>sluice top</code> and <code>sluice preflight</code> in a terminal.</p>\n"
    )
}

/// Returns the figures of a host.
pub(super) fn host_facts(facts: &HostFacts) -> String {
    let state = if facts.not_ready.is_empty() {
        "ready".to_owned()
    } else {
        format!("not ready: {}", facts.not_ready.join(", "))
    };
    let capacity = facts.running_max.map_or_else(|| "creates no sandboxes".to_owned(), |max| format!("{max} runs"));
    let mut main = format!(
        "<dl class=\"facts\"><div><dt>State</dt><dd>{state}</dd></div><div><dt>Version</dt><dd>{}</dd></div>\
         <div><dt>Capacity</dt><dd>{capacity}</dd></div><div><dt>Sidecars</dt><dd>{}</dd></div>",
        facts.version, facts.sidecars
    );
    for (state, count) in &facts.runs {
        let _ = write!(main, "<div><dt>{state}</dt><dd>{count}</dd></div>");
    }
    main.push_str("</dl>\n<p><code>sluice preflight</code> checks engine, image, upstream and key.</p>\n");
    main
}

/// Returns the page of chats for a browser without scripts.
pub(super) fn chat_page(agents: &[&str]) -> String {
    let names: String = agents.iter().map(|name| format!("<li>{}</li>", escape(name))).collect();
    let agents = if names.is_empty() { "<p>There is no agent.</p>".to_owned() } else { format!("<ul>{names}</ul>") };
    format!(
        "<noscript><p>A chat needs JavaScript. <code>sluice run</code> asks an agent in a terminal.</p></noscript>\n\
         <h2>Agents</h2>\n{agents}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_accounts_and_agents_are_text() {
        let hostile = "<img src=x>".to_owned();
        let budget = (hostile.clone(), Balance::default(), Vec::new());
        let usage = UsageTable { groups: [(hostile.clone(), Default::default())].into(), ..UsageTable::default() };
        for page in [balances(&[budget]), totals(&usage), chat_page(&[&hostile])] {
            assert!(page.contains("&lt;img") && !page.contains("<img"), "{page}");
        }
    }
}
