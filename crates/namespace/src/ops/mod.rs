//! One operation, one file.
