//! `make` on one mount, with sources that are edited on another one, on which the result is run.

use crate::harness::{Shared, run, sh};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const SOURCES: usize = 20;
/// Each source includes one of the headers.
const HEADERS: usize = 3;

const MAKEFILE: &str = "CFLAGS = -O0 -MMD
OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))
sum: $(OBJECTS)
	gcc -o $@ $^
%.o: %.c
	gcc $(CFLAGS) -c -o $@ $<
-include $(OBJECTS:.o=.d)
";

/// A program that prints the sum of the values in its headers, once for each source.
fn write_project(dir: &Path) {
    fs::create_dir(dir).expect("a directory can be made");
    fs::write(dir.join("Makefile"), MAKEFILE).expect("a file can be written");
    for header in 0..HEADERS {
        write_header(dir, header, 1);
    }
    let (mut declared, mut sum) = (String::new(), "0".to_owned());
    for source in 0..SOURCES {
        let header = source % HEADERS;
        let text = format!("#include \"h{header}.h\"\nint f{source}(void) {{ return VALUE{header}; }}\n");
        fs::write(dir.join(format!("f{source}.c")), text).expect("a file can be written");
        declared += &format!("int f{source}(void);\n");
        sum += &format!(" + f{source}()");
    }
    let main =
        format!("#include <stdio.h>\n{declared}int main(void) {{ printf(\"%d\\n\", {sum}); return 0; }}\n");
    fs::write(dir.join("main.c"), main).expect("a file can be written");
}

fn write_header(dir: &Path, header: usize, value: i32) {
    let text = format!("#define VALUE{header} {value}\n");
    fs::write(dir.join(format!("h{header}.h")), text).expect("a file can be written");
}

/// The sources that make compiles.
fn make(dir: &Path) -> BTreeSet<String> {
    let said = sh(dir, "make -j4").ok();
    let compiled = said.lines().filter(|line| line.contains(" -c "));
    compiled.filter_map(|line| line.split(' ').next_back().map(str::to_owned)).collect()
}

fn printed(dir: &Path) -> i32 {
    run(dir.join("sum")).ok().trim().parse().expect("a number is printed")
}

#[test]
fn make_builds_on_one_mount_what_is_edited_and_run_on_another() {
    let volume = Shared::start("several-make", 2);
    let [one, other] = [0, 1].map(|mount| volume.path(mount).join("project"));
    write_project(&one);
    assert_eq!(make(&one).len(), SOURCES + 1);
    assert_eq!(printed(&other), SOURCES as i32);
    assert!(make(&other).is_empty(), "the other mount builds again what has just been built");

    // Each mount edits what the other one builds, in turn.
    let mut expected = [1; HEADERS];
    for round in 0..2 * HEADERS {
        let (edits, builds) = if round % 2 == 0 { (&other, &one) } else { (&one, &other) };
        let header = round % HEADERS;
        expected[header] = 10 + round as i32;
        write_header(edits, header, expected[header]);
        let wanted: BTreeSet<String> =
            (header..SOURCES).step_by(HEADERS).map(|source| format!("f{source}.c")).collect();
        assert_eq!(make(builds), wanted, "round {round}");
        let sum: i32 = (0..SOURCES).map(|source| expected[source % HEADERS]).sum();
        assert_eq!((printed(edits), printed(builds)), (sum, sum), "round {round}");
        assert!(make(edits).is_empty(), "round {round}: there is nothing left to build");
    }
    volume.finish();
}

#[test]
fn one_tree_is_built_by_two_mounts_at_the_same_time_in_directories_of_their_own() {
    let volume = Shared::start("several-builds", 3);
    write_project(&volume.path(0).join("project"));
    // Both mounts build the same sources, with their object files side by side.
    let build = |mount: usize| {
        let dir = volume.path(mount).join(format!("build{mount}"));
        fs::create_dir(&dir).expect("a directory can be made");
        sh(&dir, "ln -s ../project/*.[ch] ../project/Makefile . && make -j2").ok();
    };
    std::thread::scope(|scope| {
        let builds = [0, 1].map(|mount| scope.spawn(move || build(mount)));
        for build in builds {
            build.join().expect("it builds");
        }
    });
    for mount in 0..2 {
        assert_eq!(printed(&volume.path(2).join(format!("build{mount}"))), SOURCES as i32);
    }
    volume.finish();
}
