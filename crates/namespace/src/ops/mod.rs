//! The operations, one per file, each written once for every [`Tree`].
//!
//! **Order inside an operation.** First everything is read and checked, then everything is written. A
//! failure, be it an errno or a tree that does not know enough, has therefore changed nothing.
//!
//! **Whose errors.** The kernel has looked up the names before it asks, so most errors below never reach a
//! program. They are here because an operation is also applied on a server, which believes no client.
//!
//! **What a tree must hold.** A name without an inode behind it is damage and ends in `EIO`.

mod content;
mod names;
mod privileges;

pub mod clone_range;
pub mod compact;
pub mod create;
pub mod create_unnamed;
pub mod flags;
pub mod forget;
pub mod link;
pub mod removexattr;
pub mod rename;
pub mod rmdir;
pub mod setattr;
pub mod setflags;
pub mod setxattr;
pub mod unlink;
pub mod write;

use crate::{Fault, Op, Tree};

/// Applies an operation.
pub fn apply<T: Tree>(tree: &mut T, op: &Op) -> Result<(), Fault<T::Error>> {
    match op {
        Op::Create { parent, name, ino, new } => create::apply(tree, *parent, name, *ino, new),
        Op::Link { ino, parent, name, time } => link::apply(tree, *ino, *parent, name, *time),
        Op::Unlink { parent, name, time, keep } => unlink::apply(tree, *parent, name, *time, *keep),
        Op::Rmdir { parent, name, time, keep } => rmdir::apply(tree, *parent, name, *time, *keep),
        Op::Rename { from, from_name, to, to_name, flags, time, keep } => {
            rename::apply(tree, (*from, from_name), (*to, to_name), *flags, *time, *keep)
        }
        Op::SetAttr { ino, set } => setattr::apply(tree, *ino, set),
        Op::Write { ino, offset, len, content, size_min, time, clear_setid, declare } => {
            let write = write::Write {
                offset: *offset,
                len: *len,
                content: content.as_ref(),
                size_min: *size_min,
                time: *time,
                clear_setid: *clear_setid,
                declare: *declare,
            };
            write::apply(tree, *ino, &write)
        }
        Op::CloneRange { src, src_offset, dst, dst_offset, len, time, clear_setid } => {
            clone_range::apply(tree, (*src, *src_offset), (*dst, *dst_offset), *len, *time, *clear_setid)
        }
        Op::SetXattr { ino, name, value, how, time } => setxattr::apply(tree, *ino, name, value, *how, *time),
        Op::RemoveXattr { ino, name, time } => removexattr::apply(tree, *ino, name, *time),
        Op::Forget { ino } => forget::apply(tree, *ino),
        Op::Compact { ino, offset, expected, block, info } => {
            compact::apply(tree, *ino, *offset, expected, *block, *info)
        }
        Op::CreateUnnamed { parent, ino, new } => create_unnamed::apply(tree, *parent, *ino, new),
        Op::SetFlags { ino, flags, time } => setflags::apply(tree, *ino, *flags, *time),
    }
}
