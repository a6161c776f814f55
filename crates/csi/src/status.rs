//! Why a call failed, in the codes of gRPC.

use std::fmt::Write;

/// The codes of gRPC that the specification names for the driver's calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Code {
    InvalidArgument = 3,
    NotFound = 5,
    AlreadyExists = 6,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub code: Code,
    pub message: String,
}

/// Makes a constructor for each code.
macro_rules! constructors {
    ($($name:ident: $code:ident)*) => {
        impl Status {
            $(pub fn $name(message: impl Into<String>) -> Status {
                Status { code: Code::$code, message: message.into() }
            })*
        }
    };
}

constructors! {
    invalid_argument: InvalidArgument
    not_found: NotFound
    already_exists: AlreadyExists
    failed_precondition: FailedPrecondition
    aborted: Aborted
    out_of_range: OutOfRange
    unimplemented: Unimplemented
    internal: Internal
    unavailable: Unavailable
}

impl Status {
    /// The message as a header: all but printable ASCII is percent-encoded.
    pub fn header(&self) -> String {
        let mut text = String::new();
        for byte in self.message.bytes() {
            match byte {
                b'%' | 0..b' ' | 0x7f.. => {
                    let _ = write!(text, "%{byte:02X}");
                }
                plain => text.push(char::from(plain)),
            }
        }
        text
    }
}

impl From<anyhow::Error> for Status {
    fn from(error: anyhow::Error) -> Status {
        Status::internal(format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_one_line_of_ascii_in_its_header() {
        let status = Status::not_found("100 % of\n'ä' is away");
        assert_eq!(status.header(), "100 %25 of%0A'%C3%A4' is away");
    }
}
