//! The rules of an audit file after any kill.
//!
//! Pure. The contract's verifier checks that the file is as it was written; its content is read here once
//! more, independently.

use serde_json::Value;
use sluice_contract::verdict::Seal;
use sluice_contract::{Hash, PublicKey, TrustAnchors, Verdict, verify};

use crate::fault::ChaosFault;
use crate::record::Ids;

/// The content of a file.
#[derive(Debug)]
pub(crate) struct FileContents {
    /// Offset of the end of the last complete line.
    pub(crate) whole: usize,
    pub(crate) intents: Ids,
    pub(crate) outcomes: Ids,
    /// The calls without an outcome, in order.
    pub(crate) open: Vec<String>,
    /// Open calls that a restart has named.
    pub(crate) told: Ids,
    pub(crate) epochs: u64,
    pub(crate) verdict: Verdict,
}

impl FileContents {
    /// Reads a file, which may end in a torn line.
    pub(crate) fn of(bytes: &[u8], key: &PublicKey) -> Result<Self, ChaosFault> {
        let verdict = verify(bytes, &TrustAnchors { keys: &[*key], seen: &[] });
        let report = match &verdict {
            Verdict::Tampered(fault) => return Err(ChaosFault::new(format!("the file is tampered with: {fault}"))),
            Verdict::Complete(report) | Verdict::Incomplete(report) => report.clone(),
        };
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut account = Self {
            whole,
            intents: Ids::new(),
            outcomes: Ids::new(),
            open: Vec::new(),
            told: Ids::new(),
            epochs: 0,
            verdict,
        };
        let mut closed = false;
        for (seq, line) in lines(&bytes[..whole])?.into_iter().enumerate() {
            if line["seq"] != seq {
                return Err(ChaosFault::new(format!("line {} has seq {}", seq + 1, line["seq"])));
            }
            account.take(&line);
            closed |= line["kind"] == "close";
        }
        let told = (report.open_calls.as_slice(), report.torn, report.closed);
        if told != (account.open.as_slice(), (bytes.len() - whole) as u64, closed) {
            return Err(ChaosFault::new(format!(
                "the verifier reports {told:?}, but the open calls are {:?}",
                account.open
            )));
        }
        if closed && !matches!(report.seal, Seal::Valid(_)) {
            return Err(ChaosFault::new(format!("a close that is not signed by its key: {report}")));
        }
        Ok(account)
    }

    fn take(&mut self, line: &Value) {
        let id = || line["call_id"].as_str().unwrap_or_default().to_owned();
        match line["kind"].as_str() {
            Some("intent") => {
                self.open.push(id());
                self.intents.insert(id());
            }
            Some("outcome") => {
                self.open.retain(|open| *open != id());
                self.outcomes.insert(id());
            }
            Some("recovered") => self.told.extend(strings(&line["open_calls"])),
            Some("epoch") => self.epochs += 1,
            _ => {}
        }
    }

    /// Compares the file with the calls that both ends had seen before it was read.
    pub(crate) fn answers_for(&self, seen: &Ids, whole_answers: &Ids) -> Result<(), ChaosFault> {
        let lost: Vec<_> = seen.difference(&self.intents).cloned().collect();
        if !lost.is_empty() {
            return Err(ChaosFault::losing(
                lost.len(),
                format!("no intent names what the upstream saw: {}", lost.join(" ")),
            ));
        }
        let early: Vec<_> = whole_answers.difference(&self.outcomes).cloned().collect();
        if !early.is_empty() {
            let ids = early.join(" ");
            return Err(ChaosFault::losing(
                early.len(),
                format!("a client saw the end of calls without an outcome: {ids}"),
            ));
        }
        match whole_answers.difference(seen).next() {
            Some(id) => Err(ChaosFault::new(format!("a client had an answer to {id}, which the upstream never saw"))),
            None => Ok(()),
        }
    }

    /// Checks a file that ended in order: only calls that a restart has named are open.
    pub(crate) fn is_settled(&self) -> Result<(), ChaosFault> {
        let Some(report) = self.verdict.report().filter(|report| report.closed) else {
            return Err(ChaosFault::new(format!("the sidecar ended in order, and the file is {}", self.verdict)));
        };
        if let Some(open) = self.open.iter().find(|id| !self.told.contains(*id)) {
            return Err(ChaosFault::new(format!("call {open} was open at no kill, and has no outcome")));
        }
        if report.recovered == 0 && !matches!(self.verdict, Verdict::Complete(_)) {
            return Err(ChaosFault::new(format!("nothing was lost, and the file is {}", self.verdict)));
        }
        Ok(())
    }
}

/// Returns the bytes after `whole_before`, the complete lines at an earlier time, which must be unchanged: only a torn
/// line may be removed.
pub(crate) fn goes_on<'a>(whole_before: &[u8], now: &'a [u8]) -> Result<&'a [u8], ChaosFault> {
    now.strip_prefix(whole_before)
        .ok_or_else(|| ChaosFault::new(format!("the first {} bytes have changed", whole_before.len())))
}

