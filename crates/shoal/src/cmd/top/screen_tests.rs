use super::screen::draw;
use super::state::{Key, Sort, State, What};
use super::state_tests::{cluster, learn, loaded, profile};
use super::text;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const NOW: u64 = 1_767_225_599 + 104;

fn screen(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen in memory");
    terminal.draw(|frame| draw(frame, state, NOW)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| format!("{}\n", line(y).trim_end())).collect()
}

#[track_caller]
fn same(screen: &str, expected: &str) {
    assert_eq!(screen.trim_end(), expected.trim_start_matches('\n').trim_end(), "\n{screen}");
}

#[test]
fn small_terminal_shows_charts_and_all_tables() {
    same(
        &screen(&loaded(false), 80, 24),
        "
 shoal top  web (2 of 2)  cluster 01234567  3 nodes, asked n1      00:01:43 UTC

 read       13.2 MB/s  max 13.2                                               ██
 write      1.10 MB/s  max 1.10                                               ██
 ops       1210 ops/s  max 1210                                               ██
 mean       464.7 us   max 464.7 us                                           ██
 p99          4.2 ms   max 4.2 ms                                             ██

 mount               ops/s▼  rd MB/s  wr MB/s      mean      p99       most time
 web1:/mnt/web         1100     12.0     1.00  464.7 us   4.2 ms       write 62%
 web2:/mnt/web          110     1.20     0.10  464.7 us   4.2 ms       write 62%

 brick               ops/s▼  rd MB/s  wr MB/s      mean      p99       most time
 n3:/srv/web            990     10.8     0.90  464.7 us   4.2 ms         put 62%
 n2:/srv/web            660     7.20     0.60  464.7 us   4.2 ms         put 62%
 n1:/srv/web            330     3.60     0.30  464.7 us   4.2 ms         put 62%

 file                            ops/s▼  rd MB/s  wr MB/s mount
 /a/often                          1600     9.60     9.60 web1:/mnt/web
 /a/seldom                          160     0.96     0.96 web1:/mnt/web
 /projects…directory/b/data.bin      16     0.10     0.10 web1:/mnt/web


 q quit  ? help  p pause  o/r/w/l sort  d directories  Tab volume
",
    );
}

