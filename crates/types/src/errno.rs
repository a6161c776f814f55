//! The error numbers a file-system call may end with.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An `errno` value of Linux, as the calling program will see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`, see errno(3).")]
            pub const $name: Errno = Errno(libc::$name);)*

            /// The symbolic name, or `errno` where it is none that Shoal produces.
            pub fn symbol(self) -> &'static str {
                match self { $(Errno::$name => stringify!($name),)* _ => "errno" }
            }
        }
    };
}

errnos! {
    E2BIG EACCES EAGAIN EBADF EBUSY EDEADLK EEXIST EFBIG EINTR EINVAL EIO EISDIR ELOOP EMLINK ENAMETOOLONG ENODATA
    ENODEV ENOENT ENOLCK ENOSPC ENOSYS ENOTCONN ENOTDIR ENOTEMPTY ENXIO EOPNOTSUPP EOVERFLOW EPERM ERANGE EROFS
    ESHUTDOWN ESTALE ETIMEDOUT EXDEV
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.symbol(), std::io::Error::from_raw_os_error(self.0))
    }
}
impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.symbol(), self.0)
    }
}
impl std::error::Error for Errno {}
