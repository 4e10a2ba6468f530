use std::process::Command;

use proptest::prelude::*;

use super::*;

fn named(prefix: &str, ticket: Option<&str>, title: Option<&str>) -> Result<String, BranchNameError> {
    branch_name(&BranchParts { prefix: prefix.parse()?, ticket, title, run_id: "r-0123456789abcdef" })
}

#[test]
fn names_follow_type_ticket_and_title() {
    for (prefix, ticket, title, expected) in [
        ("feature", Some("PROJ-12"), Some("Add a login page"), "feature/PROJ-12-add-a-login-page"),
        ("bug", Some("7"), Some("Crash!!  on --start"), "fix/7-crash-on-start"),
        ("hotfix", Some("A_b.c"), Some("x"), "hotfix/A_b.c-x"),
        ("docs", Some("D-1"), None, "docs/D-1"),
        ("test", Some("D-1"), Some("日本語"), "test/D-1"),
        ("chore", Some("#12"), Some("-- --"), "chore/#12"),
        ("refactor", None, Some("has a title"), "run/r-0123456789abcdef"),
        ("feature", Some("T-1"), Some("exactly twenty five chars"), "feature/T-1-exactly-twenty-five-chars"),
        ("feature", Some("T-1"), Some("exactly twenty five charsX"), "feature/T-1-exactly-twenty-five"),
        ("feature", Some("T-1"), Some("exactly twenty five chars and"), "feature/T-1-exactly-twenty-five-chars"),
        ("feature", Some("T-1"), Some("abcdefghijklmnopqrstuvwxyz0"), "feature/T-1-abcdefghijklmnopqrstuvwxy"),
    ] {
        assert_eq!(named(prefix, ticket, title).as_deref(), Ok(expected));
    }
    assert_eq!(BranchPrefix::default().as_str(), "feature");
}

#[test]
fn a_ticket_outside_of_the_rules_is_refused() {
    let long = "x".repeat(TICKET_MAX + 1);
    for (ticket, fault) in [
        ("", RefFault::Empty),
        ("-rf", RefFault::Hyphen),
        ("@", RefFault::Reserved),
        ("A B", RefFault::Character(' ')),
        ("A\u{7}", RefFault::Character('\u{7}')),
        ("A\u{202e}B", RefFault::Character('\u{202e}')),
        ("A\u{200b}B", RefFault::Character('\u{200b}')),
        ("A~1", RefFault::Character('~')),
        ("A^", RefFault::Character('^')),
        ("A:B", RefFault::Character(':')),
        ("A?", RefFault::Character('?')),
        ("A*", RefFault::Character('*')),
        ("A[", RefFault::Character('[')),
        ("A\\B", RefFault::Character('\\')),
        ("A..B", RefFault::Dots),
        ("A@{1}", RefFault::Reflog),
        ("/A", RefFault::Slash),
        ("A//B", RefFault::Slash),
        (".A", RefFault::Dot),
        ("A/.B", RefFault::Dot),
        ("A.", RefFault::Dot),
        ("A.lock", RefFault::Lock),
        ("A.lock/B", RefFault::Lock),
        (&long, RefFault::Length),
    ] {
        let error = named("feature", Some(ticket), Some("a title")).expect_err(ticket);
        assert_eq!(error, BranchNameError::Ticket(truncate(ticket), fault));
        assert!(!error.to_string().contains(['\u{7}', '\u{202e}']), "{error:?}");
    }
    let unknown = named("epic", Some("A"), None).expect_err("no such type").to_string();
    assert_eq!(unknown, "'epic' is not a type of task; use feature, fix, hotfix, refactor, docs, test or chore");
}

#[test]
fn a_taken_name_gets_a_number() {
    assert_eq!([1, 2, 3].map(|nth| candidate("fix/A", nth)), ["fix/A", "fix/A-2", "fix/A-3"]);
}

#[test]
fn the_default_branch_is_that_of_the_remote() {
    for (of_remote, branches, expected) in [
        (Some("release"), &["main", "release"][..], Some("release")),
        (Some("gone"), &["main", "release"], Some("main")),
        (None, &["trunk", "master", "develop"], Some("master")),
        (None, &["trunk", "x"], Some("trunk")),
        (None, &["x"], None),
    ] {
        assert_eq!(default_branch(of_remote, |branch| branches.contains(&branch)), expected);
    }
}

/// Returns whether git accepts the name of a branch.
fn git_accepts(name: &str) -> bool {
    let output = Command::new("git")
        .args(["check-ref-format", "--branch", name])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CEILING_DIRECTORIES", "/")
        .current_dir("/")
        .output()
        .expect("git runs");
    output.status.success() && output.stdout == format!("{name}\n").as_bytes()
}

#[test]
fn git_accepts_the_same_names() {
    let parts =
        ["a", "-", ".", "..", ".lock", "/", "@", "@{", "HEAD", "~", "\\", "é", "{", "x.lock", "\u{1}", "[", "-1}"];
    let mut names: Vec<String> = vec!["refs/heads/a".into(), "a".repeat(200), "feature/A-1".into()];
    for (first, second) in parts.iter().flat_map(|first| parts.iter().map(move |second| (first, second))) {
        names.push(format!("{first}{second}"));
        names.push(format!("a{first}{second}a"));
    }
    for name in names {
        assert_eq!(ref_fault(&name).is_none(), git_accepts(&name), "{name:?}: {:?}", ref_fault(&name));
    }
}

proptest! {
    #[test]
    fn every_name_is_valid_and_short(
        prefix in 0..BranchPrefix::ALL.len(), ticket in "\\PC{0,12}|[A-Z]{1,5}-[0-9]{1,6}|[.@{/a-]{1,6}", title in "\\PC{0,60}"
    ) {
        let parts = BranchParts {
            prefix: BranchPrefix::ALL[prefix], ticket: Some(&ticket), title: Some(&title), run_id: "r",
        };
        match branch_name(&parts) {
            Ok(name) => {
                let start = format!("{}/{ticket}", parts.prefix);
                prop_assert_eq!(ref_fault(&name), None);
                let slug = name.strip_prefix(&start).expect("the ticket is as given");
                prop_assert!(slug.len() <= SLUG_MAX + 1, "{}", slug);
                prop_assert!(slug.is_empty() || (slug.starts_with('-') && !slug.starts_with("--") && !slug.ends_with('-')));
                prop_assert!(slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
                prop_assert_eq!(ref_fault(&candidate(&name, 12)), None);
            }
            Err(error) => prop_assert!(matches!(error, BranchNameError::Ticket(..)), "{:?}", error),
        }
    }
}
