//! The browser of the tests: a fault of a page fails the test, unless the test expects it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Browser;

#[tokio::test]
async fn a_fault_of_a_page_fails_its_test() {
    const LATER: &str = "return new Promise(done => setTimeout(() => done(true), 50))";
    for (script, expected, fails) in [
        ("setTimeout(() => { throw new Error('first') });", "", true),
        ("Promise.reject(new Error('second'));", "", true),
        ("console.error('third');", "another", true),
        ("setTimeout(() => { throw new Error('fourth') });", "fourth", false),
    ] {
        let browser = Browser::start().await;
        if !expected.is_empty() {
            browser.expects_fault(expected);
        }
        browser.script(&format!("{script} {LATER}")).await;
        // A fault in another tab counts too.
        browser.new_tab().await;
        let ended = catch_unwind(AssertUnwindSafe(|| drop(browser)));
        assert_eq!(ended.is_err(), fails, "{script}");
    }
}
