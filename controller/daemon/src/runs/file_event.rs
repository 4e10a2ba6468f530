//! An observed change of a file as an event.
//!
//! Pure. The sandbox chooses names and content; their sizes are bounded here.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};
use sluice_runs::blueprint::WORKSPACE;
use sluice_runs::exchange::watch::{FileChange, TextDiff};
use sluice_state::events::{EventDiff, EventSource, NewLoggedEvent};
use sluice_state::sandboxes::Sandbox;

use super::file_limits::{LeftOutChanges, Stored};

/// Type of the events about changed files. The source identifies the reporter: the system observes, an agent claims.
pub(crate) const FILE_EDITED: &str = "agent.file_edited";
/// Type of the events about changes without an event of their own.
const LEFT_OUT: &str = "workspace.changes_left_out";
/// Type of the events about the watch itself.
const WATCH: &str = "workspace.watch";
/// Maximum number of lines of a preview.
const PREVIEW_LINES: usize = 100;
/// Maximum number of characters of a preview.
const PREVIEW_CHARACTERS: usize = 5000;

/// Returns the event of a change.
pub(super) fn file_edited(run: &Sandbox, change: &FileChange, now_us: i64) -> NewLoggedEvent {
    let mut data = Map::new();
    let path = [WORKSPACE.as_bytes(), b"/", &change.path].concat();
    data.insert("file_path".into(), String::from_utf8_lossy(&path).into());
    if std::str::from_utf8(&path).is_err() {
        data.insert("file_path_base64".into(), BASE64_STANDARD.encode(&path).into());
    }
    data.insert("change_type".into(), change.change.as_str().into());
    data.insert("file_type".into(), change.kind.as_str().into());
    data.insert("size".into(), change.size.into());
    let mut stored = None;
    match &change.diff {
        Ok(TextDiff { text, truncated, added, removed }) => {
            let preview = preview(text);
            data.insert("lines_added".into(), (*added).into());
            data.insert("lines_removed".into(), (*removed).into());
            data.insert("diff_preview".into(), preview.into());
            data.insert("diff_truncated".into(), (preview.len() < text.len()).into());
            stored = Some(EventDiff { text: text.clone(), truncated: *truncated });
        }
        Err(omitted) => {
            for name in ["lines_added", "lines_removed", "diff_preview"] {
                data.insert(name.into(), Value::Null);
            }
            data.insert("diff_omitted".into(), omitted.as_str().into());
        }
    }
    NewLoggedEvent { diff: stored, ..event(run, FILE_EDITED, &Value::Object(data), now_us) }
}

/// Returns the event in the form that is stored.
pub(super) fn bounded(event: NewLoggedEvent, stored: Stored) -> Option<NewLoggedEvent> {
    match stored {
        Stored::Whole => Some(event),
        Stored::WithoutDiff => {
            let mut data: Value = serde_json::from_str(&event.event_data).unwrap_or_default();
            data["full_diff_omitted"] = "too_many".into();
            Some(NewLoggedEvent { diff: None, event_data: data.to_string(), ..event })
        }
        Stored::Nothing => None,
    }
}

/// Returns the event of changes that have none of their own.
pub(super) fn changes_left_out(run: &Sandbox, left: LeftOutChanges, now_us: i64) -> NewLoggedEvent {
    let LeftOutChanges { created, modified, deleted } = left;
    event(run, LEFT_OUT, &json!({ "created": created, "modified": modified, "deleted": deleted }), now_us)
}

/// Returns an event about the watch, with a stable reason word.
pub(super) fn watch_event(run: &Sandbox, reason: &str, since: Option<String>, now_us: i64) -> NewLoggedEvent {
    let data = match since {
        Some(since) => json!({ "reason": reason, "since": since }),
        None => json!({ "reason": reason }),
    };
    event(run, WATCH, &data, now_us)
}

