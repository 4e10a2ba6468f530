//! Frames of Server-Sent Events.
//!
//! Pure.

use bytes::Bytes;
use serde::Serialize;

/// Frame that keeps a quiet stream alive.
pub(crate) const PING: &[u8] = b": ping\n\n";

/// Returns a frame. The data are compact JSON without line breaks, so they are one line.
///
/// # Errors
/// The data cannot be written as JSON.
pub(crate) fn frame(
    name: Option<&'static str>,
    id: Option<i64>,
    data: &impl Serialize,
) -> Result<Bytes, serde_json::Error> {
    frame_at(name, id.map(|id| id.to_string()).as_deref(), data)
}

/// Returns a frame. The name and the id must each be one line.
///
/// # Errors
/// The data cannot be written as JSON.
pub(crate) fn frame_at(
    name: Option<&str>,
    id: Option<&str>,
    data: &impl Serialize,
) -> Result<Bytes, serde_json::Error> {
    let mut text = String::new();
    if let Some(id) = id {
        text += &format!("id: {id}\n");
    }
    if let Some(name) = name {
        text += &format!("event: {name}\n");
    }
    text += "data: ";
    text += &serde_json::to_string(data)?;
    text += "\n\n";
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_of_an_agent_begins_no_frame() {
        let data = json!({ "text": "a\n\nid: 9\r\ndata: x\u{2028}" });
        let framed = frame(None, Some(7), &data).expect("plain data");
        let framed = std::str::from_utf8(&framed).expect("text");
        assert_eq!(framed.matches('\n').count(), 3, "{framed:?}");
        assert!(framed.starts_with("id: 7\ndata: {") && framed.ends_with("}\n\n") && !framed.contains('\r'));
        let end = frame(Some("end"), None, &json!({})).expect("plain data");
        assert_eq!(&end[..], b"event: end\ndata: {}\n\n");
    }
}
