//! Sends the queries of the pages, in threads of its own: with a node down an answer takes some seconds.
//!
//! **Bounds.** [`WEB_QUERY_THREADS`] queries are open at a time. The threads sleep while no page is open.

use super::query_cache::{LatestAnswers, QueryCache, StatusQuery};
use crate::admin::{Admin, AdminAnswer};
use crate::limits::{WEB_FIRST_PATIENCE, WEB_FRESH_FOR, WEB_QUERY_THREADS, WEB_STOP_PATIENCE};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The one collector of a node, which all its pages share.
pub struct Collector {
    shared: Arc<Shared>,
}

struct Shared {
    admin: Arc<dyn Admin>,
    began: Instant,
    state: Mutex<State>,
    /// Something is wanted, was answered, or it is time to stop.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    cache: QueryCache,
    stops: bool,
    running: usize,
}

impl Collector {
    /// Starts threads that wait for pages.
    pub fn start(admin: Arc<dyn Admin>) -> io::Result<Collector> {
        let shared =
            Shared { admin, began: Instant::now(), state: Mutex::default(), changed: Condvar::new() };
        let collector = Collector { shared: Arc::new(shared) };
        for _ in 0..WEB_QUERY_THREADS {
            let shared = collector.shared.clone();
            collector.shared.state.lock().running += 1;
            let asking = move || {
                shared.run_queries();
                shared.state.lock().running -= 1;
                shared.changed.notify_all();
            };
            if let Err(error) = std::thread::Builder::new().name("shoal-web-ask".into()).spawn(asking) {
                collector.shared.state.lock().running -= 1;
                return Err(error);
            }
        }
        Ok(collector)
    }

    /// What is known of some queries, which are asked from now on for some time. What `needed` asks is
    /// waited for, in bounded time, if it was not answered lately; the rest may come later.
    pub fn look(&self, needed: &[StatusQuery], wanted: &[StatusQuery]) -> LatestAnswers {
        let shared = &self.shared;
        let due = Instant::now() + WEB_FIRST_PATIENCE;
        let mut state = shared.state.lock();
        let now_ms = shared.now_ms();
        for query in needed.iter().chain(wanted) {
            state.cache.want(query, now_ms);
        }
        shared.changed.notify_all();
        let since_ms = now_ms.saturating_sub(WEB_FRESH_FOR.as_millis() as u64);
        while !state.stops && !needed.iter().all(|one| state.cache.is_settled(one, since_ms)) {
            if shared.changed.wait_until(&mut state, due).timed_out() {
                break;
            }
        }
        state.cache.known().clone()
    }

    /// The time of the cache's clock, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.shared.now_ms()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Collector {
    /// Waits for queries that are open, in bounded time: the server that they ask is about to stop.
    pub fn stop(&self) {
        let due = Instant::now() + WEB_STOP_PATIENCE;
        let mut state = self.shared.state.lock();
        state.stops = true;
        self.shared.changed.notify_all();
        while state.running > 0 && !self.shared.changed.wait_until(&mut state, due).timed_out() {}
    }
}

impl Shared {
    fn now_ms(&self) -> u64 {
        // The first millisecond is 1, so that nothing that was answered came at 0.
        self.began.elapsed().as_millis() as u64 + 1
    }

    fn run_queries(&self) {
        let mut state = self.state.lock();
        while !state.stops {
            let now_ms = self.now_ms();
            let Some(query) = state.cache.next(now_ms) else {
                match state.cache.due_ms(now_ms) {
                    Some(due_ms) => {
                        let rest = Duration::from_millis(due_ms.saturating_sub(now_ms).max(1));
                        self.changed.wait_for(&mut state, rest);
                    }
                    None => self.changed.wait(&mut state),
                }
                continue;
            };
            let request = state.cache.request(&query);
            drop(state);
            let mut answer = None;
            let outcome = self.admin.execute(request, &mut |one| {
                if !matches!(one, AdminAnswer::Note { .. }) {
                    answer = Some(one);
                }
                Ok(())
            });
            let outcome = outcome.and_then(|()| answer.ok_or_else(|| "there was no answer".to_owned()));
            state = self.state.lock();
            state.cache.answered(&query, outcome, self.now_ms());
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::fixture::Synthetic;

    #[test]
    fn nothing_is_asked_before_a_page_is_open_and_a_page_waits_only_for_what_it_needs() {
        let admin = Arc::new(Synthetic::new(3, 2, 0));
        let collector = Collector::start(admin.clone()).expect("threads");
        assert_eq!(admin.asked(), 0);
        let known = collector.look(&[StatusQuery::Cluster], &[StatusQuery::Volumes]);
        assert_eq!(known.cluster.expect("it was waited for").nodes.len(), 3);
        let asked = admin.asked();
        collector.look(&[StatusQuery::Cluster], &[]);
        assert!(admin.asked() <= asked.max(2), "what is fresh is not asked again");
    }

    #[test]
    fn page_gets_what_is_known_if_an_answer_takes_too_long() {
        let admin = Arc::new(Synthetic::new(3, 2, 0).slow(WEB_FIRST_PATIENCE + Duration::from_secs(1)));
        let collector = Collector::start(admin).expect("threads");
        let began = Instant::now();
        assert!(collector.look(&[StatusQuery::Cluster], &[]).cluster.is_none());
        assert!(began.elapsed() >= WEB_FIRST_PATIENCE);
        drop(collector);
    }
}
