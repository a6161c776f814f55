//! The helpers of `mount -t shoal` and `umount`. mount(8) calls `/sbin/mount.shoal SOURCE DIR [-sfnv] [-o
//! OPTIONS]`, umount(8) calls `/sbin/umount.fuse.shoal DIR [-nlfrv]`. Both are links to this program, with
//! the exit codes that mount(8) expects: 0, 1 for a wrong invocation, 32 for a failure.

use super::mount::Mount;
use super::umount::Umount;
use crate::options::Options;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Of mount(8): incorrect invocation.
const WRONG_CALL: u8 = 1;
/// Of mount(8): mount failure.
const FAILED: u8 = 32;

/// The task of a helper.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
enum Call {
    Mount { source: PathBuf, point: PathBuf, options: Options, fake: bool, verbose: bool },
    Umount { point: PathBuf, lazy: bool, force: bool },
}

/// Runs as a helper if the program was invoked under a helper's name.
pub fn run_if_called(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let called = arguments.next()?;
    let parse: fn(Vec<OsString>) -> Result<Call, String> = match Path::new(&called).file_name()?.to_str()? {
        "mount.shoal" | "mount.fuse.shoal" => parse_mount,
        "umount.shoal" | "umount.fuse.shoal" => parse_umount,
        _ => return None,
    };
    let name = Path::new(&called).file_name().unwrap_or(OsStr::new("shoal")).to_string_lossy().into_owned();
    Some(match parse(arguments.collect()) {
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::from(WRONG_CALL)
        }
        Ok(call) => match call.run() {
            Ok(code) => code,
            Err(error) => {
                eprintln!("{name}: {}", crate::show::runnable(&format!("{error:#}")));
                ExitCode::from(FAILED)
            }
        },
    })
}

impl Call {
    fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Call::Mount { fake: true, .. } => Ok(ExitCode::SUCCESS),
            Call::Mount { source, point, options, verbose, .. } => {
                if verbose {
                    println!("mount.shoal: {} on {}", source.display(), point.display());
                }
                Mount::of(source, point, options).run()
            }
            Call::Umount { point, lazy, force } => Umount::of(point, lazy, force).run(),
        }
    }
}

fn parse_mount(arguments: Vec<OsString>) -> Result<Call, String> {
    let (mut places, mut words, mut sloppy, mut fake, mut verbose) =
        (Vec::new(), Vec::new(), false, false, false);
    for argument in split(arguments, "oNt")? {
        match argument {
            Argument::Place(place) => places.push(place),
            Argument::Flag('s') => sloppy = true,
            Argument::Flag('f') => fake = true,
            Argument::Flag('v') => verbose = true,
            Argument::Flag('r') => words.push("ro".to_owned()),
            // There is no mtab to write, and read-write is the default: nothing to do.
            Argument::Flag('n' | 'w') => {}
            Argument::Value('o', value) => words.push(value.to_string_lossy().into_owned()),
            Argument::Value('N', _) => return Err("mounting in another namespace is not supported".into()),
            Argument::Value(..) => {}
            Argument::Flag(other) => return Err(format!("there is no option -{other}")),
        }
    }
    let words = words.join(",");
    let options = if sloppy { Options::parse_sloppily(&words) } else { words.parse()? };
    match <[PathBuf; 2]>::try_from(places) {
        Ok([source, point]) => Ok(Call::Mount { source, point, options, fake, verbose }),
        Err(_) => Err("call it as `mount.shoal HOST:/VOLUME DIRECTORY [-o OPTIONS]`".into()),
    }
}

fn parse_umount(arguments: Vec<OsString>) -> Result<Call, String> {
    let (mut places, mut lazy, mut force) = (Vec::new(), false, false);
    for argument in split(arguments, "Nt")? {
        match argument {
            Argument::Place(place) => places.push(place),
            Argument::Flag('l') => lazy = true,
            Argument::Flag('f') => force = true,
            Argument::Flag('n' | 'v' | 'r') => {}
            Argument::Value('N', _) => return Err("unmounting in another namespace is not supported".into()),
            Argument::Value(..) => {}
            Argument::Flag(other) => return Err(format!("there is no option -{other}")),
        }
    }
    match <[PathBuf; 1]>::try_from(places) {
        Ok([point]) => Ok(Call::Umount { point, lazy, force }),
        Err(_) => Err("call it as `umount.fuse.shoal DIRECTORY`".into()),
    }
}

