use super::*;

fn configured(text: &str) -> Result<Vec<CatalogueAgent>, AgentEntryError> {
    read(text.parse::<Table>().expect("it is TOML").remove("agents").expect("it has agents"))
}

fn filled<'a>(message: Option<&'a str>, models: &'a [String]) -> Placeholders<'a> {
    Placeholders { message, models }
}

#[test]
fn the_catalogue_has_the_agents_that_the_guide_names() {
    let ids: Vec<_> = catalogue().into_iter().map(|agent| agent.agent_id).collect();
    assert_eq!(ids, [DEFAULT_AGENT, "sandbox:claude", "sandbox:codex", "sandbox:aider", "sandbox:opencode"]);
}

#[test]
fn every_plain_agent_takes_message_and_model() {
    let models = ["big".to_owned(), "small".to_owned()];
    for agent in catalogue().iter().filter(|agent| agent.agent_id != DEFAULT_AGENT) {
        let argv = agent.arguments(filled(Some("-fix {model}"), &models));
        let id = &agent.agent_id;
        assert!(agent.output == Contract::Plain && agent.takes_message(), "{id}");
        assert!(argv.last().is_some_and(|last| last.ends_with("-fix {model}")), "{id}: {argv:?}");
        assert!(argv.iter().any(|argument| argument.ends_with("big")), "{id}: {argv:?}");
        assert!(agent.image.is_some() && agent.build.is_some() && agent.memory.is_some(), "{id}");
    }
}

#[test]
fn a_message_with_a_dash_is_not_a_flag() {
    for agent in catalogue().iter().filter(|agent| agent.takes_message()) {
        let argv = agent.arguments(filled(Some("--help"), &["m".to_owned()]));
        let after_dashes = argv.iter().rev().nth(1).is_some_and(|argument| argument == "--");
        assert!(after_dashes || argv.last().is_some_and(|last| last == "--message=--help"), "{argv:?}");
    }
}

#[test]
fn an_argument_without_its_placeholders_value_is_left_out() {
    let agent = CatalogueAgent {
        argv: ["a", "--m={model}", "{x} {", "{message}"].map(str::to_owned).into(),
        ..catalogue().remove(0)
    };
    assert_eq!(agent.arguments(filled(None, &[])), ["a", "{x} {"]);
    let models = ["m".to_owned()];
    assert_eq!(agent.arguments(filled(Some("{model}"), &models)), ["a", "--m=m", "{x} {", "{model}"]);
}

#[test]
fn the_small_model_is_the_second_one() {
    let agents = catalogue();
    let claude = find(&agents, "claude").expect("it is in the catalogue");
    let haiku = |models: &[String]| claude.variables(filled(None, models)).remove("ANTHROPIC_DEFAULT_HAIKU_MODEL");
    assert_eq!(haiku(&["a".to_owned(), "b".to_owned()]).as_deref(), Some("b"));
    assert_eq!(haiku(&["a".to_owned()]).as_deref(), Some("a"));
    assert_eq!(haiku(&[]), None);
}

#[test]
fn an_entry_replaces_the_fields_that_it_states() {
    let agents = configured(
        "[[agents]]\nagentId = \"claude\"\nimage = \"mine:1\"\ntimeout = \"2h\"\nenv = { DISABLE_COMPACT = \"1\" }",
    );
    let agents = agents.expect("it is right");
    let (claude, shipped) = (find(&agents, "claude").expect("it is there"), catalogue().remove(1));
    let mut env = shipped.env.clone();
    env.insert("DISABLE_COMPACT".to_owned(), "1".to_owned());
    let expected =
        CatalogueAgent { image: Some("mine:1".into()), build: None, timeout: Some("2h".into()), env, ..shipped };
    assert_eq!((claude, agents.len()), (&expected, 5));
}

#[test]
fn a_new_image_needs_its_own_build_command() {
    let agents = configured("[[agents]]\nagentId = \"claude\"\nbuild = \"make it\"\nimage = \"mine:1\"");
    let claude = find(&agents.expect("it is right"), "claude").cloned().expect("it is there");
    assert_eq!(claude.build.as_deref(), Some("make it"));
}

#[test]
fn an_agent_is_found_by_id_and_by_name() {
    let agents = configured("[[agents]]\nagentId = \"coder\"\nargv = [\"coder\"]").expect("it is right");
    let found = |asked| find(&agents, asked).map(|agent| agent.agent_id.as_str());
    assert_eq!([found("codex"), found("sandbox:codex")], [Some("sandbox:codex"); 2]);
    assert_eq!([found("coder"), found("sandbox:coder"), found("")], [Some("coder"), None, None]);
}

#[test]
fn an_invalid_entry_is_named() {
    for (text, expected) in [
        ("[[agents]]\nagentId = \"x\"", "needs an agentId and an argv"),
        ("[[agents]]\nargv = [\"x\"]", "missing field `agentId`"),
        ("[[agents]]\nagentId = \"x\"\nargv = [\"x\"]\nspeed = 1", "unknown field `speed`"),
        ("[[agents]]\nagentId = \"x\"\nargv = [\"x\"]\noutput = \"loud\"", "unknown variant `loud`"),
        ("[[agents]]\nagentId = \"x\"\nargv = [\"x\"]\nenv = { OPENAI_API_KEY = \"k\" }", "env of x: OPENAI_API_KEY"),
        ("agents = 1", "write each agent as a table"),
    ] {
        let error = configured(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }
}
