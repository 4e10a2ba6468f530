//! The rules of the Guardian, `[guardian]` of the configuration file, and the rules of single agents.
//!
//! Pure. By default, no rule is set. A rule of an agent replaces the same rule of the host, and the others stay.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use sluice_daemon::guardian::{
    CostRate, GuardianAction, GuardianRules, GuardianSettings, NoFileChange, RepetitionRule, SilenceRule,
};
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::error::InvalidValue;
use super::file_value::{FileFault, span_of};
use super::named_tables::{MemberFault, member_fault};
use super::values;

/// A rule, if its action is not `off`, or the member that is not valid.
type Rule<R> = Result<Option<R>, MemberFault>;

/// Shortest time of a rule: events are read about twice in a second.
const TIME_MIN: Duration = Duration::from_secs(10);
/// Maximum time of a rule. No run is longer.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// `[guardian]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    cool_down: Option<String>,
    repeated_tool: Option<RepetitionEntry>,
    repeated_error: Option<RepetitionEntry>,
    cost_rate: Option<CostEntry>,
    no_file_change: Option<NoChangeEntry>,
    silence: Option<SilenceEntry>,
    #[serde(default)]
    agents: BTreeMap<String, AgentEntry>,
}

/// `[guardian.agents."sandbox:NAME"]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentEntry {
    cool_down: Option<String>,
    repeated_tool: Option<RepetitionEntry>,
    repeated_error: Option<RepetitionEntry>,
    cost_rate: Option<CostEntry>,
    no_file_change: Option<NoChangeEntry>,
    silence: Option<SilenceEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RepetitionEntry {
    #[serde(default = "five")]
    count: u32,
    #[serde(default = "ten_minutes")]
    within: String,
    action: ActionEntry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CostEntry {
    #[serde(default)]
    usd: Option<toml::Value>,
    #[serde(default = "ten_minutes")]
    within: String,
    action: ActionEntry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoChangeEntry {
    #[serde(default = "ten_minutes")]
    after: String,
    #[serde(default = "five")]
    calls: u32,
    action: ActionEntry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SilenceEntry {
    #[serde(default = "ten_minutes")]
    after: String,
    action: ActionEntry,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ActionEntry {
    Off,
    Notify,
    Nudge,
    Pause,
}

fn five() -> u32 {
    5
}

fn ten_minutes() -> String {
    "10m".to_owned()
}

/// Reads `[guardian]`.
///
/// # Errors
/// The first fault, at the member that is not valid.
pub(super) fn read(value: &Spanned<DeValue<'_>>) -> Result<GuardianSettings, FileFault> {
    let entry = HostEntry::deserialize(ValueDeserializer::from(value.clone())).map_err(|error| {
        FileFault::new(error.span().unwrap_or_else(|| value.span()), format!("guardian: {}", error.message()))
    })?;
    let HostEntry { cool_down, repeated_tool, repeated_error, cost_rate, no_file_change, silence, agents } = entry;
    let own = AgentEntry { cool_down, repeated_tool, repeated_error, cost_rate, no_file_change, silence };
    let host = own.over(GuardianRules::default()).map_err(|fault| placed(value, &[], fault))?;
    let mut settings = GuardianSettings { host, agents: BTreeMap::new() };
    for (name, entry) in agents {
        let rules = entry.over(host).map_err(|fault| placed(value, &["agents", name.as_str()], fault))?;
        settings.agents.insert(name, rules);
    }
    Ok(settings)
}

/// Returns the fault of a rule with its place. `above` are the names of the tables around the rule.
fn placed(value: &Spanned<DeValue<'_>>, above: &[&str], fault: RuleFault) -> FileFault {
    let RuleFault { rule, member, reason } = fault;
    let words: Vec<_> = above.iter().copied().chain([rule]).collect();
    let reason = format!("guardian: {}: {reason}", words.join("."));
    let path: Vec<_> = words.into_iter().chain(member).collect();
    FileFault::new(span_of(value, &path), reason)
}

/// A rule that is not valid.
struct RuleFault {
    rule: &'static str,
    /// The member of the rule, if the rule has members.
    member: Option<&'static str>,
    reason: InvalidValue,
}

impl AgentEntry {
    /// Returns the rules, with the host's rules for those that an entry lacks.
    fn over(self, before: GuardianRules) -> Result<GuardianRules, RuleFault> {
        let at = |rule| move |(member, reason): MemberFault| RuleFault { rule, member: Some(member), reason };
        let cool_down = |reason| RuleFault { rule: "cool_down", member: None, reason };
        Ok(GuardianRules {
            cool_down: match self.cool_down {
                Some(text) => time(&text).map_err(cool_down)?,
                None => before.cool_down,
            },
            repeated_tool: replaced(before.repeated_tool, self.repeated_tool, RepetitionEntry::rule)
                .map_err(at("repeated_tool"))?,
            repeated_error: replaced(before.repeated_error, self.repeated_error, RepetitionEntry::rule)
                .map_err(at("repeated_error"))?,
            cost_rate: replaced(before.cost_rate, self.cost_rate, CostEntry::rule).map_err(at("cost_rate"))?,
            no_file_change: replaced(before.no_file_change, self.no_file_change, NoChangeEntry::rule)
                .map_err(at("no_file_change"))?,
            silence: replaced(before.silence, self.silence, SilenceEntry::rule).map_err(at("silence"))?,
        })
    }
}

fn replaced<E, R>(before: Option<R>, entry: Option<E>, rule: fn(E) -> Rule<R>) -> Rule<R> {
    entry.map_or(Ok(before), rule)
}

impl RepetitionEntry {
    fn rule(self) -> Rule<RepetitionRule> {
        if !(2..=RepetitionRule::COUNT_MAX).contains(&self.count) {
            let reason = format!("count is a number from 2 to {}", RepetitionRule::COUNT_MAX);
            return Err(member_fault("count", reason));
        }
        let within = time_of("within", &self.within)?;
        Ok(self.action.action().map(|action| RepetitionRule { count: self.count, within, action }))
    }
}

impl CostEntry {
    fn rule(self) -> Rule<CostRate> {
        let within = time_of("within", &self.within)?;
        let Some(action) = self.action.action() else { return Ok(None) };
        let text = match self.usd {
            Some(toml::Value::String(text)) => text,
            Some(toml::Value::Integer(number)) => number.to_string(),
            Some(toml::Value::Float(number)) => number.to_string(),
            _ => return Err(member_fault("usd", "usd is an amount of dollars, such as 2 or 0.5")),
        };
        match values::nano_usd(&text).map_err(|reason| ("usd", reason))? {
            0 => Err(member_fault("usd", "usd is more than 0")),
            nano_usd => Ok(Some(CostRate { nano_usd, within, action })),
        }
    }
}

impl NoChangeEntry {
    fn rule(self) -> Rule<NoFileChange> {
        if self.calls == 0 {
            return Err(member_fault("calls", "calls is at least 1"));
        }
        let after = time_of("after", &self.after)?;
        Ok(self.action.action().map(|action| NoFileChange { after, calls: self.calls, action }))
    }
}

impl SilenceEntry {
    fn rule(self) -> Rule<SilenceRule> {
        let after = time_of("after", &self.after)?;
        Ok(self.action.action().map(|action| SilenceRule { after, action }))
    }
}

impl ActionEntry {
    fn action(self) -> Option<GuardianAction> {
        match self {
            Self::Off => None,
            Self::Notify => Some(GuardianAction::Notify),
            Self::Nudge => Some(GuardianAction::Nudge),
            Self::Pause => Some(GuardianAction::Pause),
        }
    }
}

fn time_of(member: &'static str, text: &str) -> Result<Duration, MemberFault> {
    time(text).map_err(|reason| (member, reason))
}

fn time(text: &str) -> Result<Duration, InvalidValue> {
    let time = values::duration(text)?;
    if (TIME_MIN..=TIME_MAX).contains(&time) {
        return Ok(time);
    }
    Err(InvalidValue::new(format!("'{text}' is not a time of a rule; give 10s to 24h")))
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::*;

    fn parse(text: &str) -> Result<GuardianSettings, InvalidValue> {
        let table = DeTable::parse(text).expect("it is TOML");
        let span = table.span();
        read(&Spanned::new(span, DeValue::Table(table.into_inner()))).map_err(|fault| fault.reason)
    }

    #[test]
    fn without_a_table_there_is_no_rule() {
        let settings = parse("").expect("it is right");
        assert!(settings.is_empty());
        assert!(parse("cool_down = '5m'").expect("it is right").is_empty());
    }

    #[test]
    fn an_agent_replaces_single_rules() {
        let text = "
            cool_down = '5m'
            repeated_tool = { count = 4, action = 'nudge' }
            cost_rate = { usd = 2.5, within = '1h', action = 'pause' }
            silence = { after = '8m', action = 'notify' }
            [agents.'sandbox:codex']
            repeated_tool = { action = 'off' }
            no_file_change = { after = '20m', calls = 10, action = 'nudge' }
        ";
        let settings = parse(text).expect("it is right");
        let (minute, nudge) = (Duration::from_secs(60), GuardianAction::Nudge);
        let host = GuardianRules {
            cool_down: 5 * minute,
            repeated_tool: Some(RepetitionRule { count: 4, within: 10 * minute, action: nudge }),
            cost_rate: Some(CostRate { nano_usd: 2_500_000_000, within: 60 * minute, action: GuardianAction::Pause }),
            silence: Some(SilenceRule { after: 8 * minute, action: GuardianAction::Notify }),
            ..GuardianRules::default()
        };
        assert_eq!((settings.host, settings.of("sandbox:agent")), (host, host));
        let no_file_change = Some(NoFileChange { after: 20 * minute, calls: 10, action: nudge });
        assert_eq!(settings.of("sandbox:codex"), GuardianRules { repeated_tool: None, no_file_change, ..host });
    }

    #[test]
    fn faults_name_their_place() {
        for (text, expected) in [
            ("silense = {}", "guardian: unknown field `silense`"),
            ("silence = { action = 'kill' }", "guardian: unknown variant `kill`"),
            ("silence = { after = '1s', action = 'notify' }", "guardian: silence: '1s' is not a time of a rule"),
            ("repeated_tool = { count = 1, action = 'nudge' }", "guardian: repeated_tool: count is a number from 2"),
            ("repeated_error = { count = 101, action = 'nudge' }", "guardian: repeated_error: count is a number"),
            ("cost_rate = { action = 'pause' }", "guardian: cost_rate: usd is an amount"),
            ("cost_rate = { usd = 0, action = 'pause' }", "guardian: cost_rate: usd is more than 0"),
            ("no_file_change = { calls = 0, action = 'nudge' }", "guardian: no_file_change: calls is at least 1"),
            (
                "agents.x.silence = { after = '2d', action = 'notify' }",
                "guardian: agents.x.silence: '2d' is not a time",
            ),
            ("agents.x.agents = {}", "guardian: unknown field `agents`"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
