//! Spend logs that cannot be read, or only with difficulty.

use std::time::Duration;

use sluice_testkit::Upstream;
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::spendlog::{ScriptedSpendLog, unmatched_row};
use sluice_testkit::tls::TlsTerminator;
use sluice_testkit::upstream::Script;

use super::*;

#[tokio::test]
async fn a_tls_upstream_must_have_a_valid_certificate() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let run = spend(&sluice, "ask").await;
    let tls = TlsTerminator::start(&upstream, "DNS:localhost", "2");
    let words = ["reconcile", "--json", "--run", &run, "--upstream", &tls.url("localhost")];

    let ran = sluice.command(words).env("SSL_CERT_FILE", tls.ca()).finish().await.expect(0);
    assert_eq!(classes(&ran.value()), counts([("matched", 1)]));
    let asked = log.asked().len();

    let other = TlsTerminator::start(&upstream, "DNS:localhost", "2");
    let ran = sluice.command(words).env("SSL_CERT_FILE", other.ca()).finish().await.expect(125);
    assert!(ran.stderr.contains("certificate"), "{}", ran.stderr);
    let elsewhere = tls.url("127.0.0.1");
    let words = ["reconcile", "--run", &run, "--upstream", &elsewhere];
    let ran = sluice.command(words).env("SSL_CERT_FILE", tls.ca()).finish().await.expect(125);
    assert!(ran.stderr.contains("certificate"), "{}", ran.stderr);
    assert_eq!(log.asked().len(), asked);
}

#[tokio::test]
async fn temporary_errors_are_tried_again() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let run = spend(&sluice, "ask").await;
    for faults in [
        vec![Script::error(500, "boom"), Script::error(503, "starting")],
        vec![Script::reset(), Script::close()],
        vec![Script::json(200, json!({"data": [], "total": 0})).cut_after(0)],
        vec![Script::json(200, json!({"data": [], "total": 3}))],
    ] {
        log.next(faults);
        let (code, outcome) = reconcile(&sluice, &["--run", &run]).await;
        assert_eq!((code, classes(&outcome)), (0, counts([("matched", 1)])));
    }
}

#[tokio::test]
async fn an_invalid_spend_log_is_reported_and_posts_nothing() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let elsewhere = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = spend(&sluice, "stream").await;
    let no_database = json!({"error": {"message": "Prisma Client is not initialized", "code": "401"}});
    let no_admin =
        json!({"error": {"message": "Only proxy admin can be used to do this. Key Hash = abcd", "code": "401"}});
    let deep = "[".repeat(100_000);
    let location = format!("{}/spend/logs/v2", elsewhere.url());
    for (script, why) in [
        (Script::json(401, no_database), "keeps no spend log: it has no database"),
        (Script::json(404, json!({"detail": "Not Found"})), "keeps no spend log: status 404"),
        (Script::json_with(307, &[("location", &location)], json!({})), "the key is not sent elsewhere"),
        (Script::json(401, no_admin), "it takes an admin's key; give one that may by --spend-key-file"),
        (Script::json(400, json!({"error": {"message": "Invalid\u{7} date"}})), "answered with status 400;"),
        (Script::body(200, "text/html", "<html>hello</html>"), "no page of a spend log"),
        (Script::body(200, "application/json", deep.as_bytes()), "no page of a spend log"),
        (
            Script::body(200, "application/json", &b"{\"data\":[],\"total\":0,\"total\":0}"[..]),
            "a member is missing, doubled, or not of its kind",
        ),
        (Script::json(200, json!([])), "no page of a spend log"),
        (Script::json(200, json!({"data": 7, "total": 1})), "no page of a spend log"),
    ] {
        log.next([script]);
        let ran = sluice.command(["reconcile", "--run", &run]).finish().await.expect(125);
        assert!(ran.stderr.contains(why) && ran.stdout.is_empty(), "{why}: {}", ran.stderr);
        assert!(!ran.stderr.contains("abcd") && !ran.stderr.contains(sluice.key()), "{}", ran.stderr);
    }
    assert_eq!(elsewhere.requests().len(), 0, "the key went to where a redirect led");
    assert_eq!(sluice.sql("SELECT count(*) FROM entries WHERE source_system = 'litellm-spend'").await, "[[0]]");
    log.next(vec![Script::json(200, json!({"data": [], "total": 3})); 5]);
    let ran = sluice.command(["reconcile", "--run", &run]).finish().await.expect(125);
    assert!(ran.stderr.contains("says that it has 3 rows of these seconds, and gave 0"), "{}", ran.stderr);
    log.next(vec![Script::error(500, sluice.key()); 4]);
    let ran = sluice.command(["reconcile", "--run", &run]).finish().await.expect(125);
    assert!(ran.stderr.contains("answered with status 500;") && !ran.stderr.contains(sluice.key()), "{}", ran.stderr);
    drop(upstream);
    let ran = sluice.command(["reconcile", "--run", &run]).finish().await.expect(125);
    assert!(ran.stderr.contains("cannot connect to LiteLLM"), "{}", ran.stderr);
}

