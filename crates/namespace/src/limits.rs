//! Limits of the namespace. Those that clients must know too stand in [`shoal_types::limits`].

use shoal_types::limits::INLINE_BYTES_DEFAULT;

/// Steps that a walk from a directory up to the root may take. No real path comes near; a damaged volume whose
/// directories form a ring must end in an error and not in a loop.
pub const ANCESTORS_MAX: u32 = 1 << 20;

/// Neighbouring inline extents are joined up to this many bytes. A file that is appended to in small pieces stays one
/// record; a longer one would be copied and stored again too often. Both sides of the wire must agree on it, so it is no setting.
pub const INLINE_JOIN_BYTES_MAX: u64 = INLINE_BYTES_DEFAULT as u64;
