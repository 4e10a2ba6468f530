//! `sluice token`: credentials for the daemon's API.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use sluice_contract::text::sanitize;
use sluice_contract::time::{duration_micros, from_unix_micros};
use sluice_contract::{Account, exit, units};
use sluice_state::control_log::{ControlEntry, ControlLog};
use sluice_state::store::{Store, now_us};
use sluice_state::tokens::{NewToken, Token, TokenError, TokenRole, create_value};

use super::database::{open, open_for_queries, open_or_create, wrong};
use super::error::CommandError;
use super::host_args::HostArgs;
use super::operator_record::{self, control_log};
use super::output::{print, print_json, say};

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
        /// Time for which it is valid, at most 366d [default: 90d]
        #[arg(long, value_name = "TIME", value_parser = units::time)]
        expires: Option<Duration>,
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
    /// Revokes a token for ever
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
}

pub(super) async fn run(args: &TokenArgs) -> Result<ExitCode, CommandError> {
    let state = args.host.state_dir()?;
    match &args.command {
        TokenCommand::Create { owner, role, account, expires, label, json } => {
            if account.is_empty() && matches!(role, TokenRole::Owner | TokenRole::Chat) {
                return Err(wrong(format!("a token with the role {} needs --account", role.as_str())));
            }
            let new = NewToken {
                owner: owner.clone(),
                role: *role,
                accounts: account.iter().map(Account::to_string).collect(),
                label: label.clone(),
                life_us: expires.map(duration_micros),
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
            record(&control_log(&state)?, "token.revoke", Some(&known.id), &known.owner, None)?;
            let revoked = store.revoke_token(id, now_us()).await?;
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
    let after = json!({ "accounts": new.accounts, "life_us": life_us, "role": new.role.as_str() });
    let owner = new.owner.clone();
    let log = control_log(state)?;
    let line = record(&log, "token.create", None, &owner, Some(after))?;
    let token = store.create_token(&value, new, now_us()).await?;
    // Its id is known only now.
    record(&log, "token.created", Some(&token.id), &owner, Some(json!({ "line": line })))?;
    if json {
        print_json(&json!({ "value": value.expose(), "tokens": [object(&token)] }));
    } else {
        say(&format!("{} of {owner}, valid until {}; its value is shown this once", token.id, time(token.expires_us)));
        print(&format!("{}\n", value.expose()));
    }
    Ok(())
}

/// Records a change before it takes effect. Returns the number of its line.
fn record(
    log: &ControlLog,
    operation: &str,
    object: Option<&str>,
    owner: &str,
    after: Option<serde_json::Value>,
) -> Result<u64, CommandError> {
    let entry = ControlEntry {
        operation: operation.to_owned(),
        object: object.map(str::to_owned),
        owner: Some(owner.to_owned()),
        after,
        ..ControlEntry::default()
    };
    operator_record::record(log, entry)
}

impl From<TokenError> for CommandError {
    fn from(error: TokenError) -> Self {
        let is_usage = matches!(error, TokenError::Life | TokenError::NotFound(_));
        Self::new(if is_usage { exit::USAGE } else { exit::FAILED }, &error)
    }
}

fn owner(text: &str) -> Result<String, String> {
    let is_start = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_name = text.bytes().next().is_some_and(is_start)
        && text.len() <= 63
        && text.bytes().all(|byte| is_start(byte) || matches!(byte, b'.' | b'_' | b'-'));
    if is_name { Ok(text.to_owned()) } else { Err("a name has 1 to 63 of a-z, 0-9, '.', '_' and '-'".to_owned()) }
}

fn role(text: &str) -> Result<TokenRole, String> {
    TokenRole::of(text).ok_or_else(|| "write admin, owner, viewer, chat or metrics".to_owned())
}

fn time(us: i64) -> String {
    // Whole seconds.
    humantime::format_rfc3339_seconds(from_unix_micros(us)).to_string()
}

fn object(token: &Token) -> TokenObject<'_> {
    TokenObject {
        id: &token.id,
        owner: &token.owner,
        role: token.role.as_str(),
        accounts: &token.accounts,
        label: token.label.as_deref(),
        created_at: time(token.created_us),
        expires_at: time(token.expires_us),
        last_used_at: token.last_used_us.map(time),
        revoked_at: token.revoked_us.map(time),
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
            time(token.expires_us)
        );
    }
    text
}
