//! Names: of directory entries, with their place in a listing, and of extended attributes.

use crate::limits::{NAME_BYTES_MAX, XATTR_NAME_BYTES_MAX};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;

/// The name of a directory entry: 1 to 255 bytes without `/` and NUL, neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct Name(Bytes);

/// Why some bytes cannot name a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than [`NAME_BYTES_MAX`].
    #[error("a name has at most {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// Empty, `.`, `..`, or with a `/` or NUL in it.
    #[error("a name is not empty, not '.' or '..', and has no '/' or NUL in it")]
    Invalid,
}

impl Name {
    /// Checks and takes the name.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Name, NameError> {
        let bytes = bytes.into();
        if bytes.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        if matches!(&bytes[..], b"" | b"." | b"..") || bytes.iter().any(|b| matches!(b, b'/' | 0)) {
            return Err(NameError::Invalid);
        }
        Ok(Name(bytes))
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Where a listing of the directory shows this name. A function of the name alone, so that it holds
    /// on every client and for as long as the name exists, whatever happens around it.
    pub fn cookie(&self) -> Cookie {
        Cookie::of(&self.0)
    }
}

/// The name of an extended attribute: 1 to 255 bytes without NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct XattrName(Bytes);

/// Why some bytes cannot name an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XattrNameError {
    /// Longer than [`XATTR_NAME_BYTES_MAX`].
    #[error("the name of an attribute has at most {XATTR_NAME_BYTES_MAX} bytes")]
    TooLong,
    /// Empty, or with a NUL in it.
    #[error("the name of an attribute is not empty, and has no NUL in it")]
    Invalid,
}

impl XattrName {
    /// Checks and takes the name.
    pub fn new(bytes: impl Into<Bytes>) -> Result<XattrName, XattrNameError> {
        let bytes = bytes.into();
        if bytes.len() > XATTR_NAME_BYTES_MAX {
            return Err(XattrNameError::TooLong);
        }
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(XattrNameError::Invalid);
        }
        Ok(XattrName(bytes))
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

macro_rules! conversions {
    ($name:ident, $error:ident) => {
        impl TryFrom<Bytes> for $name {
            type Error = $error;
            fn try_from(bytes: Bytes) -> Result<$name, $error> {
                $name::new(bytes)
            }
        }
        impl From<$name> for Bytes {
            fn from(name: $name) -> Bytes {
                name.0
            }
        }
        impl TryFrom<&[u8]> for $name {
            type Error = $error;
            fn try_from(bytes: &[u8]) -> Result<$name, $error> {
                $name::new(Bytes::copy_from_slice(bytes))
            }
        }
        impl TryFrom<&str> for $name {
            type Error = $error;
            fn try_from(name: &str) -> Result<$name, $error> {
                $name::try_from(name.as_bytes())
            }
        }
        impl Borrow<[u8]> for $name {
            fn borrow(&self) -> &[u8] {
                &self.0
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", String::from_utf8_lossy(&self.0))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                String::from_utf8_lossy(&self.0).fmt(f)
            }
        }
    };
}

conversions!(Name, NameError);
conversions!(XattrName, XattrNameError);

/// A position in a directory listing (`d_off`): listings are ordered by the 63-bit hash of the name, as
/// ext4's are. A listing that resumes "after cookie c" shows every name with a larger hash; names whose
/// hashes collide are shown together, never split.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Before the first name.
    pub const START: Cookie = Cookie(2);

    /// The cookie of a name. Values up to [`Cookie::START`] are kept for the start, `.` and `..`.
    pub fn of(name: &[u8]) -> Cookie {
        Cookie((xxhash_rust::xxh3::xxh3_64(name) >> 1).max(Cookie::START.0 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_directory_can_hold_are_refused() {
        for bad in ["", ".", "..", "a/b", "a\0b"] {
            assert_eq!(Name::try_from(bad), Err(NameError::Invalid), "{bad:?}");
        }
        assert_eq!(Name::new(vec![b'x'; 256]), Err(NameError::TooLong));
        assert!(Name::new(vec![b'x'; 255]).is_ok());
        assert!(Name::try_from("...").is_ok());
    }

    #[test]
    fn attributes_may_have_names_that_no_directory_can_hold() {
        for good in ["user.a/b", ".", "..", "user./"] {
            assert!(XattrName::try_from(good).is_ok(), "{good:?}");
        }
        assert_eq!(XattrName::try_from(""), Err(XattrNameError::Invalid));
        assert_eq!(XattrName::try_from("a\0b"), Err(XattrNameError::Invalid));
        assert_eq!(XattrName::new(vec![b'x'; 256]), Err(XattrNameError::TooLong));
    }

    #[test]
    fn cookies_of_names_never_change() {
        // Part of the disk format: a changed value would lose entries of existing volumes.
        assert_eq!(Cookie::of(b"Makefile"), Cookie(xxhash_rust::xxh3::xxh3_64(b"Makefile") >> 1));
        assert!(Cookie::of(b"x") > Cookie::START);
    }
}