/// A part of a helper's command line.
enum Argument {
    Place(PathBuf),
    Flag(char),
    Value(char, OsString),
}

/// Parses a command line; the letters in `valued` take a value, attached or as the next word.
fn split(arguments: Vec<OsString>, valued: &str) -> Result<Vec<Argument>, String> {
    let mut parts = Vec::new();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let Some(letters) =
            argument.to_str().and_then(|word| word.strip_prefix('-')).filter(|word| !word.is_empty())
        else {
            parts.push(Argument::Place(argument.into()));
            continue;
        };
        for (at, letter) in letters.char_indices() {
            if !valued.contains(letter) {
                parts.push(Argument::Flag(letter));
                continue;
            }
            let attached = letters.get(at + letter.len_utf8()..).filter(|value| !value.is_empty());
            let value = attached.map(OsString::from).or_else(|| rest.next());
            parts.push(Argument::Value(letter, value.ok_or_else(|| format!("-{letter} wants a value"))?));
            break;
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_helper_is_called_as_mount_calls_it() {
        let line = "node1,node2:/web /mnt/web -sfnv -o rw,_netdev,noatime,x-initrd.mount,unheard-of -o nodev -t shoal";
        match parse_mount(words(line)).unwrap() {
            Call::Mount { source, point, options, fake, verbose } => {
                assert_eq!((source.to_str(), point.to_str()), (Some("node1,node2:/web"), Some("/mnt/web")));
                assert!(options.mount.nodev && fake && verbose);
                assert_eq!(options.words(), "rw,_netdev,noatime,x-initrd.mount,nodev");
            }
            other => panic!("{other:?}"),
        }
        match parse_mount(words("-r -oprivate node1:/web /mnt")).unwrap() {
            Call::Mount { options, fake, .. } => {
                assert!(options.mount.read_only && !options.mount.allow_other && !fake);
            }
            other => panic!("{other:?}"),
        }
        for (bad, why) in [
            ("node1:/web", "call it as"),
            ("node1:/web /mnt /more", "call it as"),
            ("node1:/web /mnt -x", "-x"),
            ("node1:/web /mnt -o", "-o wants a value"),
            ("node1:/web /mnt -o sync", "sync"),
            ("node1:/web /mnt -N /proc/1/ns/mnt", "namespace"),
        ] {
            let error = parse_mount(words(bad)).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_helper_unmounts_as_umount_asks() {
        for (line, how) in [
            ("/mnt/web", (false, false)),
            ("/mnt/web -n -v -t fuse.shoal", (false, false)),
            ("-l /mnt/web", (true, false)),
            ("/mnt/web -f", (false, true)),
            ("/mnt/web -fl", (true, true)),
        ] {
            match parse_umount(words(line)).unwrap() {
                Call::Umount { point, lazy, force } => {
                    assert_eq!((point.to_str(), (lazy, force)), (Some("/mnt/web"), how))
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(parse_umount(words("")).is_err() && parse_umount(words("/a /b")).is_err());
        assert!(parse_umount(words("/a -q")).is_err());
    }

    #[test]
    fn other_names_are_no_helpers() {
        assert!(run_if_called(words("/usr/bin/shoal status").into_iter()).is_none());
        assert!(run_if_called(words("mount.other a b").into_iter()).is_none());
        assert_eq!(run_if_called(words("/sbin/mount.shoal").into_iter()), Some(ExitCode::from(WRONG_CALL)));
        assert_eq!(run_if_called(words("mount.shoal n:/v /mnt -f").into_iter()), Some(ExitCode::SUCCESS));
        let nowhere = words("umount.fuse.shoal /proc/self/nowhere");
        assert_eq!(run_if_called(nowhere.into_iter()), Some(ExitCode::from(FAILED)));
    }
}
