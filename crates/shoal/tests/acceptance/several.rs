//! Several mounts of one volume, with outside suites and programs that people run: what one mount does, another looks at, all the time.
//! Each test ends with a comparison of everything that all mounts show.

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
