//! Values that can be a request body.

use serde_json::Value;

/// A value that can be a request body.
pub trait RequestPayload {
    /// The bytes of the body.
    fn into_bytes(self) -> Vec<u8>;
}

macro_rules! payload {
    ($($from:ty => $into:expr),* $(,)?) => {
        $(impl RequestPayload for $from {
            fn into_bytes(self) -> Vec<u8> {
                ($into)(self)
            }
        })*
    };
}

payload! {
    &str => |text: &str| text.as_bytes().to_vec(),
    String => String::into_bytes,
    &String => |text: &String| text.as_bytes().to_vec(),
    Vec<u8> => |bytes| bytes,
    &[u8] => <[u8]>::to_vec,
    &Vec<u8> => Vec::clone,
    Value => |value: Value| value.to_string().into_bytes(),
    &Value => |value: &Value| value.to_string().into_bytes(),
    () => |()| Vec::new(),
}
