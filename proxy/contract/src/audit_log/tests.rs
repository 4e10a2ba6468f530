use super::*;
use crate::reader::FaultKind;

const FILE: &str = r#"{"attempt":0,"billing_account_id":"acct-1","boot_id":"b","build":"x","graph_id":"g","kind":"open","limits":{"deadline_s":null,"max_body":1,"max_calls":null,"max_concurrency":1,"max_cost_usd":null,"max_tokens":null,"rate_per_s":null},"pid":1,"policy":"sha256:0","prev":"0","proxy_version":"0.1.0","run_id":"r1","seq":0,"sync":"call","ts":"2026-01-01T00:00:00.000000Z","upstream":"http://127.0.0.1:4000","v":1}
{"attempt":0,"call":1,"call_id":"c1","kind":"intent","method":"POST","model":"m","path":"/v1/messages","peer":{"pid":2,"uid":1001},"prev":"0","req_bytes":10,"reserved_usd":null,"run_id":"r1","seq":1,"stream":true,"stripped":[],"ts":"2026-01-01T00:00:00.000000Z","v":1}
{"attempt":0,"kind":"refused","method":"GET","path":"/x","prev":"0","reason":"route_not_allowed","run_id":"r1","seq":2,"status":404,"ts":"2026-01-01T00:00:00.000000Z","v":1}
{"attempt":0,"call":1,"call_id":"c1","cost_source":"chunk","cost_usd":"0.0000054","end":"complete","kind":"outcome","litellm_call_id":"c1","model_served":"m","null_reason":null,"prev":"0","resp_bytes":9,"response_id":"msg_1","result":"ok","run_id":"r1","seq":3,"status":200,"timing_us":{"connect":1,"first_token":2,"longest_gap":3,"own":4,"queue":5,"total":6,"ttfb":7},"ts":"2026-01-01T00:00:00.000000Z","usage":{"cache_write":null,"cached_input":null,"input":3,"output":4,"reasoning":null,"total":7},"v":1}
{"attempt":0,"kind":"news","prev":"0","run_id":"r1","seq":4,"ts":"2026-01-01T00:00:00.000000Z","v":1,"what":"of a later build"}
{"attempt":0,"calls":1,"cost_usd":"0.0000054","head":"0","key_id":null,"kind":"close","prev":"0","reason":"sigterm","refused":1,"run_id":"r1","seq":5,"signature":null,"ts":"2026-01-01T00:00:00.000000Z","unknown":0,"usage":{"cache_write":null,"cached_input":null,"input":3,"output":4,"reasoning":null,"total":7},"v":1}
"#;

fn fault_of(file: &str) -> (u64, FaultKind) {
    let fault = AuditLog::read(file.as_bytes()).expect_err("a fault");
    (fault.line, fault.kind)
}

#[test]
fn a_file_tells_its_calls_and_sums() {
    let (log, torn) = AuditLog::read(FILE.as_bytes()).expect("a good file");

    assert_eq!((log.lines(), torn), (6, &b""[..]));
    assert_eq!(log.open().map(|open| &*open.billing_account_id), Some("acct-1"));
    assert_eq!(log.calls().len(), 1);
    assert_eq!(log.call("c1"), log.calls().first());
    assert_eq!(log.open_calls().count(), 0);
    assert_eq!(log.refused(), &BTreeMap::from([("route_not_allowed".to_owned(), 1)]));
    let close = log.close().expect("closed");
    let totals = log.totals();
    assert_eq!((close.calls, close.refused, close.unknown), (totals.calls, totals.refused, totals.unknown));
    assert_eq!((&*close.cost_usd, close.usage), (&*totals.cost().to_string(), totals.usage));
}

#[test]
fn every_cut_leaves_whole_lines_and_one_torn() {
    for cut in 0..FILE.len() {
        let bytes = &FILE.as_bytes()[..cut];
        let (log, torn) = AuditLog::read(bytes).expect("a prefix has no fault");
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        assert_eq!(torn, &bytes[whole..]);
        assert_eq!(log.lines(), bytes.iter().filter(|byte| **byte == b'\n').count() as u64);
        let intent = log.lines() >= 2;
        assert_eq!(log.open_calls().count(), usize::from(intent && log.lines() < 4));
    }
}

#[test]
fn a_growing_file_is_read_in_pieces() {
    let (mut log, mut cursor, mut torn) = (AuditLog::default(), crate::reader::Cursor::default(), Vec::new());
    for piece in FILE.as_bytes().chunks(97) {
        torn.extend_from_slice(piece);
        let mut lines = crate::reader::lines_from(cursor, &torn);
        log.take_all(&mut lines).expect("no fault");
        cursor = lines.cursor();
        torn = lines.tail().to_vec();
    }
    assert!(log.close().is_some() && torn.is_empty());
    assert_eq!(cursor.offset, FILE.len() as u64);
}

#[test]
fn each_fault_names_its_line() {
    for (from, to, line, what) in [
        ("{\"attempt\":0,\"billing", "{\"attempt\":0;\"billing", 1, FaultKind::Json),
        ("\"v\":1}\n{\"attempt\":0,\"call\":1", "\"v\":2}\n{\"attempt\":0,\"call\":1", 1, FaultKind::Schema),
        ("\"method\":\"GET\",", "", 3, FaultKind::Members),
        ("\"seq\":2", "\"seq\":3", 3, FaultKind::Seq),
        ("\"run_id\":\"r1\",\"seq\":2", "\"run_id\":\"r2\",\"seq\":2", 3, FaultKind::Run),
        ("\"kind\":\"open\"", "\"kind\":\"news\"", 1, FaultKind::Order),
        ("\"kind\":\"intent\"", "\"kind\":\"news\"", 4, FaultKind::Call),
        ("\"call\":1,\"call_id\":\"c1\",\"kind\"", "\"call\":2,\"call_id\":\"c1\",\"kind\"", 2, FaultKind::Call),
        ("\"call\":1,\"call_id\":\"c1\",\"cost", "\"call\":2,\"call_id\":\"c1\",\"cost", 4, FaultKind::Call),
        ("\"cost_usd\":\"0.0000054\",\"end\"", "\"cost_usd\":\"free\",\"end\"", 4, FaultKind::Members),
    ] {
        assert!(FILE.contains(from), "{from}");
        assert_eq!(fault_of(&FILE.replacen(from, to, 1)), (line, what), "{from} -> {to}");
    }
    let lines: Vec<_> = FILE.split_inclusive('\n').collect();
    assert_eq!(fault_of(&[lines[0], lines[2]].concat()), (2, FaultKind::Seq));
    let again = lines[5].replace("\"seq\":5", "\"seq\":6");
    assert_eq!(fault_of(&[FILE, &again].concat()), (7, FaultKind::Order));
}
