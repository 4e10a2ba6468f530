//! Messages of LiteLLM about its own budgets that have no room for a request.
//!
//! Pure. A message holds the alias and the last characters of a key, or its hash, and names of other users. Only the
//! kind of the budget's owner and the amounts are taken from it.

use crate::Usd;

/// Value of `type` in LiteLLM's error about an exhausted budget.
pub const BUDGET_EXCEEDED: &str = "budget_exceeded";

/// Beginning of the message when each deployment of a model is over a budget of `router_settings`.
const ROUTER: &str = "No deployments available - crossed budget: ";

/// Beginnings of the other messages of LiteLLM 1.80 to 1.109, each with the owner of the budget. The first match
/// counts.
const OWNERS: [(&str, &str); 21] = [
    ("Budget has been exceeded! Key=", "key"),
    ("Budget has been exceeded! Team=", "team"),
    ("Budget has been exceeded! TeamMember=", "team_member"),
    ("Budget has been exceeded! User=", "user"),
    ("Budget has been exceeded! EndUser=", "customer"),
    ("Budget has been exceeded! Tag=", "tag"),
    ("Budget has been exceeded! Model access group=", "model_group"),
    ("Budget has been exceeded! Organization=", "organization"),
    ("Budget has been exceeded! Project=", "project"),
    ("Budget has been exceeded! Current cost", "proxy"),
    ("Budget has been exceeded!", "unknown"),
    ("ExceededBudget: User=", "user"),
    ("ExceededBudget: End User=", "customer"),
    ("ExceededBudget: Key ", "key"),
    ("ExceededBudget: Team=", "team"),
    ("ExceededBudget:", "unknown"),
    ("LiteLLM Virtual Key:", "key"),
    ("LiteLLM User:", "user"),
    ("LiteLLM End User:", "customer"),
    ("LiteLLM Team Member:", "team_member"),
    ("LiteLLM Team:", "team"),
];

/// A budget of LiteLLM that has no room for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetRefusal {
    /// Kind of the budget's owner: a stable word of the audit log.
    pub owner: &'static str,
    /// Amount that LiteLLM counts as spent, in nano-USD, if the message has it. It includes reservations of open calls.
    pub spent: Option<i64>,
    /// Limit in nano-USD, if the message has it.
    pub limit: Option<i64>,
}

impl BudgetRefusal {
    /// Parses the message of an error whose type is [`BUDGET_EXCEEDED`]; `None` for any other message.
    #[must_use]
    pub fn of_account(message: &str) -> Option<Self> {
        let (_, owner) = OWNERS.iter().find(|(start, _)| message.starts_with(start))?;
        let is_member = *owner == "user" && message.contains(" in Team=");
        Some(Self::new(
            if is_member { "team_member" } else { owner },
            amount(message, &["Current cost: ", "Spend="]),
            amount(message, &["Max budget: ", "Budget=", "Limit="]),
        ))
    }

    /// Parses the message of a router whose deployments are all over their budgets; `None` for any other message.
    #[must_use]
    pub fn of_router(message: &str) -> Option<Self> {
        // There is one line for each deployment; the first is reported.
        let line = message.strip_prefix(ROUTER)?.lines().next().unwrap_or_default();
        Some(if line.starts_with("Exceeded budget for tag=") {
            Self::new("tag", amount(line, &["tag_spend="]), amount(line, &["tag_budget_limit="]))
        } else {
            let spent = line.rsplit_once(" >= ").and_then(|(before, _)| amount(before, &[": "]));
            match line.starts_with("Exceeded budget for provider ") {
                true => Self::new("provider", spent, amount(line, &[" >= "])),
                // LiteLLM gives the duration of a deployment's budget in place of its limit.
                false => Self::new("deployment", spent, None),
            }
        })
    }

    /// Drops both amounts if the limit is 0: such messages round to cents.
    fn new(owner: &'static str, spent: Option<i64>, limit: Option<i64>) -> Self {
        if limit == Some(0) { Self { owner, spent: None, limit: None } } else { Self { owner, spent, limit } }
    }
}

/// Returns the owner of a budget in words for people.
#[must_use]
pub fn owner_in_words(owner: &str) -> &str {
    match owner {
        "key" => "the key that the sidecar has",
        "team" => "the team of the sidecar's key",
        "team_member" => "the member of the team that the sidecar's key belongs to",
        "user" => "the user that the sidecar's key belongs to",
        "organization" => "the organization of the sidecar's key",
        "project" => "the project of the sidecar's key",
        "customer" => "the customer (the run's account)",
        "model_group" => "the group of models that this one is in",
        "provider" => "the model's provider",
        "deployment" => "the model's deployments",
        "tag" => "a tag of the call",
        "proxy" => "all its callers together",
        _ => "one of its accounts",
    }
}