#[test]
fn large_terminal_has_taller_charts_and_longer_names() {
    same(&screen(&loaded(false), 120, 40), "
 shoal top  web (2 of 2)  cluster 01234567  3 nodes, asked n1                                              00:01:43 UTC

 read       13.2 MB/s  max 13.2                                                                                       ██
                                                                                                                      ██
 write      1.10 MB/s  max 1.10                                                                                       ██
                                                                                                                      ██
 ops       1210 ops/s  max 1210                                                                                       ██
                                                                                                                      ██
 mean       464.7 us   max 464.7 us                                                                                   ██
                                                                                                                      ██
 p99          4.2 ms   max 4.2 ms                                                                                     ██
                                                                                                                      ██

 mount                                                       ops/s▼  rd MB/s  wr MB/s      mean      p99       most time
 web1:/mnt/web                                                 1100     12.0     1.00  464.7 us   4.2 ms       write 62%
 web2:/mnt/web                                                  110     1.20     0.10  464.7 us   4.2 ms       write 62%

 brick                                                       ops/s▼  rd MB/s  wr MB/s      mean      p99       most time
 n3:/srv/web                                                    990     10.8     0.90  464.7 us   4.2 ms         put 62%
 n2:/srv/web                                                    660     7.20     0.60  464.7 us   4.2 ms         put 62%
 n1:/srv/web                                                    330     3.60     0.30  464.7 us   4.2 ms         put 62%

 file                                                  ops/s▼  rd MB/s  wr MB/s mount
 /a/often                                                1600     9.60     9.60 web1:/mnt/web
 /a/seldom                                                160     0.96     0.96 web1:/mnt/web
 /projects/2026/no…ong-name-of-a-directory/b/data.bin      16     0.10     0.10 web1:/mnt/web













 q quit  ? help  p pause  o/r/w/l sort  d directories  Tab volume
");
}

#[test]
fn node_that_is_down_is_named_in_the_header_and_its_brick_has_no_figures() {
    same(
        &screen(&loaded(true), 80, 24),
        "
 shoal top  web (2 of 2)  cluster 01234567  3 nodes, asked n1      00:01:43 UTC
 node n3 does not answer; mount web3:/mnt/web does not answer
 read       13.2 MB/s  max 13.2                                               ██
 write      1.10 MB/s  max 1.10                                               ██
 ops       1210 ops/s  max 1210                                               ██
 mean       464.7 us   max 464.7 us                                           ██
 p99          4.2 ms   max 4.2 ms                                             ██

 mount               ops/s▼  rd MB/s  wr MB/s      mean      p99       most time
 web1:/mnt/web         1100     12.0     1.00  464.7 us   4.2 ms       write 62%
 web2:/mnt/web          110     1.20     0.10  464.7 us   4.2 ms       write 62%
 web3:/mnt/web            -        -        -         -        -       no answer

 brick               ops/s▼  rd MB/s  wr MB/s      mean      p99       most time
 n2:/srv/web            660     7.20     0.60  464.7 us   4.2 ms         put 62%
 n1:/srv/web            330     3.60     0.30  464.7 us   4.2 ms         put 62%
 n3:/srv/web              -        -        -         -        -       no answer

 file                            ops/s▼  rd MB/s  wr MB/s mount
 /a/often                          1600     9.60     9.60 web1:/mnt/web
 /a/seldom                          160     0.96     0.96 web1:/mnt/web
 /projects…directory/b/data.bin      16     0.10     0.10 web1:/mnt/web

 q quit  ? help  p pause  o/r/w/l sort  d directories  Tab volume
",
    );
}

#[test]
fn empty_cluster_has_empty_tables_and_says_what_is_missing() {
    same(
        &screen(&cluster(&[], &[]), 80, 24),
        "
 shoal top  (no volume)  cluster 01234567  3 nodes, asked n1       00:01:43 UTC
 the cluster has no volume yet
 read              -
 write             -
 ops               -
 mean              -
 p99               -

 mount               ops/s▼  rd MB/s  wr MB/s      mean      p99       most time
 (no mount)

 brick               ops/s▼  rd MB/s  wr MB/s      mean      p99       most time
 (no brick)

 file                            ops/s▼  rd MB/s  wr MB/s mount
 (no file was read or written)







 q quit  ? help  p pause  o/r/w/l sort  d directories  Tab volume
",
    );
}

#[test]
fn tables_share_the_lines_that_there_are_and_say_how_many_rows_are_left_out() {
    let mut state = loaded(false);
    let mut report = profile(106, false);
    for n in 0..40 {
        let mut one = report.mounts[0].clone();
        one.mount.host = format!("client{n}");
        report.mounts.push(one);
    }
    learn(&mut state, 106, What::Profile(Ok(Box::new(report))));
    state.press(Key::Sort(Sort::Latency));
    let shown = screen(&state, 80, 24);
    for part in [" mount (", " of 42)", "mean▼", " n3:/srv/web", " /a/often"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    // A terminal that is too small shows less, and nothing breaks.
    for (width, height) in [(1, 1), (20, 5), (40, 10), (79, 12), (300, 100)] {
        screen(&state, width, height);
    }
}

#[test]
fn help_lists_the_keys_and_the_volumes_and_a_pause_is_said() {
    let mut state = loaded(false);
    state.press(Key::Help);
    state.press(Key::Pause);
    let shown = screen(&state, 80, 24);
    for part in ["Keys", "pause, and go on", "Volumes: 1 other  2 web", "PAUSED"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    state.press(Key::Help);
    state.press(Key::Directories);
    let shown = screen(&state, 80, 24);
    assert!(shown.contains("\n directory ") && shown.contains("\n /a  "), "{shown}");
}

#[test]
fn text_has_the_same_tables() {
    same(
        &text::tables(loaded(true).shown(), Sort::Read, true),
        "
web, 2026-01-01 00:01:43 UTC, asked n1
note: node n3 does not answer
note: mount web3:/mnt/web does not answer
all mounts: 1210 ops/s, 13.2 MB/s read, 1.10 MB/s written, latency 464.7 us mean, 4.2 ms p99

mount          ops/s  rd MB/s  wr MB/s      mean     p99  most time
web1:/mnt/web   1100     12.0     1.00  464.7 us  4.2 ms  write 62%
web2:/mnt/web    110     1.20     0.10  464.7 us  4.2 ms  write 62%
web3:/mnt/web      -        -        -         -       -  has not answered

brick        ops/s  rd MB/s  wr MB/s      mean     p99  most time
n2:/srv/web    660     7.20     0.60  464.7 us  4.2 ms  put 62%
n1:/srv/web    330     3.60     0.30  464.7 us  4.2 ms  put 62%
n3:/srv/web      -        -        -         -       -  its node does not answer, or does not serve it

file                                                           ops/s  rd MB/s  wr MB/s  mount
/a/often                                                        1600     9.60     9.60  web1:/mnt/web
/a/seldom                                                        160     0.96     0.96  web1:/mnt/web
/projects/2026/november/a-long-name-of-a-directory/b/data.bin     16     0.10     0.10  web1:/mnt/web

directory                                             ops/s  rd MB/s  wr MB/s  mount
/a                                                     1760     10.6     10.6  web1:/mnt/web
/projects/2026/november/a-long-name-of-a-directory/b     16     0.10     0.10  web1:/mnt/web
",
    );
}
