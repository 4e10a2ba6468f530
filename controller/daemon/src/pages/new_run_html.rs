//! The form of a new run.
//!
//! Pure.

use std::fmt::Write;

use super::html::escape;

/// Choices that the host offers for a run of this owner. Each pair is the default value and the highest one.
pub(super) struct Choices {
    /// Ids and names of programs.
    pub(super) programs: Vec<(String, String)>,
    /// Registered agents of the owner.
    pub(super) agents: Vec<String>,
    /// Model of a run that names none.
    pub(super) default_model: Option<String>,
    /// Models that the host names.
    pub(super) models: Vec<String>,
    /// Projects of the owner.
    pub(super) projects: Vec<String>,
    /// Projects of the owner that have a repository.
    pub(super) repositories: Vec<String>,
    pub(super) timeout_s: (u64, u64),
    pub(super) memory: (u64, u64),
    pub(super) cpu_millis: (u64, u64),
    pub(super) max_cost: CostChoice,
    /// True if a call at a cap waits for a person by default.
    pub(super) asks: bool,
}

/// Caps of cost, in dollars.
pub(super) struct CostChoice {
    pub(super) standard: Option<String>,
    pub(super) most: Option<String>,
}

/// Types of the work on a repository.
const BRANCH_TYPES: [&str; 7] = ["feature", "fix", "hotfix", "refactor", "docs", "test", "chore"];

/// Returns the form. Its script sends it, and writes the commands that do the same.
pub(super) fn form(choices: &Choices) -> String {
    let mut main = String::from(
        "<noscript><p>This form needs JavaScript. <code>sluice run -d</code> creates a sandbox in a terminal.</p></noscript>\n\
         <div class=\"columns\"><form id=\"new-run\" class=\"panel stack\" autocomplete=\"off\">\n",
    );
    let programs: Vec<_> = choices.programs.iter().map(|(id, name)| (id.as_str(), name.as_str())).collect();
    select(&mut main, "graph_id", "Agent", "The program that works on the task.", &programs);
    main.push_str(
        "<label class=\"field\" for=\"task\"><span>Task</span><textarea id=\"task\" name=\"task\" rows=\"6\" required \
         maxlength=\"100000\" aria-describedby=\"task-note\"></textarea></label>\
         <p class=\"small quiet\" id=\"task-note\">The message of the user with which the agent begins.</p>\n",
    );
    let first = choices.default_model.as_deref().unwrap_or_default();
    input(&mut main, "model", "Model", first, "Calls that name no model have this one.", "list=\"models\"");
    let options: String = choices.models.iter().map(|model| format!("<option value=\"{}\">", escape(model))).collect();
    let _ = writeln!(main, "<datalist id=\"models\">{options}</datalist>");
    input(
        &mut main,
        "name",
        "Name",
        "",
        "Unique among your live runs: small letters, digits, . _ -",
        "maxlength=\"63\"",
    );
    named(&mut main, "agent_id", "On behalf of", "A registered agent, whose account pays.", &choices.agents);
    named(&mut main, "project", "Project", "A project of the host.", &choices.projects);
    repository(&mut main, &choices.repositories);
    limits(&mut main, choices);
    main.push_str(
        "<p id=\"refusal\" role=\"alert\" class=\"fault-text\"></p>\
         <p class=\"submit\"><button class=\"primary\">Create the sandbox</button></p></form>\n\
         <section class=\"panel stack\" aria-labelledby=\"same\"><h2 id=\"same\">The same in a terminal</h2>\
         <div id=\"commands\"><p class=\"quiet\">The commands come with the task.</p></div></section></div>\n",
    );
    main
}

/// Adds the fields for a repository, if a project of the owner has one. The script shows them when such a project is
/// chosen.
fn repository(main: &mut String, projects: &[String]) {
    if projects.is_empty() {
        return;
    }
    let names = escape(&projects.join(" "));
    let _ = writeln!(
        main,
        "<fieldset class=\"stack\" id=\"repository\" data-projects=\"{names}\" hidden><legend>Repository of the project</legend>\
         <label><input type=\"checkbox\" id=\"on_repository\" name=\"on_repository\" class=\"check\"> Work on a branch of it</label>"
    );
    input(main, "base", "Base branch", "the default one", "Branch that the run begins with.", "maxlength=\"200\"");
    input(main, "ticket", "Ticket", "", "For the name of the branch, such as ABC-12.", "maxlength=\"100\"");
    input(main, "title", "Title", "", "For the name of the branch, and for the pull request.", "maxlength=\"200\"");
    let types: Vec<_> = [("", "none")].into_iter().chain(BRANCH_TYPES.map(|name| (name, name))).collect();
    select(main, "type", "Type", "The first part of the branch.", &types);
    main.push_str(
        "<label><input type=\"checkbox\" id=\"pull_request\" name=\"pull_request\" class=\"check\"> Open a draft of a pull \
         request when the branch is published</label></fieldset>\n",
    );
}