/// Returns an event with an id that is fixed in advance, so that an event that is written twice is in the log once.
fn event(run: &Sandbox, event_type: &str, data: &Value, now_us: i64) -> NewLoggedEvent {
    NewLoggedEvent {
        id: Some(format!("evt_{}", uuid::Uuid::new_v4().simple())),
        attempt: Some(run.key.attempt),
        agent_id: Some(run.agent_id.clone()),
        source: EventSource::System,
        ..NewLoggedEvent::of_run(&run.owner, run.key.run_id.as_str(), event_type, data.to_string(), now_us)
    }
}

/// Returns the beginning of a diff.
fn preview(text: &str) -> &str {
    let end = text.char_indices().nth(PREVIEW_CHARACTERS).map_or(text.len(), |(at, _)| at);
    let lines = text.match_indices('\n').nth(PREVIEW_LINES - 1).map_or(text.len(), |(at, _)| at + 1);
    &text[..end.min(lines)]
}

#[cfg(test)]
mod tests {
    use sluice_runs::exchange::watch::{ChangeKind, DiffOmitted, ObservedKind};
    use sluice_state::events::EVENT_DATA_MAX;

    use super::*;
    use crate::runs::test_run::running;

    fn change(path: &[u8], diff: Result<TextDiff, DiffOmitted>) -> FileChange {
        let (change, kind) = (ChangeKind::Modified, ObservedKind::File);
        FileChange { path: path.to_vec(), change, kind, size: Some(7), diff }
    }

    fn text(text: String) -> Result<TextDiff, DiffOmitted> {
        Ok(TextDiff { text, truncated: false, added: 2, removed: 1 })
    }

    fn data(event: &NewLoggedEvent) -> Value {
        serde_json::from_str(&event.event_data).expect("it is JSON")
    }

    #[test]
    fn an_event_has_the_observed_change() {
        let event = file_edited(&running(), &change(b"src/a.rs", text("@@\n-a\n+b\n+c\n".to_owned())), 5);
        assert_eq!(
            data(&event),
            json!({
                "file_path": "/workspace/src/a.rs", "change_type": "modified", "file_type": "file", "size": 7,
                "lines_added": 2, "lines_removed": 1, "diff_preview": "@@\n-a\n+b\n+c\n", "diff_truncated": false,
            })
        );
        assert_eq!((event.source, event.created_us, event.attempt), (EventSource::System, 5, Some(0)));
        assert_eq!(event.check(), Ok(()));
        let omitted = file_edited(&running(), &change(b"a", Err(DiffOmitted::Binary)), 5);
        assert_eq!((&data(&omitted)["diff_omitted"], &omitted.diff), (&json!("binary"), &None));
        let alone = bounded(event, Stored::WithoutDiff).expect("the event stays");
        assert_eq!((&data(&alone)["full_diff_omitted"], &alone.diff), (&json!("too_many"), &None));
    }

    #[test]
    fn a_preview_has_few_lines_and_characters() {
        assert_eq!(preview(&"a\n".repeat(101)), "a\n".repeat(100));
        assert_eq!(preview(&"é".repeat(6000)), "é".repeat(5000));
        assert_eq!(preview("a"), "a");
    }

    #[test]
    fn hostile_names_and_contents_fit_into_an_event() {
        let hostile = "\u{1}".repeat(1 << 20);
        for path in [vec![0xff; 4000], vec![1; 4000], b"\xe2\x80\xae.txt".to_vec()] {
            let event = file_edited(&running(), &change(&path, text(hostile.clone())), 1);
            assert_eq!(event.check(), Ok(()), "{}", event.event_data.len());
            assert!(event.event_data.len() < EVENT_DATA_MAX);
        }
        let event = file_edited(&running(), &change(b"n\xff", Err(DiffOmitted::NotAFile)), 1);
        assert_eq!(data(&event)["file_path_base64"], BASE64_STANDARD.encode(b"/workspace/n\xff"));
    }
}
