//! How a record becomes its line: canonical JSON, as serde_json would write it.
//!
//! Pure. serde_json looks for escapes in every name and value byte by byte, which was a tenth of what a small call costs
//! (10,000 of 130,000 instructions). Here names are constants, and text is looked at in one wide pass. That both
//! write the same is tested, for every kind of record and for any text.

use std::borrow::Cow;

/// What can stand in a record.
pub trait WriteJson {
    /// Where there is none it is left out, and not null.
    const LEFT_OUT: bool = false;

    /// There is none, and that is not said.
    fn is_left_out(&self) -> bool {
        false
    }

    /// Adds it as JSON.
    fn write(&self, line: &mut Vec<u8>);

    /// Adds it behind its name, as which stands `,"name":`; the first one of an object has no comma.
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

/// Members in the order in which they are given; a struct with one more does not compile.
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
            fn write(&self, line: &mut Vec<u8>) {
                serde_json::to_writer(line, self).expect("memory does not fail");
            }
        })*
    };
}
integers!(u16 u32 u64 i32);

impl WriteJson for bool {
    const LEFT_OUT: bool = true;

    fn write(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(if *self { b"true" } else { b"false" });
    }
}

impl WriteJson for str {
    fn write(&self, line: &mut Vec<u8>) {
        // A fold without a branch, so that the compiler makes it wide.
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
    fn write(&self, line: &mut Vec<u8>) {
        self.as_str().write(line);
    }
}

impl WriteJson for Cow<'_, str> {
    fn write(&self, line: &mut Vec<u8>) {
        (**self).write(line);
    }
}

impl<T: WriteJson> WriteJson for Option<T> {
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
