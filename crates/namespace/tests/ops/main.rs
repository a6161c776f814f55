//! Every operation, through the log's commands and a store in memory; one file per operation, as in
//! `src/ops`.

#[path = "../common/mod.rs"]
mod common;

mod clone_range;
mod compact;
mod create;
mod flags;
mod forget;
mod heat;
mod hold;
mod link;
mod pages;
mod place;
mod rename;
mod rmdir;
mod setattr;
mod unlink;
mod unnamed;
mod write;
mod xattr;