/// Checks the first lines of a successor. `torn` are the bytes after the last complete line when it began, or the bytes
/// that a killed start has put aside. The file may end early if this successor was killed, too. Returns the number of
/// missing lines.
pub(crate) fn takes_over(before: &FileContents, torn: &[u8], added: &[u8], pid: u32) -> Result<usize, ChaosFault> {
    let is_new = before.whole == 0;
    let recovers = !torn.is_empty() || !before.open.is_empty();
    let mut expected = Vec::new();
    expected.extend(is_new.then_some("open"));
    expected.extend(recovers.then_some("recovered"));
    expected.extend((!is_new).then_some("epoch"));
    let found = lines(added)?;
    for (line, kind) in found.iter().zip(&expected) {
        if line["kind"] != **kind {
            return Err(ChaosFault::new(format!("a start was to write {expected:?}, and wrote {line}")));
        }
        let is_right = match *kind {
            "recovered" => {
                line["offset"] == before.whole
                    && line["bytes"] == torn.len()
                    && line["sha256"] == Hash::of(torn).to_string()
                    && strings(&line["open_calls"]).eq(before.open.iter().cloned())
            }
            _ => line["pid"] == pid,
        };
        if !is_right {
            let (offset, bytes, open) = (before.whole, torn.len(), &before.open);
            return Err(ChaosFault::new(format!(
                "a start by {pid} at {offset}, {bytes} torn, open {open:?} wrote {line}"
            )));
        }
    }
    Ok(expected.len().saturating_sub(found.len()))
}

/// Parses the complete lines of some bytes.
fn lines(bytes: &[u8]) -> Result<Vec<Value>, ChaosFault> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.map(|line| serde_json::from_slice(line).map_err(ChaosFault::from)).collect()
}

fn strings(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use sluice_contract::PrivateKey;

    use super::*;

    const KILLED: &[u8] = include_bytes!("../../proxy/contract/tests/golden/killed.jsonl");
    const TORN: &[u8] = include_bytes!("../../proxy/contract/tests/golden/torn.jsonl");
    const RECOVERED: &[u8] = include_bytes!("../../proxy/contract/tests/golden/recovered.jsonl");

    fn account(bytes: &[u8]) -> FileContents {
        let key = PrivateKey::from_seed(&[7; 32]).public();
        FileContents::of(bytes, &key).unwrap_or_else(|fault| panic!("{fault}"))
    }

    fn ids<'a>(ids: impl IntoIterator<Item = &'a str>) -> Ids {
        ids.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_call_without_an_intent_is_lost() {
        let account = account(KILLED);
        let mut seen = account.intents.clone();
        assert!(account.answers_for(&seen, &ids([])).is_ok());
        seen.extend(ids(["never-written"]));
        let fault = account.answers_for(&seen, &ids([])).expect_err("a call is missing");
        assert_eq!(fault.lost, 1, "{fault}");
    }

    #[test]
    fn a_whole_answer_without_an_outcome_is_lost() {
        let account = account(KILLED);
        assert!(account.answers_for(&account.intents, &account.outcomes).is_ok());
        let early = ids([account.open[0].as_str()]);
        let fault = account.answers_for(&account.intents, &early).expect_err("an outcome is missing");
        assert_eq!(fault.lost, 1, "{fault}");
    }

    #[test]
    fn an_answer_nobody_gave_is_a_fault() {
        let account = account(KILLED);
        assert!(account.answers_for(&ids([]), &account.outcomes).is_err());
    }

    #[test]
    fn altered_and_missing_lines_are_faults() {
        let key = PrivateKey::from_seed(&[7; 32]).public();
        let text = std::str::from_utf8(KILLED).expect("an audit file is text");
        let without_one: String =
            text.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 2).map(|(_, line)| line).collect();
        assert!(FileContents::of(text.replacen("\"call\":1", "\"call\":2", 1).as_bytes(), &key).is_err());
        assert!(FileContents::of(without_one.as_bytes(), &key).is_err());
        assert!(goes_on(&KILLED[..10], &KILLED[1..]).is_err());
        assert_eq!(goes_on(&KILLED[..10], KILLED).ok(), Some(&KILLED[10..]));
    }

    #[test]
    fn a_file_that_has_no_end_is_not_settled() {
        assert!(account(KILLED).is_settled().is_err());
    }

    #[test]
    fn a_restart_writes_known_lines_first() {
        let at = RECOVERED.windows(18).position(|part| part == b"\"kind\":\"recovered\"").expect("it was recovered");
        let begin = RECOVERED[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
        let (before, added) = RECOVERED.split_at(begin);
        let (before, lines) = (account(before), lines(added).expect("whole lines"));
        let pid = u32::try_from(lines[1]["pid"].as_u64().expect("an epoch has a pid")).expect("a pid");
        let torn = TORN.split(|byte| *byte == b'\n').next_back().expect("a torn line");
        let torn = if lines[0]["bytes"] == torn.len() { torn } else { b"" };

        assert_eq!(takes_over(&before, torn, added, pid).ok(), Some(0));
        assert_eq!(takes_over(&before, torn, b"", pid).ok(), Some(2), "killed before it could say anything");
        assert!(takes_over(&before, torn, added, pid + 1).is_err());
        assert!(takes_over(&before, b"{", added, pid).is_err());
        let epoch = added.iter().position(|byte| *byte == b'\n').expect("two lines") + 1;
        assert!(takes_over(&before, torn, &added[epoch..], pid).is_err());
    }
}