fn limits(main: &mut String, choices: &Choices) {
    main.push_str("<fieldset class=\"stack\"><legend>Limits</legend>\n");
    let (standard, most) = choices.timeout_s;
    input(main, "timeout", "Time", &format!("{standard}s"), &format!("At most {most} seconds, such as 10m."), "");
    let (standard, most) = choices.memory;
    let mib = |bytes: u64| bytes >> 20;
    input(main, "memory", "Memory", &format!("{}m", mib(standard)), &format!("At most {} MiB.", mib(most)), "");
    let (standard, most) = choices.cpu_millis;
    let cpus = |millis: u64| format!("{}.{:03}", millis / 1000, millis % 1000);
    let cpus = |millis: u64| cpus(millis).trim_end_matches('0').trim_end_matches('.').to_owned();
    input(main, "cpus", "Processors", &cpus(standard), &format!("At most {}.", cpus(most)), "");
    let CostChoice { standard, most } = &choices.max_cost;
    let note = most
        .as_ref()
        .map_or_else(|| "Dollars for all attempts.".to_owned(), |most| format!("At most ${most} for all attempts."));
    input(main, "max_cost_usd", "Cost", standard.as_deref().unwrap_or("no cap"), &note, "inputmode=\"decimal\"");
    let (first, second) = if choices.asks { ("ask", "refuse") } else { ("refuse", "ask") };
    let word = |word: &str| if word == "ask" { "Ask a person" } else { "Refuse the call" };
    select(main, "on_cap", "At a cap", "", &[(first, word(first)), (second, word(second))]);
    main.push_str("</fieldset>\n");
}

fn input(main: &mut String, name: &str, label: &str, placeholder: &str, note: &str, more: &str) {
    let _ = writeln!(
        main,
        "<label class=\"field\" for=\"{name}\"><span>{label}</span><input id=\"{name}\" name=\"{name}\" placeholder=\"{}\" \
         aria-describedby=\"{name}-note\" {more}></label><p class=\"small quiet\" id=\"{name}-note\">{}</p>",
        escape(placeholder),
        escape(note)
    );
}

fn select(main: &mut String, name: &str, label: &str, note: &str, options: &[(&str, &str)]) {
    let _ = write!(
        main,
        "<label class=\"field\" for=\"{name}\"><span>{label}</span><select id=\"{name}\" name=\"{name}\">"
    );
    for (value, words) in options {
        let _ = write!(main, "<option value=\"{}\">{}</option>", escape(value), escape(words));
    }
    let _ = writeln!(main, "</select></label><p class=\"small quiet\">{note}</p>");
}

/// Adds a selection of one of these names or none, if there are any names.
fn named(main: &mut String, name: &str, label: &str, note: &str, names: &[String]) {
    if names.is_empty() {
        return;
    }
    let options: Vec<_> =
        [("", "none")].into_iter().chain(names.iter().map(|name| (name.as_str(), name.as_str()))).collect();
    select(main, name, label, note, &options);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_the_choices_of_its_owner() {
        let choices = Choices {
            programs: vec![("sandbox:agent".to_owned(), "<Agent>".to_owned())],
            agents: Vec::new(),
            default_model: None,
            models: vec!["a\"b".to_owned()],
            projects: vec!["web".to_owned()],
            repositories: vec!["web".to_owned()],
            timeout_s: (120, 3600),
            memory: (512 << 20, 4 << 30),
            cpu_millis: (1500, 4000),
            max_cost: CostChoice { standard: None, most: Some("5".to_owned()) },
            asks: true,
        };
        let page = form(&choices);
        for part in ["&lt;Agent&gt;", "a&quot;b", ">web<", "placeholder=\"1.5\"", "At most 4096 MiB.", "At most $5"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(page.contains("data-projects=\"web\" hidden") && page.contains(">hotfix<"), "{page}");
        assert!(!page.contains("agent_id") && page.find("Ask a person") < page.find("Refuse the call"));
    }
}
