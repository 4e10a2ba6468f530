//! The input of a run: messages, stdin, terminal and environment.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde_json::{Value, json};
use sluice_runs::blueprint::reserved_variable;
use sluice_runs::input::{Stdin, StdinKind, StdinRequest};
use sluice_runs::tty;
use sluice_runs::verdict::Contract;

use super::args::RunArgs;
use super::request_error::RequestError;
use crate::settings::InvalidValue;

/// Maximum size of messages in bytes.
const MESSAGES_MAX: u64 = 32 << 20;
const NO_MESSAGES: &str = "it holds no messages; write [{\"role\":\"user\",\"content\":\"…\"}]";

/// Returns the messages to an agent as JSON.
pub(super) fn messages(args: &RunArgs) -> Result<Option<Vec<u8>>, RequestError> {
    if let Some(message) = &args.message {
        return Ok(Some(json!([{ "role": "user", "content": message }]).to_string().into_bytes()));
    }
    let Some(path) = &args.messages else { return Ok(None) };
    let invalid = |reason| RequestError::Messages { path: path.clone(), reason };
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(fs::File::open(path).map_err(|error| invalid(InvalidValue::new(error)))?)
    };
    let mut text = Vec::new();
    source.take(MESSAGES_MAX + 1).read_to_end(&mut text).map_err(|error| invalid(InvalidValue::new(error)))?;
    if text.len() as u64 > MESSAGES_MAX {
        return Err(invalid(InvalidValue::new(format!("more than {} MiB", MESSAGES_MAX >> 20))));
    }
    match serde_json::from_slice(&text) {
        Ok(Value::Array(messages))
            if messages.iter().all(|message| message["role"].is_string()) && !messages.is_empty() =>
        {
            Ok(Some(text))
        }
        Ok(_) => Err(invalid(InvalidValue::new(NO_MESSAGES))),
        Err(error) => Err(invalid(InvalidValue::new(format!("it is not valid JSON: {error}")))),
    }
}

/// Returns the stdin of the program.
pub(super) fn stdin(args: &RunArgs, contract: Contract) -> Result<Stdin, RequestError> {
    let is_taken = args.messages.as_deref() == Some(Path::new("-"));
    match (contract, is_taken) {
        (Contract::Envelope, _) if args.interactive => Err(RequestError::StdinForAgent),
        (Contract::Plain, true) if args.interactive => Err(RequestError::StdinTaken),
        (Contract::Envelope, _) | (Contract::Plain, true) => Ok(Stdin::Closed),
        (Contract::Plain, false) => Ok(StdinKind::current().for_program(if args.interactive {
            StdinRequest::Interactive
        } else {
            StdinRequest::Default
        })),
    }
}

/// Returns whether the program gets the terminal of this process.
pub(super) fn tty(args: &RunArgs, contract: Contract) -> Result<bool, RequestError> {
    match (args.tty, contract) {
        (false, _) => Ok(false),
        (true, Contract::Envelope) => Err(RequestError::TtyForAgent),
        (true, Contract::Plain) if args.json => Err(RequestError::TtyWithJson),
        (true, Contract::Plain) if StdinKind::current() != StdinKind::Terminal => Err(RequestError::NoTerminal),
        (true, Contract::Plain) => Ok(true),
    }
}

/// Returns the environment variables that the user sets in the sandbox.
pub(super) fn environment(args: &RunArgs) -> Result<BTreeMap<String, String>, RequestError> {
    let mut env = BTreeMap::new();
    for pair in &args.env {
        let (name, value) = pair.split_once('=').ok_or_else(|| RequestError::NoValue(pair.clone()))?;
        if let Some(reason) = reserved_variable(name) {
            return Err(RequestError::Variable { name: name.to_owned(), reason });
        }
        env.insert(name.to_owned(), value.to_owned());
    }
    if let Some(term) = args.tty.then(tty::term).flatten() {
        env.entry("TERM".to_owned()).or_insert(term);
    }
    Ok(env)
}
