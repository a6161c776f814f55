//! `web`: threads that serve the files of a site at random, a few of them most of the time.

use super::{create, file, read};
use crate::interrupt;
use crate::limits::{FILES_PER_DIR, WEB_REQUESTS_PER_FILE};
use crate::turn::Turn;
use rand::{Rng, SeedableRng};

pub(super) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    let (files, bytes) = (turn.files(), turn.plan.file_bytes_of(turn.suite));
    let (threads, requests) = (turn.plan.threads, files * WEB_REQUESTS_PER_FILE);
    let serve = |turn: &Turn| {
        turn.parallel(threads, |thread| {
            let mut random = rand::rngs::StdRng::seed_from_u64(turn.seed << 32 | thread as u64);
            for _ in 0..requests.div_ceil(threads) {
                interrupt::check()?;
                // The cube: half of the requests are for an eighth of the files.
                let number = (random.random::<f64>().powi(3) * files as f64) as usize;
                read(&file(turn.top(0), number.min(files - 1), FILES_PER_DIR), bytes)?;
            }
            Ok(())
        })
    };
    turn.time("publish, sync", files, |turn| {
        create(turn.top(0), files, FILES_PER_DIR, |_| vec![b'w'; bytes])?;
        turn.sync()
    })?;
    let what = |how: &str| format!("{requests} files served, {how}");
    if turn.make_cold()? {
        turn.time(&what("cold"), requests, serve)?;
    } else {
        serve(turn)?;
    }
    turn.time(&what("warm"), requests, serve)?;
    turn.time("remove, sync", files, |turn| {
        for entry in std::fs::read_dir(turn.top(0))? {
            std::fs::remove_dir_all(entry?.path())?;
        }
        turn.sync()
    })
}
