//! Values that a line leaves out where there are none.
//!
//! Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::INTEGER_MAX;
use crate::encode::WriteJson;

/// A number of tokens, in a member that is left out where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenCount(pub u64);

impl WriteJson for TokenCount {
    const LEFT_OUT: bool = true;

    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        self.0.min(INTEGER_MAX).write(line);
    }
}

/// A text, in a member that is left out where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OptionalText<'a>(pub Cow<'a, str>);

impl WriteJson for OptionalText<'_> {
    const LEFT_OUT: bool = true;

    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        self.0.write(line);
    }
}

/// Several texts, in a member that is left out where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OptionalTexts<'a>(pub Vec<Cow<'a, str>>);

impl WriteJson for OptionalTexts<'_> {
    const LEFT_OUT: bool = true;

    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        self.0.write(line);
    }
}

/// Bytes of memory, in a member that is left out where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteCount(pub u64);

impl WriteJson for ByteCount {
    const LEFT_OUT: bool = true;

    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        self.0.write(line);
    }
}
