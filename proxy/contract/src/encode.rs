//! Encoder of records: canonical JSON, byte for byte as serde_json would write it.
//!
//! Pure. serde_json searches every name and value for escapes byte by byte, which was a tenth of the cost of a small
//! call (10,000 of 130,000 instructions). Here names are constants, and text is searched in one wide pass. Tests check
//! that both write the same, for every kind of record and for any text.

use std::borrow::Cow;

/// A value of a record.
pub trait WriteJson {
    /// True if an absent value is left out of the line, false if it is written as null.
    const LEFT_OUT: bool = false;

    /// Returns true if the value is absent and left out.
    fn is_left_out(&self) -> bool {
        false
    }

    /// Appends the value as JSON.
    fn write(&self, line: &mut Vec<u8>);

    /// Appends the name and the value. `name` is given as `,"name":`; the first member of an object loses the comma.
    #[inline]
    fn write_named(&self, name: &'static str, line: &mut Vec<u8>) {
        if self.is_left_out() {
            return;
        }
        let comma = usize::from(line.ends_with(b"{"));
        line.extend_from_slice(&name.as_bytes()[comma..]);
        self.write(line);
    }
}

/// Writes members in the given order; a struct with a member that is not given does not compile.
macro_rules! write_members {
    ($self:ident, $line:ident, { $($field:ident),* $(,)? }) => {{
        let Self { $($field),* } = $self;
        $line.push(b'{');
        $($crate::encode::WriteJson::write_named($field, concat!(",\"", stringify!($field), "\":"), $line);)*
        $line.push(b'}');
    }};
}
pub(crate) use write_members;

macro_rules! integers {
    ($($ty:ty)*) => {
        $(impl WriteJson for $ty {
            #[inline]
            fn write(&self, line: &mut Vec<u8>) {
                serde_json::to_writer(line, self).expect("memory does not fail");
            }
        })*
    };
}
integers!(u16 u32 u64 i32);

impl WriteJson for bool {
    const LEFT_OUT: bool = true;

    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

impl WriteJson for str {
    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        // A fold without a branch, which the compiler can vectorise.
        let plain = self.bytes().fold(true, |plain, b| plain & (b >= 0x20) & (b != b'"') & (b != b'\\'));
        if plain {
            line.reserve(self.len() + 2);
            line.push(b'"');
            line.extend_from_slice(self.as_bytes());
            line.push(b'"');
        } else {
            serde_json::to_writer(line, self).expect("memory does not fail");
        }
    }
}

impl WriteJson for String {
    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        self.as_str().write(line);
    }
}

impl WriteJson for Cow<'_, str> {
    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        (**self).write(line);
    }
}

impl<T: WriteJson> WriteJson for Option<T> {
    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        match self {
            Some(member) => member.write(line),
            None => line.extend_from_slice(b"null"),
        }
    }

    fn is_left_out(&self) -> bool {
        T::LEFT_OUT && self.is_none()
    }
}

impl<T: WriteJson> WriteJson for Vec<T> {
    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        line.push(b'[');
        for (n, member) in self.iter().enumerate() {
            if n > 0 {
                line.push(b',');
            }
            member.write(line);
        }
        line.push(b']');
    }
}
