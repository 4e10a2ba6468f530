//! Receipts that the operator voids.

use super::*;

#[tokio::test]
async fn a_voided_receipt_releases_what_is_held() {
    let (_upstream, sluice, report) = run_with_an_open_call().await;
    let [posted, open] = [0, 1].map(|number| report.receipts[number].source_reference.clone());
    let held = stands(&sluice).await[2];
    let void = async |receipt: &str, reason: &str| {
        sluice.command(["ledger", "void", receipt, "--reason", reason, "--json"]).finish().await
    };
    void(&posted, "no").await.expect(2);
    void("r-1/0/nope", "no").await.expect(2);
    void(&open, "").await.expect(2);

    let voided = void(&open, "the provider closed the account").await.expect(0).value();

    assert!(held > 0);
    assert_eq!((nanos(&voided["released_usd"]), &voided["status"]), (held, &json!("voided")));
    assert_eq!(stands(&sluice).await[1..3], [NANOS, 0]);
    let again = void(&open, "twice").await.expect(2);
    let told = "is voided: only a receipt that is pending_cost or unknown can be voided";
    assert!(again.stderr.contains(told), "{}", again.stderr);
    let receipts = sluice.command(["receipts", "--json"]).finish().await.expect(0).value();
    let receipt = &receipts["receipts"][1];
    assert_eq!((&receipt["status"], &receipt["null_reason"]), (&json!("voided"), &json!("voided_by_operator")));
    assert_eq!((&receipts["total"]["open"], &receipts["unsettled_runs"]), (&json!(0), &json!([])));
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);
    // The decision outlives the database.
    fs::remove_file(sluice.state().join("sluice.db")).expect("it is there");
    sluice.command(["ledger", "rebuild"]).finish().await.expect(0);
    let rebuilt = sluice.command(["receipts", "--json"]).finish().await.expect(0).value();
    assert_eq!(rebuilt["receipts"][1]["status"], "voided");
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);
}
