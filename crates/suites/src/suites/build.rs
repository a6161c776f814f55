//! `build`: make compiles many small C files that include one header, and then has nothing to do.

use crate::programs::quietly;
use crate::turn::Turn;
use std::fmt::Write;
use std::fs;
use std::process::Command;

fn make(turn: &Turn) -> anyhow::Result<()> {
    let jobs = format!("-j{}", turn.plan.threads);
    quietly(Command::new("make").arg(jobs).arg("-s").current_dir(turn.top(0)))
}

pub(super) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    let files = turn.files();
    let top = turn.top(0);
    let mut rules = "SOURCES := $(wildcard *.c)\nOBJECTS := $(SOURCES:.c=.o)\n\
                     program: $(OBJECTS)\n\tcc -o $@ $(OBJECTS)\n\
                     %.o: %.c all.h\n\tcc -O1 -c -o $@ $<\n"
        .to_owned();
    rules.push_str(".PHONY: clean\nclean:\n\trm -f program $(OBJECTS)\n");
    fs::write(top.join("Makefile"), rules)?;
    let mut header = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
    let mut main = "#include \"all.h\"\nint main(void) { long sum = 0;\n".to_owned();
    for number in 0..files {
        writeln!(header, "int part_{number}(int);")?;
        writeln!(main, "sum += part_{number}({number});")?;
        let body = format!(
            "#include \"all.h\"\nint part_{number}(int x) {{ char t[32]; snprintf(t, 32, \"%d\", x); return atoi(t) + {number}; }}\n"
        );
        fs::write(top.join(format!("part_{number}.c")), body)?;
    }
    main.push_str("return sum < 0; }\n");
    fs::write(top.join("all.h"), header)?;
    fs::write(top.join("main.c"), main)?;
    turn.sync()?;
    if turn.make_cold()? {
        turn.time("make, cold, sync", files, |turn| {
            make(turn)?;
            turn.sync()
        })?;
    } else {
        make(turn)?;
    }
    quietly(Command::new("make").arg("-s").arg("clean").current_dir(turn.top(0)))?;
    turn.time("make, warm, sync", files, |turn| {
        make(turn)?;
        turn.sync()
    })?;
    turn.time("make, nothing to do", files, make)?;
    turn.time("make clean, sync", files, |turn| {
        quietly(Command::new("make").arg("-s").arg("clean").current_dir(turn.top(0)))?;
        turn.sync()
    })
}
