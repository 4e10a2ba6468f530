//! One line of an audit file as a typed record.
//!
//! Pure.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::fault::{Fault, FaultKind, fault};
use crate::record::{Close, Control, Epoch, Held, Intent, Open, Outcome, Recovered, Refused, Released, SCHEMA};

/// A record of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the kinds")]
pub enum Record {
    Open(Box<Open<'static>>),
    Intent(Box<Intent<'static>>),
    Outcome(Box<Outcome<'static>>),
    Refused(Box<Refused<'static>>),
    Recovered(Box<Recovered<'static>>),
    Epoch(Box<Epoch<'static>>),
    Control(Box<Control<'static>>),
    Held(Box<Held<'static>>),
    Released(Box<Released<'static>>),
    Close(Box<Close<'static>>),
    /// A record of a kind that this build does not know, with the name of the kind. Readers skip it.
    Other(String),
}

/// One complete line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine<'a> {
    /// Number of the line, from 1, as editors count.
    pub number: u64,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Bytes of the line, with its newline.
    pub bytes: &'a [u8],
    /// Members that every line has.
    pub header: LineHeader,
    /// Record of the line.
    pub record: Record,
}

/// Members that every line has, whatever its kind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "named like the members")]
pub struct LineHeader {
    pub attempt: u32,
    pub kind: String,
    pub prev: String,
    pub run_id: String,
    pub seq: u64,
    pub ts: String,
    pub v: u32,
}

/// Position in a file: number and offset of the next line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named above")]
pub struct Cursor {
    pub line: u64,
    pub offset: u64,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { line: 1, offset: 0 }
    }
}

impl<'a> AuditLine<'a> {
    /// Parses one complete line at this position of its file.
    ///
    /// # Errors
    /// The [`Fault`] of a line that is not a record.
    pub fn parse(at: Cursor, bytes: &'a [u8]) -> Result<Self, Fault> {
        let header: LineHeader = members(at.line, bytes)?;
        if header.v != SCHEMA {
            return Err(fault(at.line, FaultKind::Schema, SCHEMA, header.v));
        }
        let record = match header.kind.as_str() {
            Open::KIND => Record::Open(members(at.line, bytes)?),
            Intent::KIND => Record::Intent(members(at.line, bytes)?),
            Outcome::KIND => Record::Outcome(members(at.line, bytes)?),
            Refused::KIND => Record::Refused(members(at.line, bytes)?),
            Recovered::KIND => Record::Recovered(members(at.line, bytes)?),
            Epoch::KIND => Record::Epoch(members(at.line, bytes)?),
            Control::KIND => Record::Control(members(at.line, bytes)?),
            Held::KIND => Record::Held(members(at.line, bytes)?),
            Released::KIND => Record::Released(members(at.line, bytes)?),
            Close::KIND => Record::Close(members(at.line, bytes)?),
            other => Record::Other(other.to_owned()),
        };
        Ok(Self { number: at.line, offset: at.offset, bytes, header, record })
    }
}

fn members<T: DeserializeOwned>(line: u64, bytes: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(bytes).map_err(|error| {
        if error.is_data() {
            fault(line, FaultKind::Members, "the members of its kind", error)
        } else {
            fault(line, FaultKind::Json, "one JSON object", error)
        }
    })
}
