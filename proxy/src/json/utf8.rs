//! UTF-8 check of bytes that come in pieces.

/// State of the check: holds up to three bytes of a character that a piece cut.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Utf8 {
    cut: [u8; 4],
    len: usize,
}

impl Utf8 {
    /// Takes bytes. Returns false once they cannot be UTF-8. If `ends` is true, no character may continue after
    /// `run`.
    pub(super) fn feed(&mut self, mut run: &[u8], ends: bool) -> bool {
        while self.len > 0 {
            let Some((first, rest)) = run.split_first() else {
                return !ends;
            };
            self.cut[self.len] = *first;
            self.len += 1;
            run = rest;
            match std::str::from_utf8(&self.cut[..self.len]) {
                Ok(_) => self.len = 0,
                Err(e) if e.error_len().is_none() && self.len < 4 => {}
                Err(_) => return false,
            }
        }
        match std::str::from_utf8(run) {
            Ok(_) => true,
            Err(e) if e.error_len().is_none() && !ends => {
                let tail = &run[e.valid_up_to()..];
                self.cut[..tail.len()].copy_from_slice(tail);
                self.len = tail.len();
                true
            }
            Err(_) => false,
        }
    }

    /// Returns true if no character is cut at the moment.
    pub(super) fn is_complete(&self) -> bool {
        self.len == 0
    }
}
