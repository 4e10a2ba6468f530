//! Preflight names the cause: TLS where TLS fails, and the upstream's own status.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::{Forge, Script, Sluice, Upstream};

use super::{checks, detail};

#[tokio::test]
async fn tls_to_a_plain_port_is_named() {
    let upstream = Upstream::json(200, json!({"data": []})).start().await;
    let sluice = Sluice::to(&upstream);
    let https = upstream.url().replace("http://", "https://");

    let ran = sluice.command(["preflight", "--json", "--upstream", &https]).finish().await.expect(1);

    let detail = detail(&ran, "upstream");
    assert!(detail.contains(&https) && detail.contains("TLS fails") && detail.contains("write http://"), "{detail}");
    assert!(!ran.stdout.contains("key_file"), "{}", ran.stdout);
}

#[tokio::test]
async fn the_upstreams_own_status_is_reported() {
    for (status, result, words) in [
        (401, 1, "refused the key with status 401"),
        (403, 1, "refused the key with status 403"),
        (404, 0, "has no GET /v1/models"),
        (503, 1, "with status 503"),
        (302, 1, "with status 302"),
    ] {
        let upstream = Upstream::json(status, json!({"error": {"message": "no"}})).start().await;
        let sluice = Sluice::to(&upstream);

        let ran = sluice.command(["preflight", "--json"]).finish().await.expect(result);

        let detail = detail(&ran, "upstream key");
        assert!(detail.contains(words) && detail.contains(upstream.url()), "{status}: {detail}");
        let rest = detail.replace(upstream.url(), "");
        assert!(!rest.contains("502"), "{detail}");
    }
}

#[tokio::test]
async fn models_that_the_upstream_does_not_list_are_named() {
    let upstream = Upstream::with(|request| match request.target.as_str() {
        // As a LiteLLM lists its wildcards: only if a query asks for them.
        "/v1/models" => Script::models(["gpt-a", "openai/gpt-b"]),
        "/v1/models?return_wildcard_routes=true" => Script::models(["gpt-a", "openai/gpt-b", "openai/*"]),
        _ => Script::json(404, json!({"error": "no such page"})),
    });
    let upstream = upstream.start().await;
    let sluice = Sluice::to(&upstream);
    let settings = "model = ['gpt-a', 'openai/gpt-c', 'gpt-x']\n[[profiles]]\nagent = 'codex'\nmodel = 'gpt-y'\n";
    let file = sluice.file("sluice.toml", settings);

    let ran = sluice.command(["preflight", "--json"]).finish().await.expect(0);

    assert!(checks(&ran).contains(&("upstream key".to_owned(), "warn".to_owned())), "{}", ran.stdout);
    let named = format!("does not list gpt-x (model in {file}:1), gpt-y (model in {file}:4) among the models");
    let found = detail(&ran, "upstream key");
    assert!(found.contains(&named), "{found}");
    // The variable replaces the models of the file.
    let listed = sluice.command(["preflight", "--json"]).env("SLUICE_MODEL", "gpt-a openai/gpt-c");
    let ran = listed.finish().await.expect(0);
    assert_eq!(detail(&ran, "upstream key"), format!("{} takes it", upstream.url()));
}

#[tokio::test]
async fn a_model_that_litellm_lacks_is_a_warning() {
    let litellm = LiteLlm::shared().await;
    let sluice = Sluice::with(litellm.url(), litellm.key());
    for (models, words) in [
        ("gpt-4o claude-haiku-4-5", " takes it"),
        ("gpt-4o gpt-nope", "does not list gpt-nope (SLUICE_MODEL) among the models of this key"),
    ] {
        let ran = sluice.command(["preflight", "--json"]).env("SLUICE_MODEL", models).finish().await.expect(0);

        let detail = detail(&ran, "upstream key");
        assert!(detail.contains(words) && detail.contains("gpt-nope") == models.contains("gpt-nope"), "{detail}");
    }
}

#[tokio::test]
async fn a_litellm_without_a_database_has_no_budgets() {
    let litellm = LiteLlm::shared().await;

    let ran = Sluice::with(litellm.url(), litellm.key()).command(["preflight", "--json"]).finish().await;

    assert_eq!(detail(&ran, "litellm budgets"), "LiteLLM has no budgets, because it has no database");
}

#[tokio::test]
async fn the_key_of_an_app_is_checked() {
    let (upstream, forge) = (Upstream::json(200, json!({"data": []})).start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.app_project(""));

    let ran = sluice.command(["preflight", "--json"]).finish().await.expect(0);

    assert_eq!(detail(&ran, "credentials"), "1 can be read, by their owner alone");
    assert_eq!(detail(&ran, "token scopes"), "project work: the scope workflow is not among them");
    assert_eq!(forge.app_tokens().await.len(), 1, "the app works");
    std::fs::set_permissions(forge.app_key(), std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    let ran = sluice.command(["preflight", "--json"]).finish().await.expect(1);
    let expected = "project work: app_key of the project cannot be used: its file has mode 644; run chmod 600 on it";
    assert_eq!(detail(&ran, "credentials"), expected);
    assert_eq!(forge.app_tokens().await.len(), 1, "a key that others can read is not used");
}

#[tokio::test]
async fn a_token_that_may_change_workflows_is_reported() {
    let (upstream, forge) = (Upstream::json(200, json!({"data": []})).start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.project(""));
    for (scopes, words) in [
        ("repo, workflow", "project work: the token has the scope workflow, so a push can change what CI runs"),
        ("repo, read:org", "project work: the scope workflow is not among them"),
    ] {
        forge.set_scopes(scopes);

        let ran = sluice.command(["preflight", "--json"]).finish().await.expect(0);

        assert!(detail(&ran, "token scopes").starts_with(words), "{scopes}: {}", detail(&ran, "token scopes"));
    }
    let shown = sluice.command(["preflight"]).finish().await.expect(0);
    assert!(!shown.stdout.contains(forge.token()) && !shown.stderr.contains(forge.token()), "{}", shown.stdout);
}

#[tokio::test]
async fn a_host_user_with_the_sandboxes_id_is_reported() {
    let upstream = Upstream::json(200, json!({"data": []})).start().await;
    let passwd = std::fs::read_to_string("/etc/passwd").expect("every host has it");
    let has_user = passwd.lines().any(|line| line.split(':').nth(2) == Some("1001"));

    let ran = Sluice::to(&upstream).command(["preflight", "--json"]).finish().await.expect(0);

    let detail = detail(&ran, "sandbox user");
    assert_eq!(detail.contains("of this host has the id 1001"), has_user, "{detail}");
}
