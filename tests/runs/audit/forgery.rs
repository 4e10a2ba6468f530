//! Attacks on an audit file, from a flipped bit to a consistent forgery.

use serde_json::Value;
use sluice_contract::record::Close;
use sluice_contract::{AuditLog, Hash, PrivateKey, chain};

/// Returns the lines of a file, each with its newline.
pub(super) fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// Returns the file after a change, with matching numbers, hashes, sums and signature. An attacker with the file and a
/// key can do that.
pub(super) fn rewritten(bytes: &[u8], change: impl FnOnce(&mut Vec<Value>), key: &PrivateKey) -> Vec<u8> {
    let mut records: Vec<Value> =
        lines(bytes).iter().map(|line| serde_json::from_slice(line).expect("a record")).collect();
    let mut close: Close<'_> =
        serde_json::from_value(records.pop().expect("the file has an end")).expect("its end is a close");
    // The attacker signs with a key that was not made for the run.
    close.certificate = None;
    change(&mut records);
    let (mut file, mut prev) = (Vec::new(), Hash::ZERO);
    for (seq, record) in records.iter_mut().enumerate() {
        record["seq"] = seq.into();
        record["prev"] = prev.to_string().into();
        // Members are sorted, as the canonical form wants them.
        let line = format!("{record}\n").into_bytes();
        prev = Hash::of(&line);
        file.extend(line);
    }
    let (log, _) = AuditLog::read(&file).expect("all fits");
    let (totals, open) = (log.totals(), log.open().expect("it begins with open"));
    close.run_id = open.run_id.clone();
    close.seq = log.lines();
    close.prev = prev.to_string().into();
    (close.calls, close.refused, close.usage) = (totals.calls, totals.refused, totals.usage);
    close.unknown = totals.unknown + log.open_calls().count() as u64;
    close.cost_usd = totals.cost().to_string().into();
    file.extend(chain::close_line(close, Some(key)));
    file
}

/// Changes the account of the file.
#[expect(clippy::ptr_arg, reason = "a change may be any")]
pub(super) fn for_another_account(records: &mut Vec<Value>) {
    records[0]["billing_account_id"] = "acct-of-somebody-else".into();
}

/// Removes the last call.
pub(super) fn with_a_call_less(records: &mut Vec<Value>) {
    let last = records.last().expect("there are calls")["call_id"].clone();
    records.retain(|record| record["call_id"] != last);
}

/// A key that has signed no file here.
pub(super) fn thief() -> PrivateKey {
    PrivateKey::from_seed(&[7; 32])
}

/// Returns simple attacks on a file: the name, the changed file, and the expected verdict.
pub(super) fn mutations(bytes: &[u8]) -> Vec<(String, Vec<u8>, (i64, u64))> {
    let lines = lines(bytes);
    let last = lines.len() as u64;
    let mut all = Vec::new();
    let mut add = |name: String, lines: Vec<Vec<u8>>, said| all.push((name, lines.concat(), said));
    for at in 0..lines.len() {
        let number = at as u64 + 1;
        let changed = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let mut lines = lines.clone();
            change(&mut lines);
            lines
        };
        // Change a digit of the time, so that the line stays a valid record.
        let ts = lines[at].windows(6).position(|text| text == b"\"ts\":\"").expect("each line has a time") + 6;
        add(format!("flip {number}"), changed(&|lines| lines[at][ts + 25] ^= 1), (1, number));
        add(format!("duplicate {number}"), changed(&|lines| lines.insert(at, lines[at].clone())), (1, number + 1));
        if number < last {
            add(format!("delete {number}"), changed(&|lines| drop(lines.remove(at))), (1, number));
            add(format!("swap {number}"), changed(&|lines| lines.swap(at, at + 1)), (1, number));
            let foreign = String::from_utf8_lossy(&lines[at + 1]).replace("acct", "else").into_bytes();
            add(format!("insert at {number}"), changed(&|lines| lines.insert(at, foreign.clone())), (1, number));
        }
    }
    all.push(("re-signed".to_owned(), rewritten(bytes, |_| (), &thief()), (1, last)));
    all.push(("rewritten and re-signed".to_owned(), rewritten(bytes, for_another_account, &thief()), (1, last)));
    all.push(("cut and re-signed".to_owned(), rewritten(bytes, with_a_call_less, &thief()), (1, last - 2)));
    all
}
