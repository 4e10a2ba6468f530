//! Budgets of a call of the shipped program: instructions and allocations, counted as in `make bench`.
//!
//! The tests need the feature `cost`, because a plain `cargo test` has no optimised program. `make test` builds the
//! shipped program, and names it in `SLUICE_PROXY_BIN`. A count depends on the program alone, so the budgets hold on a
//! busy machine too.

use std::borrow::Cow;
use std::process::Command;
use std::sync::LazyLock;

use serde::Deserialize;
use sluice_testkit::TempDir;

/// The counted costs of a call, in modes of the bench. A change that makes a call cheaper must lower them here.
/// To count: `make bench BENCH='--only instructions --contenders sluice'`.
const COUNTED: [CallCost; 3] = [
    CallCost { mode: Cow::Borrowed("chat-1"), instructions: 109_400.0, sha256: 66_700.0, allocations: 80.0 },
    CallCost { mode: Cow::Borrowed("burst-100"), instructions: 334_700.0, sha256: 66_700.0, allocations: 88.0 },
    CallCost { mode: Cow::Borrowed("body-20k"), instructions: 209_200.0, sha256: 67_100.0, allocations: 88.0 },
];
/// Allowed factor of instructions. On one machine they differ by less than 1 %, also when it is busy; on another
/// machine, the C library may use other instructions to copy.
const MARGIN: f64 = 1.10;
/// Allowed number of additional allocations. They differ only when bytes arrive in other pieces.
const MORE: f64 = 1.0;

/// Costs of a call, as the bench writes them.
#[derive(Debug, Deserialize)]
struct CallCost {
    mode: Cow<'static, str>,
    /// Instructions without those of SHA-256.
    instructions: f64,
    /// Instructions of SHA-256 in software, since valgrind has no hardware for it.
    sha256: f64,
    allocations: f64,
}

/// All tests share one count, because counting takes seconds.
static COSTS: LazyLock<Vec<CallCost>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct CostFigures {
        instructions: Vec<CallCost>,
    }
    let program = std::env::var_os("SLUICE_PROXY_BIN").expect("SLUICE_PROXY_BIN names what `make dist` has made");
    let dir = TempDir::new();
    let figures = dir.join("figures.json");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_sluice-bench"));
    bench.env("SLUICE_PROXY_BIN", program).args(["--only", "instructions", "--contenders", "sluice", "--json"]);
    let output = bench.arg(&figures).output().expect("cargo has built the bench");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures = std::fs::read(&figures).expect("a bench that succeeds has written its figures");
    serde_json::from_slice::<CostFigures>(&figures).expect("the bench writes what it counts").instructions
});

/// Checks a figure of each mode: its budget is `most` of the counted value.
#[track_caller]
fn hold(figure: fn(&CallCost) -> f64, most: fn(f64) -> f64) {
    for counted in &COUNTED {
        let now = COSTS.iter().find(|cost| cost.mode == counted.mode).expect("the bench counts this mode");
        assert!(figure(now) > 0.0, "nothing was counted: has a function another name? {now:?}");
        assert!(figure(now) <= most(figure(counted)), "over the budget: {now:?}; it was {counted:?}");
    }
}

#[test]
fn a_call_takes_hardly_more_instructions_than_were_counted() {
    hold(|cost| cost.instructions, |counted| counted * MARGIN);
}

#[test]
fn a_call_hashes_hardly_more_than_was_counted() {
    hold(|cost| cost.sha256, |counted| counted * MARGIN);
}

#[test]
fn a_call_allocates_no_more_often_than_was_counted() {
    hold(|cost| cost.allocations, |counted| counted + MORE);
}