#[tokio::test]
async fn wrong_usage_is_reported_before_any_query() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let ran = sluice.command(["reconcile"]).finish().await.expect(2);
    assert!(ran.stderr.contains("--state-dir"), "{}", ran.stderr);
    spend(&sluice, "ask").await;
    for (words, why) in [
        (&["--run", "nobody"][..], "there is no run nobody"),
        // An empty account would match nothing, and report agreement.
        (&["--account", ""], "--account"),
        (&["--since", "soon"], "--since soon"),
        (&["--since", "2999-01-01"], "--since is in the future"),
        (&["--run", "r", "--account", "a"], "cannot be used with"),
        (&["--watch", "1ms"], "too short"),
        (&["--spend-key-file", "sk-1234"], "no '/'"),
    ] {
        let ran = sluice.command(["reconcile"]).args(words).finish().await.expect(2);
        assert!(ran.stderr.contains(why), "{words:?}: {}", ran.stderr);
    }
    let ran = sluice.command(["reconcile"]).without("SLUICE_UPSTREAM").finish().await.expect(2);
    assert!(ran.stderr.contains("--upstream"), "{}", ran.stderr);
    let ran = sluice.command(["reconcile"]).without("SLUICE_KEY_FILE").finish().await.expect(2);
    assert!(ran.stderr.contains("--spend-key-file"), "{}", ran.stderr);
    assert_eq!(log.asked(), []);
}

#[tokio::test]
async fn many_rows_are_complete_while_more_arrive() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend(&sluice, "ask").await;
    let at = |number: u64| Duration::from_millis(60_000 + number * 1500);
    let rows = (0..1300).map(|number| unmatched_row(&format!("past-{number}"), "acct-1", at(number)));
    log.edit(|all| all.extend(rows));
    log.cap(1000);
    log.arrive((0..500).map(|number| unmatched_row(&format!("more-{number}"), "acct-1", at(number * 2))).collect());

    let (code, outcome) = reconcile(&sluice, &["--account", "acct-1", "--since", "1h"]).await;

    assert_eq!((code, classes(&outcome)["matched"]), (122, 1));
    let found = classes(&outcome)["missing_here"];
    let asked = log.asked();
    // All rows that were there are found once, and no later row is found twice.
    assert!((1300..=1300 + asked.len() as u64).contains(&found), "{found} of {} questions", asked.len());
    let mut names: Vec<_> = mismatches(&outcome).iter().map(|finding| finding["request_ids"].to_string()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len() as u64, found);
    assert_eq!(names.iter().filter(|name| name.contains("past")).count(), 1300);
    assert!(asked.iter().all(|question| question.page == 1), "no page was counted off");
    assert!(asked.iter().all(|question| question.end_user == "acct-1" && question.page_size <= 1000));

    // More than one page of rows in one second can only be read page by page.
    let mut one = unmatched_row("", "acct-1", Duration::from_secs(90));
    let second = one["startTime"].as_str().and_then(|time| time.get(..19)).expect("to the second").to_owned();
    one["startTime"] = json!(second + ".500000+00:00");
    log.arrive(Vec::new());
    log.cap(10_000);
    log.edit(|all| {
        let burst = (0..1100).map(|number| {
            let mut row = one.clone();
            row["request_id"] = json!(format!("burst-{number}"));
            row
        });
        *all = burst.collect();
    });
    let words = ["--account", "acct-1", "--since", "1h", "--no-wait"];
    let (_, outcome) = reconcile(&sluice, &words).await;
    assert_eq!(classes(&outcome)["missing_here"], 1100);
    assert_eq!(log.asked().iter().map(|question| question.page).max(), Some(3));
    // The log has more rows in that second than it counts.
    log.cap(1000);
    let ran = sluice.command(["reconcile"]).args(words).finish().await.expect(125);
    assert!(ran.stderr.contains("more rows than it counts, in one second"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_separate_key_may_read_the_spend_log() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let run = spend(&sluice, "ask").await;
    let own = sluice.file("spend.key", "sk-reads-the-log\n");
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");

    reconcile(&sluice, &["--run", &run]).await;
    reconcile(&sluice, &["--run", &run, "--spend-key-file", &own]).await;

    let keys: Vec<_> = log.asked().iter().map(|question| question.authorization.clone()).collect();
    assert_eq!(keys, [format!("Bearer {}", sluice.key()), "Bearer sk-reads-the-log".to_owned()]);
}

#[tokio::test]
async fn preflight_reads_the_spend_log_by_its_key() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let own = sluice.file("spend.key", "sk-reads-the-log\n");
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
    let check = async || {
        let preflight = sluice.command(["preflight", "--json"]).env("SLUICE_SPEND_KEY_FILE", &own);
        let said = preflight.finish().await.expect(0).value();
        said["checks"].as_array().and_then(|checks| checks.last().cloned()).expect("a list")
    };

    let good = check().await;
    log.next([Script::json(401, json!({"error": {"message": "Only proxy admin can be used"}}))]);
    let bad = check().await;

    assert_eq!((&good["name"], &good["status"]), (&json!("spend log"), &json!("pass")));
    assert_eq!((&bad["name"], &bad["status"]), (&json!("spend log"), &json!("warn")));
    assert!(bad["detail"].as_str().is_some_and(|text| text.contains("--spend-key-file")), "{bad}");
    assert!(log.asked().iter().all(|question| question.authorization == "Bearer sk-reads-the-log"));
}

