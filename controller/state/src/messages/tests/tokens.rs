//! Tokens of runs.

use super::*;
use crate::run_tokens::RUN_TOKEN_PREFIX;

#[tokio::test]
async fn a_token_is_that_of_the_present_attempt() {
    let fixture = Fixture::new().await;
    let first = fixture.store.create_run_token(&key()).await.expect("it is writable");
    assert!(first.expose().starts_with(RUN_TOKEN_PREFIX) && first.expose().len() == 68);
    assert_eq!(format!("{first:?}"), "RunTokenValue(…)");
    let second = fixture.store.create_run_token(&key()).await.expect("it is writable");
    let find = async |text: &str| fixture.store.find_run_token(text).await.expect("it is readable");
    assert_eq!((find(first.expose()).await, find(second.expose()).await), (None, Some(key())));
    assert_eq!(find("").await, None);
    assert_eq!(find(&second.hash().to_hex()).await, None, "the hash is no token");
    assert!(fixture.store.has_run_token(&key()).await.expect("it is readable"));

    fixture.step(SandboxStep::Decide(SandboxVerdict::Cancelled)).await;
    assert_eq!(find(second.expose()).await, Some(key()), "it is being taken down");
    fixture.step(SandboxStep::Finish).await;
    assert_eq!(find(second.expose()).await, None);
}

#[tokio::test]
async fn a_revoked_token_is_unknown() {
    let fixture = Fixture::new().await;
    let token = fixture.store.create_run_token(&key()).await.expect("it is writable");
    fixture.store.revoke_run_token(&key()).await.expect("it is writable");
    assert_eq!(fixture.store.find_run_token(token.expose()).await.expect("it is readable"), None);
}
