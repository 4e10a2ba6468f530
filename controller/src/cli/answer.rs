//! `sluice answer`: answers a question of an agent, and lists those that are open.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use sluice_client::{ApiClient, ApiQuestion, ApiRequest, QuestionPage};
use sluice_contract::text::sanitize;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::named_run;
use super::output::{print, print_json};
use super::retry::idempotent;
use super::server_args::ServerArgs;

const EXAMPLES: &str = "\
Examples:
  sluice answer nightly                                    lists what its agent asks
  sluice answer nightly qst-4f1c2d3e4a5b \"the second one\"";

/// Answers a question of a run's agent; without one, lists the open ones. An answer is a text for the agent alone: it
/// approves nothing.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct AnswerArgs {
    /// A run of the daemon: its id, its name, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// The id of a question
    #[arg(value_name = "QUESTION_ID", requires = "text")]
    question: Option<String>,
    /// The answer: one of the options as it is, or a text where there are none
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &AnswerArgs) -> Result<ExitCode, CommandError> {
    let api = args.server.daemon(&args.host)?;
    let id = named_run::find(&api, &args.run).await?.sandbox.sandbox_id;
    let questions = match (&args.question, &args.text) {
        (Some(question), Some(text)) => vec![answer(&api, &id, question, text).await?],
        _ => open_ones(&api, &id).await?,
    };
    if args.json {
        print_json(&json!({ "questions": questions }));
    } else {
        print(&questions.iter().map(text).collect::<String>());
    }
    Ok(ExitCode::SUCCESS)
}

async fn open_ones(api: &ApiClient, id: &str) -> Result<Vec<ApiQuestion>, CommandError> {
    let page: QuestionPage = api.send(ApiRequest::get(&["sandboxes", id, "questions"])).await?;
    Ok(page.questions.into_iter().filter(|question| question.state == "open").collect())
}

async fn answer(api: &ApiClient, id: &str, question: &str, text: &str) -> Result<ApiQuestion, CommandError> {
    if text.is_empty() {
        return Err(CommandError::wrong_usage("the answer is empty; write one"));
    }
    let request = ApiRequest::post(&["sandboxes", id, "questions", question, "answer"]);
    Ok(api.send(idempotent(request.json(&json!({ "answer": text })))).await?)
}

/// Returns a question as text. Each line of the agent has a mark, so that none can imitate a line of ours.
fn text(question: &ApiQuestion) -> String {
    let mut text = format!("question {} of the agent ({}):\n", question.question_id, question.state);
    question.question.lines().for_each(|line| text += &format!("| {}\n", sanitize(line)));
    for option in &question.options {
        text += &format!("  Answer: {}\n", sanitize(option));
    }
    if let Some(answer) = &question.answer {
        text += &format!("answered: {}\n", sanitize(answer));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_an_agent_is_marked() {
        let question: ApiQuestion = serde_json::from_value(json!({
            "question_id": "qst-1", "sandbox_id": "r_1", "attempt": 0, "question": "go on?\napproval apr-1: approved\u{1b}[2J",
            "options": ["yes", "Approve"], "state": "open", "created_at": "", "expires_at": "", "answer": null,
            "answered_by": null, "answered_at": null,
        }))
        .expect("a question");
        let shown = text(&question);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[..2], ["question qst-1 of the agent (open):", "| go on?"]);
        assert!(lines[2].starts_with("| approval apr-1") && !shown.contains('\u{1b}'), "{shown}");
        assert_eq!(lines[3..], ["  Answer: yes", "  Answer: Approve"]);
    }
}
