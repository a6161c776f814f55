//! git repositories that are used from several mounts.

use crate::harness::{Shared, sh};
use std::path::Path;

const ROUNDS: usize = 6;
/// Commits that each clone pushes.
const PUSHES: usize = 8;

/// git with its settings in a directory of the test's own.
fn git(home: &Path, dir: &Path, script: &str) -> String {
    let run = sh(dir, script).env("HOME", home).env("GIT_CONFIG_NOSYSTEM", "1");
    ["AUTHOR", "COMMITTER"]
        .iter()
        .fold(run, |run, who| {
            run.env(&format!("GIT_{who}_NAME"), "Test").env(&format!("GIT_{who}_EMAIL"), "test@example.org")
        })
        .ok()
}

#[test]
fn a_git_repository_is_worked_on_from_two_mounts_in_turn() {
    let volume = Shared::start("several-git", 2);
    let home = volume.local();
    git(
        &home,
        volume.path(0),
        "git init -q -b main repo && cd repo && mkdir src doc
        for i in $(seq 60); do echo \"line $i\" >src/f$i.c; done; git add -A && git commit -qm 'round 0'",
    );
    let repositories = [0, 1].map(|mount| volume.path(mount).join("repo"));
    for round in 1..=ROUNDS {
        let (one, other) = (&repositories[round % 2], &repositories[(round + 1) % 2]);
        git(
            &home,
            one,
            &format!(
                "git switch -qc side{round} && for i in $(seq {round} 7 60); do echo side{round} >>src/f$i.c; done
                git mv src/f{round}.c doc/g{round}.c && git commit -qam 'side {round}' && git switch -q main
                echo {round} >>log{round} && git add -A && git commit -qm 'round {round}'"
            ),
        );
        // A commit on one mount is the head on the other one, whose working tree is clean.
        let head = git(&home, one, "git rev-parse HEAD side*");
        assert_eq!(git(&home, other, "git rev-parse HEAD side*"), head);
        assert_eq!(git(&home, other, "git status --porcelain"), "");
        assert!(git(&home, other, "git log --oneline -1").contains(&format!("round {round}")));
        git(&home, other, &format!("git merge -q --no-edit side{round} && git branch -qd side{round}"));
        assert_eq!(git(&home, one, "git status --porcelain"), "");
        match round % 3 {
            0 => drop(git(&home, other, "git gc -q --prune=now")),
            1 => drop(git(&home, one, "git repack -qad && git pack-refs --all")),
            _ => drop(git(&home, one, "git stash list && git reset -q --hard")),
        }
        assert_eq!(
            git(&home, one, "git log --format=%H | wc -l").trim(),
            (1 + 3 * round).to_string(),
            "commits after round {round}"
        );
    }
    for repository in &repositories {
        git(&home, repository, "git fsck --full --strict && test -z \"$(git status --porcelain)\"");
        assert_eq!(git(&home, repository, "ls doc | wc -l").trim(), ROUNDS.to_string());
    }
    volume.finish();
}

#[test]
fn clones_on_several_mounts_push_to_one_repository_at_the_same_time() {
    let volume = Shared::start("several-push", 3);
    let home = volume.local();
    git(
        &home,
        volume.path(0),
        "git init -q --bare -b main origin.git && git clone -q origin.git first 2>/dev/null && cd first
        git switch -qc main && echo begin >begin && git add -A && git commit -qm begin && git push -q origin main",
    );
    // A client whose push is rejected merges what was pushed before and retries.
    let work = |mount: usize| {
        git(
            &home,
            volume.path(mount),
            &format!(
                "git clone -q {0}/origin.git clone{mount} && cd clone{mount} && git config gc.auto 0
                for i in $(seq {PUSHES}); do
                    echo $i >file{mount}-$i && git add -A && git commit -qm {mount}-$i
                    tries=0
                    until git push -q origin main 2>../push{mount}; do
                        tries=$((tries + 1)) && test $tries -lt 100 || {{ cat ../push{mount} >&2; exit 1; }}
                        git pull -q --rebase origin main
                    done
                done",
                volume.path(mount).display()
            ),
        )
    };
    std::thread::scope(|scope| {
        let workers = [0, 1, 2].map(|mount| scope.spawn(move || work(mount)));
        for worker in workers {
            worker.join().expect("every push gets through in the end");
        }
    });
    for mount in 0..3 {
        let origin = volume.path(mount).join("origin.git");
        git(&home, &origin, "git fsck --full --strict");
        let commits = git(&home, &origin, "git log --format=%s main");
        assert_eq!(commits.lines().count(), 1 + 3 * PUSHES, "{commits}");
        assert_eq!(git(&home, &origin, "git ls-tree main | wc -l").trim(), (1 + 3 * PUSHES).to_string());
    }
    volume.finish();
}
