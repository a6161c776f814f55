//! Several mounts of one volume, with outside suites and common programs: what one mount changes, another one
//! reads meanwhile. Each test ends with a comparison of the trees that all mounts show.

mod checker;
mod fsx;
mod git;
mod killed;
mod locks;
mod mail;
mod make;
mod mounting;
mod posix;
mod stopped;
mod web;
