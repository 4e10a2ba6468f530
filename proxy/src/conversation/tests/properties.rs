//! Properties of every conversation of an agent.

use proptest::prelude::*;

use super::*;

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof!["[a-c\"\\\\é\n]{1,9}".prop_map(Turn::User), (1..4_usize).prop_map(Turn::Tools),];
    prop::collection::vec(turn, 1..7).prop_map(|mut turns| {
        turns.insert(0, Turn::User("do it".to_owned()));
        turns
    })
}

proptest! {
    #[test]
    fn a_message_stays_at_its_place(turns in turns(), blocks: bool, format in prop::sample::select(FORMATS.to_vec()), from in 0..4_usize) {
        let mut store = MessageStore::default();
        let mut before: Vec<Value> = Vec::new();
        let from = from.min(turns.len() - 1);
        for at in 0..turns.len() {
            if at == from {
                store.replace(vec![message("msg-1", "msg-1"), message("msg-2", "msg-2")]);
            }
            let asked = body(format, items(format, &turns[..=at], blocks));
            let sent = answered(&mut store, format, &asked);
            let all = items_of(format, &sent);
            assert_legal(format, &all);
            if at < from {
                prop_assert_eq!(&sent, &asked);
            } else {
                prop_assert_eq!(found(&all, "msg-1").len(), 1, "{}", sent);
                prop_assert_eq!(found(&all, "msg-2").len(), 1);
                let all = normal(&all);
                prop_assert!(before.is_empty() || all.starts_with(&before), "{:?} after {:?}", all, before);
                before = all;
            }
        }
    }

    #[test]
    fn the_bytes_of_the_agent_stay(turns in turns(), blocks: bool, format in prop::sample::select(FORMATS.to_vec()), size in 1..64_usize) {
        let mut store = store(&["msg-1"]);
        let asked = body(format, items(format, &turns, blocks)).to_string();
        let (sent, injection) = send_raw(&mut store, format, &asked, size);
        // A message without an answer is at the same place in a retry.
        prop_assert_eq!(send_raw(&mut store, format, &asked, 64).0, sent.clone());
        prop_assert_eq!(&*injection.placed, &[Box::<str>::from("msg-1")][..]);
        // What was added is at most two runs of bytes.
        let mut rest = sent.as_str();
        let common = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
        let head = common(&asked, rest);
        rest = &rest[head..];
        let tail = asked[head..].bytes().rev().zip(rest.bytes().rev()).take_while(|(a, b)| a == b).count();
        let middle = &asked.as_bytes()[head..asked.len() - tail];
        prop_assert!(memchr::memmem::find(rest.as_bytes(), middle).is_some());
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "[\\[\\]{}:,\"a-z0-9 ]{0,200}", format in prop::sample::select(FORMATS.to_vec())) {
        let text = format!("{{\"messages\":[{text}");
        let _ = send_raw(&mut store(&["msg-1"]), format, &text, 5);
    }
}
