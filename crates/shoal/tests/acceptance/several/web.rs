//! A web root that is served from one mount and edited on another: a request after a change gets the new
//! content.

use crate::harness::command::Running;
use crate::harness::{Shared, run};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const PORT: u16 = 8000;
/// How often each way of editing is tried.
const ROUNDS: usize = 60;
/// A server that does not answer fails the test.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A server and how to ask it.
struct Web {
    address: String,
    _server: Running,
}

impl Web {
    fn serve(volume: &Shared, root: &Path) -> Web {
        let server = run("python3").arg("-m").arg("http.server").arg("--bind").arg(volume.address());
        let server = server.arg("--directory").arg(root).arg(PORT.to_string()).start();
        let web = Web { address: format!("{}:{PORT}", volume.address()), _server: server };
        let until = Instant::now() + ANSWER_LIMIT;
        while TcpStream::connect(&web.address).is_err() {
            assert!(Instant::now() < until, "the web server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        web
    }

    /// Status and body.
    fn get(&self, path: &str) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).expect("the web server answers");
        stream.set_read_timeout(Some(ANSWER_LIMIT)).expect("a time limit can be set");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("it can be asked");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
        let body = answer.split_off(end + 4);
        let head = String::from_utf8_lossy(&answer);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("no status in {head}")), body)
    }

    fn shows(&self, path: &str, wanted: &[u8], what: &str) {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{what}: {path}");
        let (found, wanted) = (String::from_utf8_lossy(&body), String::from_utf8_lossy(wanted));
        assert!(found == wanted, "{what}: {path} is served as\n{found}\ninstead of\n{wanted}");
    }
}

/// A page of a round; every line names it. Pages of one parity are of equal length.
fn page(round: usize) -> Vec<u8> {
    format!("<p>round {round:06}</p>\n").repeat(if round.is_multiple_of(2) { 20 } else { 400 }).into_bytes()
}

#[test]
fn a_changed_file_is_served_changed_at_once_however_it_was_changed() {
    let volume = Shared::start("several-web", 2);
    let root = volume.path(0).join("www");
    fs::create_dir(&root).expect("a directory can be made");
    let web = Web::serve(&volume, &volume.path(1).join("www"));
    let file = root.join("page.html");
    fs::write(&file, page(0)).expect("write");
    web.shows("/page.html", &page(0), "a new file");
    let open = OpenOptions::new().write(true).open(&file).expect("open");
    for round in 1..=ROUNDS {
        // Written in place, with equal length.
        open.write_all_at(&page(2 * round), 0).expect("write in place");
        web.shows("/page.html", &page(2 * round), "rewritten in place");
    }
    drop(open);
    for round in 1..=ROUNDS {
        fs::write(&file, page(round)).expect("truncate and write");
        web.shows("/page.html", &page(round), "truncated and rewritten");
    }
    for round in 1..=ROUNDS {
        let next = root.join(".page.html.next");
        fs::write(&next, page(round)).expect("write");
        fs::rename(&next, &file).expect("rename");
        web.shows("/page.html", &page(round), "replaced by rename");
    }
    for round in 1..=ROUNDS {
        fs::remove_file(&file).expect("unlink");
        assert_eq!(web.get("/page.html").0, 404, "removed");
        let mut made = File::create_new(&file).expect("create");
        made.write_all(&page(round)).expect("write");
        web.shows("/page.html", &page(round), "made anew");
    }
    // A whole site is replaced by renaming its directory, and listed.
    for round in 1..=ROUNDS {
        let site = root.join(format!("site-{round}"));
        fs::create_dir(&site).expect("mkdir");
        fs::write(site.join("index.html"), page(round)).expect("write");
        let live = root.join("site");
        if round > 1 {
            fs::rename(&live, root.join(format!("old-{round}"))).expect("the old one is moved away");
            assert_eq!(web.get("/site/index.html").0, 404, "moved away");
        }
        fs::rename(&site, &live).expect("the new one takes its place");
        web.shows("/site/index.html", &page(round), "a directory moved here");
        let listing = String::from_utf8(web.get("/").1).expect("names are ASCII");
        let old = format!("old-{round}/");
        assert_eq!(listing.contains(&old), round > 1, "the listing after round {round}:\n{listing}");
    }
    drop(web);
    volume.finish();
}
