//! Recovery: a new leader learns what the sessions held under the last one.

use super::{Refusal, Session, Table};
use shoal_types::{InodeId, Name, SessionId};

impl Table {
    /// The table of a leader that takes these sessions over.
    pub fn recover(sessions: impl IntoIterator<Item = SessionId>) -> Table {
        let mut table = Table::new();
        for session in sessions {
            table.sessions.insert(session, Session { reclaiming: true, ..Session::default() });
        }
        table
    }

    /// Whether there are sessions that have not reclaimed what they hold.
    pub fn recovering(&self) -> bool {
        self.sessions.values().any(|session| session.reclaiming)
    }

    /// Whether a session has not reclaimed what it holds.
    pub fn is_reclaiming(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.reclaiming)
    }

    /// Sessions that have not reclaimed what they hold.
    pub fn reclaiming(&self) -> Vec<SessionId> {
        self.sessions.iter().filter(|(_, state)| state.reclaiming).map(|(session, _)| *session).collect()
    }

    /// A part of what a session reclaims. What contradicts an earlier reclaim is refused: then
    /// one of the sessions is wrong, and must be ended.
    pub fn reclaim(
        &mut self,
        session: SessionId,
        covers: &[(InodeId, bool)],
        nodes: &[(InodeId, InodeId, Vec<Name>)],
        last: bool,
    ) -> Result<(), Refusal> {
        match self.sessions.get(&session) {
            None => return Err(Refusal::Unknown),
            // A retry, because the reply was lost.
            Some(state) if !state.reclaiming => return Ok(()),
            Some(_) => {}
        }
        for (ino, exclusive) in covers {
            let cover = self.covers.entry(*ino).or_default();
            let others = cover.watchers.keys().any(|watcher| *watcher != session);
            if cover.exclusive.is_some_and(|holder| holder != session) || (*exclusive && others) {
                return Err(Refusal::Contradiction);
            }
            self.watch(session, *ino);
            if *exclusive {
                self.hold_cover(session, *ino);
            }
        }
        for (ino, under, names) in nodes {
            let cover = self.covers.entry(*under).or_default();
            let held = self.nodes.get(ino).is_some_and(|node| node.holder != session);
            if held || cover.exclusive.is_some_and(|holder| holder != session) {
                return Err(Refusal::Contradiction);
            }
            self.watch(session, *under);
            self.hold_node(session, *ino, *under, names.iter().cloned().collect());
        }
        if last {
            if let Some(state) = self.sessions.get_mut(&session) {
                state.reclaiming = false;
            }
            self.progress();
        }
        Ok(())
    }
}
