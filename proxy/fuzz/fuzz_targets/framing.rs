//! The second check of where a request ends, against itself: no split may change its result.
//!
//! Input: a split, a newline, the bytes of a connection.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_proxy::framing::{Ambiguous, Framing};
use sluice_proxy_fuzz::{choices_and_input, cut};

fuzz_target!(|data: &[u8]| {
    let Some(([split], bytes)) = choices_and_input(data) else { return };
    let whole = follow([bytes]);
    assert_eq!(follow(cut(bytes, split)), whole, "the split changed the opinion");
    assert_eq!(follow(cut(bytes, b'0')), whole, "byte by byte it reads differently");
});

/// Returns whether the bytes end between requests, or inside a head.
fn follow<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<(bool, bool), Ambiguous> {
    let mut framing = Framing::default();
    pieces.into_iter().try_for_each(|piece| framing.feed(piece))?;
    assert!(!(framing.in_head() && framing.is_between()));
    Ok((framing.is_between(), framing.in_head()))
}
