//! The answer to a push, in the form of `report-status`.
//!
//! Pure.

use super::command_list::CommandList;
use super::pkt_line::{self, FLUSH};

/// Bands: the first one is for the report, the second one for text to the person at the client.
const REPORT: u8 = 1;
const TEXT: u8 = 2;
/// Maximum number of bytes of text in a packet of a band.
const PIECE: usize = 65515;

/// Returns the answer to an accepted push.
pub(crate) fn accepted(list: &CommandList) -> Vec<u8> {
    let lines = list.commands.iter().map(|command| format!("ok {}\n", command.reference));
    answer(list, "", lines)
}

/// Returns the answer to a refused push, with the reason for each command.
pub(crate) fn refused(list: &CommandList, reason: &str) -> Vec<u8> {
    let reason = one_line(reason);
    let lines = list.commands.iter().map(|command| format!("ng {} {reason}\n", command.reference));
    answer(list, &format!("{reason}\n"), lines)
}

fn answer(list: &CommandList, text: &str, lines: impl Iterator<Item = String>) -> Vec<u8> {
    let mut report = pkt_line::data(b"unpack ok\n");
    for line in lines {
        report.extend(pkt_line::data(line.as_bytes()));
    }
    report.extend_from_slice(FLUSH);
    // If the list could not be read, the client gets the reason as text in a band: without a band, it could not parse
    // the answer.
    let has_bands = list.wants("side-band-64k") || list.commands.is_empty();
    let has_report = list.wants("report-status");
    match (has_bands, has_report) {
        (true, _) => {
            let mut body = band(TEXT, text.as_bytes());
            if has_report {
                body.extend(band(REPORT, &report));
            }
            body.extend_from_slice(FLUSH);
            body
        }
        (false, true) => report,
        (false, false) => Vec::new(),
    }
}

fn band(number: u8, bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(PIECE).flat_map(|piece| pkt_line::data(&[&[number], piece].concat())).collect()
}

/// Returns a text of git, which may have several lines, as one line of at most 1,000 characters.
fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).take(1000).collect()
}

#[cfg(test)]
mod tests {
    use super::super::command_list::RefCommand;
    use super::*;

    fn list(capabilities: &[&str]) -> CommandList {
        let id = || "1".repeat(40).parse().expect("an id");
        CommandList {
            commands: vec![RefCommand { old: id(), new: id(), reference: "refs/heads/x".to_owned() }],
            capabilities: capabilities.iter().map(|capability| (*capability).to_owned()).collect(),
            shallow: Vec::new(),
        }
    }

    #[test]
    fn a_report_has_the_bands_that_were_asked_for() {
        let plain = accepted(&list(&["report-status"]));
        assert_eq!(plain, b"000eunpack ok\n0014ok refs/heads/x\n0000");
        let banded = accepted(&list(&["report-status", "side-band-64k"]));
        assert_eq!(banded, [b"002b\x01", &plain[..], b"0000"].concat());
        let refused = refused(&list(&["report-status", "side-band-64k"]), "no\nway");
        assert_eq!(refused, b"000c\x02no way\n0032\x01000eunpack ok\n001bng refs/heads/x no way\n00000000");
        assert_eq!(accepted(&list(&[])), b"");
        assert_eq!(super::refused(&CommandList::default(), "no"), b"0008\x02no\n0000");
    }
}
