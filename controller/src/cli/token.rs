//! `sluice token`: credentials for the daemon's API.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use sluice_contract::money::Usd;
use sluice_contract::text::sanitize;
use sluice_contract::time::duration_micros;
use sluice_contract::{Account, exit, is_name, units};
use sluice_state::chats::ChatCaps;
use sluice_state::control_log::ControlEntry;
use sluice_state::store::{Store, now_us};
use sluice_state::tokens::{NewToken, Token, TokenError, TokenRole, create_value};

use super::database::{open, open_for_queries, open_or_create};
use super::error::CommandError;
use super::host_args::HostArgs;
use super::operator_record::{self, control_log};
use super::output::{print, print_json, say, timestamp_to_second};

const EXAMPLES: &str = "\
Examples:
  (umask 077; sluice token create --owner alice --role owner --account acct-1 > alice.token)
  sluice token create --owner ops --role admin --expires 7d --json
  sluice token list
  sluice token revoke tok_0f8fad5bd9cb469fa16570867728950e";

/// Creates, lists and revokes the tokens of the daemon's API.
///
/// The database has the hash of a token, and its value is printed once. A running daemon knows a new token, and refuses a
/// revoked one, at once. Each change is a line in the control log.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Creates a token and prints its value
    Create {
        /// The owner of what the token makes
        #[arg(long, value_parser = owner)]
        owner: String,
        /// Role: admin, owner, viewer, chat, or metrics for a monitoring system
        #[arg(long, value_parser = role)]
        role: TokenRole,
        /// An account that it may use; repeat for more
        #[arg(long, value_name = "ACCOUNT")]
        account: Vec<Account>,
        /// Time for which it is valid, at most 365d [default: 90d]
        #[arg(long, value_name = "TIME", value_parser = units::time)]
        expires: Option<Duration>,
        /// Chats that a chat token may begin in a day [default: 500]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        runs_per_day: Option<u32>,
        /// Dollars that the chats of a chat token may cost in a day; each then has a cap [default: no limit]
        #[arg(long, value_name = "USD", value_parser = dollars)]
        cost_per_day: Option<i64>,
        /// A text for people
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Lists all tokens, oldest first, without their values
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Revokes a token permanently
    Revoke {
        /// The id of the token, tok_…
        #[arg(value_name = "ID")]
        id: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// A token, without its value.
#[derive(Serialize)]
struct TokenObject<'a> {
    id: &'a str,
    owner: &'a str,
    role: &'static str,
    accounts: &'a [String],
    label: Option<&'a str>,
    created_at: String,
    expires_at: String,
    last_used_at: Option<String>,
    revoked_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runs_per_day: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_per_day_usd: Option<String>,
}

pub(super) async fn run(args: &TokenArgs) -> Result<ExitCode, CommandError> {
    let state = args.host.state_dir()?;
    match &args.command {
        TokenCommand::Create { owner, role, account, expires, runs_per_day, cost_per_day, label, json } => {
            if account.is_empty() && matches!(role, TokenRole::Owner | TokenRole::Chat) {
                return Err(CommandError::wrong_usage(format!(
                    "a token with the role {} needs --account",
                    role.as_str()
                )));
            }
            if *role != TokenRole::Chat && (runs_per_day.is_some() || cost_per_day.is_some()) {
                return Err(CommandError::wrong_usage(
                    "--runs-per-day and --cost-per-day are of tokens with the role chat",
                ));
            }
            let new = NewToken {
                owner: owner.clone(),
                role: *role,
                accounts: account.iter().map(Account::to_string).collect(),
                label: label.clone(),
                life_us: expires.map(duration_micros),
                runs_per_day: *runs_per_day,
                cost_per_day: *cost_per_day,
            };
            create(&open_or_create(&state)?, &state, new, *json).await?;
        }
        TokenCommand::List { json } => {
            let tokens = open_for_queries(&state)?.list_tokens().await?;
            if *json {
                print_json(&json!({ "tokens": tokens.iter().map(object).collect::<Vec<_>>() }));
            } else {
                print(&table(&tokens));
            }
        }
        TokenCommand::Revoke { id, json } => {
            let store = open(&state)?;
            let known = store.find_token_by_id(id).await?.ok_or_else(|| TokenError::NotFound(id.clone()))?;
            let recorded = operator_record::begin(&state, entry("token.revoke", Some(&known.id), &known.owner, None))?;
            let revoked = recorded.end(store.revoke_token(id, now_us()).await.map_err(CommandError::from))?;
            if *json {
                print_json(&json!({ "tokens": [object(&revoked)] }));
            } else {
                print(&format!("{id} is revoked\n"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(store: &Store, state: &Path, new: NewToken, json: bool) -> Result<(), CommandError> {
    let life_us = new.life_us.unwrap_or(Token::LIFE_DEFAULT_US);
    if life_us <= 0 || life_us > Token::LIFE_MAX_US {
        return Err(TokenError::Life.into());
    }
    let value = create_value()?;
    let mut after = json!({ "accounts": new.accounts, "life_us": life_us, "role": new.role.as_str() });
    if let Some((runs, cost)) = day_caps(new.role, new.runs_per_day, new.cost_per_day) {
        after["caps"] = json!({ "cost_usd_per_day": cost, "runs_per_day": runs });
    }
    let owner = new.owner.clone();
    let recorded = operator_record::begin(state, entry("token.create", None, &owner, Some(after)))?;
    let line = json!({ "line": recorded.seq() });
    let token = recorded.end(store.create_token(&value, new, now_us()).await.map_err(CommandError::from))?;
    // Its id is known only now.
    operator_record::record(&control_log(state)?, entry("token.created", Some(&token.id), &owner, Some(line)))?;
    if json {
        print_json(&json!({ "value": value.expose(), "tokens": [object(&token)] }));
    } else {
        say(&format!(
            "{} of {owner}, valid until {}; its value is shown this once",
            token.id,
            timestamp_to_second(token.expires_us)
        ));
        print(&format!("{}\n", value.expose()));
    }
    Ok(())
}

/// Returns the line of a change.
fn entry(operation: &str, object: Option<&str>, owner: &str, after: Option<serde_json::Value>) -> ControlEntry {
    ControlEntry {
        operation: operation.to_owned(),
        object: object.map(str::to_owned),
        owner: Some(owner.to_owned()),
        after,
        ..ControlEntry::default()
    }
}

/// A value of a flag that is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum FlagError {
    #[error("a name has 1 to 63 of a-z, 0-9, '.', '_' and '-'")]
    Owner,
    #[error("write a number of dollars, such as 5 or 0.50")]
    Dollars,
    #[error("write admin, owner, viewer, chat or metrics")]
    Role,
}

impl From<TokenError> for CommandError {
    fn from(error: TokenError) -> Self {
        let is_usage = matches!(error, TokenError::Life | TokenError::NotFound(_));
        Self::new(if is_usage { exit::USAGE } else { exit::FAILED }, &error)
    }
}

fn owner(text: &str) -> Result<String, FlagError> {
    if is_name(text) { Ok(text.to_owned()) } else { Err(FlagError::Owner) }
}

fn dollars(text: &str) -> Result<i64, FlagError> {
    let amount = Usd::parse(text).map(|usd| usd.to_nanos()).ok().filter(|nanos| *nanos > 0);
    amount.ok_or(FlagError::Dollars)
}

/// Returns the caps of a chat token for a day: runs, and dollars.
fn day_caps(role: TokenRole, runs: Option<u32>, cost: Option<i64>) -> Option<(u32, Option<String>)> {
    let ChatCaps { runs_per_day, cost_per_day } = ChatCaps::default();
    let cost = cost.or(cost_per_day).map(|nanos| Usd::from_nanos(nanos).to_string());
    (role == TokenRole::Chat).then(|| (runs.unwrap_or(runs_per_day), cost))
}

fn role(text: &str) -> Result<TokenRole, FlagError> {
    TokenRole::of(text).ok_or(FlagError::Role)
}

fn object(token: &Token) -> TokenObject<'_> {
    let caps = day_caps(token.role, token.runs_per_day, token.cost_per_day);
    TokenObject {
        id: &token.id,
        owner: &token.owner,
        role: token.role.as_str(),
        accounts: &token.accounts,
        label: token.label.as_deref(),
        created_at: timestamp_to_second(token.created_us),
        expires_at: timestamp_to_second(token.expires_us),
        last_used_at: token.last_used_us.map(timestamp_to_second),
        revoked_at: token.revoked_us.map(timestamp_to_second),
        runs_per_day: caps.as_ref().map(|(runs, _)| *runs),
        cost_per_day_usd: caps.and_then(|(_, cost)| cost),
    }
}

fn table(tokens: &[Token]) -> String {
    let now = now_us();
    let mut text =
        format!("{:<36} {:<16} {:<7} {:<8} {:<20} accounts\n", "id", "owner", "role", "state", "expires (UTC)");
    for token in tokens {
        let state = match token.revoked_us {
            Some(_) => "revoked",
            None if token.is_valid(now) => "valid",
            None => "expired",
        };
        let (accounts, role) = (sanitize(&token.accounts.join(" ")), token.role.as_str());
        text += &format!(
            "{:<36} {:<16} {role:<7} {state:<8} {:<20} {accounts}\n",
            token.id,
            token.owner,
            timestamp_to_second(token.expires_us)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once, the maximum of `--expires` was longer than the longest time that a flag accepts.
    #[test]
    fn the_longest_life_of_a_token_can_be_given() {
        let longest = units::time("365d").expect("it is a time");
        assert_eq!(duration_micros(longest), Token::LIFE_MAX_US);
    }
}
