//! The input of a run: messages, stdin and terminal.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde_json::{Value, json};
use sluice_runs::input::{Stdin, StdinKind, StdinRequest};
use sluice_runs::verdict::Contract;

use super::args::RunArgs;
use super::request_error::RequestError;
use crate::settings::InvalidValue;

/// Maximum size of messages in bytes.
const MESSAGES_MAX: u64 = 32 << 20;
const NO_MESSAGES: &str = "it holds no messages; write [{\"role\":\"user\",\"content\":\"…\"}]";

/// The task of an agent.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    /// The one message, if it is not given as JSON.
    pub(super) message: Option<String>,
    /// All messages as JSON.
    pub(super) messages: Option<Vec<u8>>,
    /// True if it was read from stdin.
    pub(super) from_stdin: bool,
}

/// Returns the task of an agent. A program after `--` has one only if a flag names it.
pub(super) fn prompt(args: &RunArgs) -> Result<Prompt, RequestError> {
    let is_dash = args.message.as_deref() == Some("-");
    let has_none = args.message.is_none() && args.message_file.is_none() && args.messages.is_none();
    let reads_pipe = has_none && args.argv.is_empty() && !args.interactive && StdinKind::current() == StdinKind::Data;
    let file_is_stdin = args.message_file.as_deref() == Some(Path::new("-"));
    let from_stdin = is_dash || reads_pipe || file_is_stdin;
    let message = if from_stdin {
        Some(message("stdin", &mut io::stdin())?).filter(|message| !message.is_empty() || !reads_pipe)
    } else if let Some(path) = &args.message_file {
        let from = format!("--message-file {}", path.display());
        let mut file = fs::File::open(path)
            .map_err(|error| RequestError::Message { from: from.clone(), reason: InvalidValue::new(error) })?;
        Some(message(&from, &mut file)?)
    } else {
        args.message.clone()
    };
    if let Some(message) = message {
        let messages = json!([{ "role": "user", "content": message }]).to_string().into_bytes();
        return Ok(Prompt { message: Some(message), messages: Some(messages), from_stdin });
    }
    let from_stdin = args.messages.as_deref() == Some(Path::new("-"));
    Ok(Prompt { message: None, messages: messages(args)?, from_stdin })
}

/// Reads a message, without the line break at its end.
fn message(from: &str, source: &mut dyn Read) -> Result<String, RequestError> {
    let invalid = |reason| RequestError::Message { from: from.to_owned(), reason };
    let mut text = Vec::new();
    source.take(MESSAGES_MAX + 1).read_to_end(&mut text).map_err(|error| invalid(InvalidValue::new(error)))?;
    if text.len() as u64 > MESSAGES_MAX {
        return Err(invalid(InvalidValue::new(format!("the message has more than {} MiB", MESSAGES_MAX >> 20))));
    }
    let text = String::from_utf8(text).map_err(|_| invalid(InvalidValue::new("the message is not UTF-8")))?;
    Ok(text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text)).to_owned())
}

/// Returns the messages to an agent as JSON.
fn messages(args: &RunArgs) -> Result<Option<Vec<u8>>, RequestError> {
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
pub(super) fn stdin(args: &RunArgs, contract: Contract, prompt: &Prompt) -> Result<Stdin, RequestError> {
    let is_taken = prompt.from_stdin;
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
