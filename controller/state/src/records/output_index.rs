//! Entries of the index of a run's output: time, stream and position of each piece.
//!
//! Pure.

use super::RecordedStream;

/// Length of an entry in bytes.
pub(super) const ENTRY_LEN: usize = 24;

/// One piece of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexEntry {
    /// Microseconds since 1970.
    pub(super) time_us: i64,
    /// Offset of the first byte in its stream.
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) stream: RecordedStream,
}

impl IndexEntry {
    /// Returns the offset after the last byte.
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    pub(super) fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[..8].copy_from_slice(&self.time_us.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..].copy_from_slice(&(self.stream as u32).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ENTRY_LEN]) -> Option<Self> {
        let (time, rest) = bytes.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let stream = usize::try_from(u32::from_le_bytes(rest.try_into().ok()?)).ok()?;
        Some(Self {
            time_us: i64::from_le_bytes(*time),
            offset: u64::from_le_bytes(*offset),
            length: u32::from_le_bytes(*length),
            stream: *RecordedStream::ALL.get(stream)?,
        })
    }
}

/// Returns the entries up to the first one that does not continue its stream.
pub(super) fn valid_entries(bytes: &[u8]) -> impl Iterator<Item = IndexEntry> {
    let (entries, _torn) = bytes.as_chunks::<ENTRY_LEN>();
    let mut lengths = [0; 2];
    entries.iter().map_while(move |entry| {
        let entry = IndexEntry::decode(entry)?;
        let end = entry.offset.checked_add(entry.length.into())?;
        let length = &mut lengths[entry.stream as usize];
        (entry.length > 0 && std::mem::replace(length, end) == entry.offset).then_some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_end_where_a_stream_does_not_continue() {
        let entry = |stream, offset, length| IndexEntry { time_us: -5, offset, length, stream };
        let (out, err) = (RecordedStream::Stdout, RecordedStream::Stderr);
        let entries = [entry(out, 0, 3), entry(err, 0, 1), entry(out, 3, 2), entry(err, 2, 1), entry(out, 5, 1)];
        let bytes: Vec<u8> = entries.iter().flat_map(IndexEntry::encode).collect();
        assert_eq!(valid_entries(&bytes).collect::<Vec<_>>(), entries[..3]);
        assert_eq!(valid_entries(&bytes[..ENTRY_LEN + 5]).collect::<Vec<_>>(), entries[..1]);
        let foreign = [&entry(out, 0, 1).encode()[..20], &[9, 0, 0, 0]].concat();
        assert_eq!(valid_entries(&foreign).count(), 0);
        assert_eq!(valid_entries(&entry(out, 0, 0).encode()).count(), 0);
    }
}
