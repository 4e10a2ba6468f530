use tempfile::TempDir;

use super::*;
use crate::store::Store;

const MINUTE_US: i64 = 60_000_000;

fn open() -> (TempDir, Store) {
    let directory = tempfile::tempdir().expect("there is room");
    let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
    (directory, store)
}

fn new_token() -> NewToken {
    NewToken {
        owner: "o".to_owned(),
        role: TokenRole::Owner,
        accounts: vec!["a".to_owned(), "b".to_owned()],
        label: Some("laptop".to_owned()),
        life_us: None,
        runs_per_day: None,
        cost_per_day: None,
    }
}

async fn create(store: &Store, now_us: i64) -> (TokenValue, Token) {
    let value = create_value().expect("there are random bytes");
    let token = store.create_token(&value, new_token(), now_us).await.expect("it is writable");
    (value, token)
}

#[tokio::test]
async fn a_token_is_found_by_its_value() {
    let (_directory, store) = open();
    let (value, token) = create(&store, 5).await;
    let (other, _) = create(&store, 6).await;
    assert_ne!(value, other);
    assert!(token.id.starts_with("tok_"));
    assert_eq!(token.expires_us, 5 + Token::LIFE_DEFAULT_US);
    assert_eq!(store.find_token(value.expose(), 9).await.expect("it is readable"), TokenLookup::Valid(token.clone()));
    assert_eq!(store.find_token_by_id(&token.id).await.expect("it is readable"), Some(token));
    let shorter = &value.expose()[..75];
    for text in ["", "slu_", shorter, &format!("{} ", value.expose()), &value.hash().to_hex()] {
        assert_eq!(store.find_token(text, 9).await.expect("it is readable"), TokenLookup::Unknown, "{text}");
    }
}

#[tokio::test]
async fn the_database_has_no_value() {
    let (directory, store) = open();
    let (value, _) = create(&store, 5).await;
    let files = ["sluice.db", "sluice.db-wal"].map(|name| directory.path().join(name));
    let bytes: Vec<u8> = files.iter().flat_map(|file| std::fs::read(file).expect("it is in use")).collect();
    let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has(&value.hash().to_hex()));
    assert!(!has(&value.expose()[4..68]));
}

#[tokio::test]
async fn expired_and_revoked_tokens_are_told_apart() {
    let (_directory, store) = open();
    let (value, token) = create(&store, 5).await;
    let find = async |now_us| store.find_token(value.expose(), now_us).await.expect("it is readable");
    assert!(matches!(find(token.expires_us - 1).await, TokenLookup::Valid(_)));
    assert_eq!(find(token.expires_us).await, TokenLookup::Expired(token.clone()));
    let revoked = store.revoke_token(&token.id, 7).await.expect("it is there");
    assert_eq!(revoked, Token { revoked_us: Some(7), ..token.clone() });
    assert!(!revoked.is_valid(8) && token.is_valid(8));
    assert_eq!(find(8).await, TokenLookup::Revoked(revoked.clone()));
    assert_eq!(store.revoke_token(&token.id, 9).await.expect("it is there"), revoked, "the first one stays");
    assert_eq!(store.list_tokens().await.expect("it is readable"), [revoked]);
    assert!(matches!(store.revoke_token("tok_x", 9).await, Err(TokenError::NotFound(_))));
}

#[tokio::test]
async fn a_clock_that_jumps_back_revives_no_revoked_token() {
    let (_directory, store) = open();
    let (value, token) = create(&store, 100).await;
    let find = async |now_us| store.find_token(value.expose(), now_us).await.expect("it is readable");
    assert!(matches!(find(1).await, TokenLookup::Valid(_)), "it does not end early");
    let revoked = store.revoke_token(&token.id, 90).await.expect("it is there");
    for now_us in [1, 89, 90, 91] {
        assert!(!revoked.is_valid(now_us), "{now_us}");
        assert!(matches!(find(now_us).await, TokenLookup::Revoked(_)), "{now_us}");
    }
}

#[tokio::test]
async fn a_use_is_recorded_once_a_minute() {
    let (_directory, store) = open();
    let (_, created) = create(&store, 5).await;
    let used = async |seen: &Token, now_us| {
        store.record_token_use(seen, now_us).await.expect("it is writable");
        store.find_token_by_id(&created.id).await.expect("it is readable").expect("it is there")
    };
    let first = used(&created, 100).await;
    assert_eq!(first.last_used_us, Some(100));
    assert_eq!(used(&created, 99 + MINUTE_US).await, first, "the caller had an old row");
    assert_eq!(used(&first, 99 + MINUTE_US).await, first);
    assert_eq!(used(&first, 50).await, first, "the clock went back");
    assert_eq!(used(&first, 100 + MINUTE_US).await.last_used_us, Some(100 + MINUTE_US));
}

#[tokio::test]
async fn the_life_of_a_token_is_bounded() {
    let (_directory, store) = open();
    let value = create_value().expect("there are random bytes");
    for life_us in [-1, 0, Token::LIFE_MAX_US + 1, i64::MAX] {
        let refused = store.create_token(&value, NewToken { life_us: Some(life_us), ..new_token() }, 5).await;
        let message = refused.expect_err("it is out of bounds").to_string();
        assert!(message.contains("365 days"), "{message}");
    }
    let longest = NewToken { life_us: Some(Token::LIFE_MAX_US), ..new_token() };
    store.create_token(&value, longest.clone(), 5).await.expect("it is allowed");
    assert!(store.create_token(&value, longest, 5).await.is_err(), "a value is used once");
}