/// Returns the amount after the last occurrence of the first of these words that the text has, in nano-USD.
fn amount(text: &str, words: &[&str]) -> Option<i64> {
    let behind = words.iter().find_map(|word| Some(text.rsplit_once(word)?.1))?;
    let behind = behind.strip_prefix('$').unwrap_or(behind);
    let end = behind.find(|c: char| !c.is_ascii_digit() && !".eE+-".contains(c)).unwrap_or(behind.len());
    Usd::parse(&behind[..end]).ok().filter(Usd::is_countable).map(|usd| usd.to_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    const USD: i64 = 1_000_000_000;

    #[test]
    fn every_owner_is_recognised() {
        let whole = |owner| (owner, Some(USD), Some(USD));
        // Answers of LiteLLM 1.106.2, or messages in the source of 1.106.2 and 1.109.1.
        for (message, expected) in [
            (
                "Budget has been exceeded! Key=alias-1 (sk-...goDw) Current cost: 4.499999999999959e-05, Max budget: 1e-05",
                ("key", Some(45_000), Some(10_000)),
            ),
            (
                "Budget has been exceeded! Key=88dc28d0 Current cost: 1.5, Estimated request cost: 7, Max budget: 2",
                ("key", Some(USD + USD / 2), Some(2 * USD)),
            ),
            ("Budget has been exceeded! Team=t Current cost: 1, Max budget: 1", whole("team")),
            ("Budget has been exceeded! TeamMember=u:t Current cost: 1, Max budget: 1", whole("team_member")),
            ("Budget has been exceeded! User=u in Team=t Current cost: 1, Max budget: 1", whole("team_member")),
            ("Budget has been exceeded! User=u Current cost: 1, Max budget: 1", whole("user")),
            ("Budget has been exceeded! EndUser=u Current cost: 1, Max budget: 1", whole("customer")),
            ("Budget has been exceeded! Tag=t Current cost: 1, Max budget: 1", whole("tag")),
            ("Budget has been exceeded! Model access group=g Current cost: 1, Max budget: 1", whole("model_group")),
            ("Budget has been exceeded! Organization=o Current cost: 1, Max budget: 1", whole("organization")),
            ("Budget has been exceeded! Project=p Current cost: 1, Max budget: 1", whole("project")),
            ("Budget has been exceeded! Current cost: 1.0, Max budget: 1.0", whole("proxy")),
            ("Budget has been exceeded! Something=else", ("unknown", None, None)),
            ("ExceededBudget: User=u over budget. Spend=4.5e-05, Budget=1e-05", ("user", Some(45_000), Some(10_000))),
            (
                "ExceededBudget: End User=c over budget. Spend=4.5e-05, Budget=1e-05",
                ("customer", Some(45_000), Some(10_000)),
            ),
            ("ExceededBudget: Key over 1d budget. Spend=$0.0000, Limit=$0.00", ("key", None, None)),
            ("ExceededBudget: Team=t over 1d budget. Spend=$1.0000, Limit=$1.00", whole("team")),
            ("LiteLLM Virtual Key: 88dc28d0, key_alias: alias-1, exceeded budget for model=m", ("key", None, None)),
            ("LiteLLM Team Member: user=u, team=t, exceeded budget for model=m", ("team_member", None, None)),
            // The name of an owner does not choose the amounts.
            ("Budget has been exceeded! Team=Max budget: 9 Current cost: 1, Max budget: 1", whole("team")),
        ] {
            let read = BudgetRefusal::of_account(message).expect(message);
            assert_eq!((read.owner, read.spent, read.limit), expected, "{message}");
            assert_eq!(BudgetRefusal::of_router(message), None);
        }
        for message in ["", "litellm.BadRequestError: OpenAIException - Budget has been exceeded! Key=k", "Budget"] {
            assert_eq!(BudgetRefusal::of_account(message), None, "{message}");
        }
    }

    #[test]
    fn budgets_of_a_router_are_recognised() {
        for (line, expected) in [
            ("Exceeded budget for provider anthropic: 0.00035 >= 1e-07\n", ("provider", Some(350_000), Some(100))),
            (
                "Exceeded budget for deployment model_name: m, litellm_params.model: x/m, model_id: 9: 0.5 >= 1d\n",
                ("deployment", Some(USD / 2), None),
            ),
            (
                "Exceeded budget for tag='t', tag_spend=0.5, tag_budget_limit=0.25\nExceeded budget for provider x: 1 >= 1",
                ("tag", Some(USD / 2), Some(USD / 4)),
            ),
        ] {
            let read = BudgetRefusal::of_router(&format!("{ROUTER}{line}")).expect(line);
            assert_eq!((read.owner, read.spent, read.limit), expected, "{line}");
            let quoted = format!("litellm.RateLimitError: OpenAIException - {ROUTER}{line}");
            assert_eq!(BudgetRefusal::of_router(&quoted), None);
        }
    }

    #[test]
    fn each_owner_has_words_of_its_own() {
        let owners = OWNERS.iter().map(|(_, owner)| *owner).chain(["provider", "deployment"]);
        let words: std::collections::BTreeMap<_, _> = owners.map(|owner| (owner, owner_in_words(owner))).collect();
        let distinct: std::collections::BTreeSet<_> = words.values().collect();
        assert_eq!(distinct.len(), words.len(), "{words:?}");
    }
}