#[tokio::test]
async fn a_watch_prints_each_round_until_its_end() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let run = spend(&sluice, "ask").await;
    log.next([Script::json(400, json!({}))]);
    let live = sluice.command(["reconcile", "--run", &run, "--watch", "1s", "--json"]).spawn();
    live.says("status 400").await;
    live.prints("\"ok\":true").await;
    log.edit(|rows| rows[0]["spend"] = json!(1));
    live.prints("amount_differs\":1").await;
    live.signal(nix::sys::signal::Signal::SIGTERM);
    let ran = live.finish().await.expect(122);
    let rounds: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("one a line")).collect();
    assert_eq!((&rounds[0]["ok"], &rounds[0]["error_code"]), (&json!(false), &json!("failed")));
    assert_eq!((&rounds[1]["ok"], &rounds[rounds.len() - 1]["ok"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn real_litellm_reports_missing_database_or_wrong_key() {
    let litellm = LiteLlm::shared().await;
    let sluice = Sluice::with(litellm.url(), litellm.key());
    sluice.run(["--quiet", "--model", "gpt-4o-mini", "hello"]).finish().await.expect(0);
    let ran = sluice.command(["reconcile"]).finish().await.expect(125);
    assert!(ran.stderr.contains("keeps no spend log: it has no database;"), "{}", ran.stderr);
    // A request that needs no database was refused for the key.
    let with_another_key = Sluice::with(litellm.url(), "sk-another-0123456789");
    let words = ["--model", "gpt-4o-mini", "--max-cost-usd", "1", "hello"];
    let ran = with_another_key.run(words).finish().await.expect(125);
    assert!(ran.stderr.contains("it takes its master key alone, and this is another"), "{}", ran.stderr);

    let litellm = LiteLlm::with_spend_log().await;
    let key = litellm.mint(json!({"models": ["gpt-4o-mini"]})).await;
    let reader = litellm.mint(json!({"allowed_routes": ["/spend/logs/v2"]})).await;
    let sluice = Sluice::with(litellm.url(), &key);
    let account = sluice_testkit::controller::unique_run_id("acct");
    let words = ["--quiet", "--model", "gpt-4o-mini", "--account", &account, "hello"];
    sluice.run(words).finish().await.expect(0);
    let ran = sluice.command(["reconcile"]).finish().await.expect(125);
    assert!(ran.stderr.contains("it takes an admin's key; give one"), "{}", ran.stderr);
    let file = sluice.file("reader.key", &reader);
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
    let (code, outcome) = reconcile(&sluice, &["--spend-key-file", &file]).await;
    assert_eq!((code, classes(&outcome)), (0, counts([("matched", 1)])));
}
