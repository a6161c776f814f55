//! Schemes of directories.

use super::super::calls::{NodeReply, NodeRequest};
use super::super::context::ServerContext;
use super::names;
use crate::admin::{DirectoryScheme, SchemeOfReport, SchemeStep};
use shoal_cluster::{Command, Outcome, apply};
use shoal_meta::PolicyState;
use shoal_types::{BlockScheme, GroupId, InodeId, Tier};

impl ServerContext {
    /// Gives a directory or file a scheme, or takes it away, and reports the one that decides then.
    pub(super) fn directory_scheme(
        &self,
        name: &str,
        ino: InodeId,
        step: SchemeStep,
    ) -> Result<SchemeOfReport, String> {
        let map = self.view.map();
        let (volume, it) = names::volume(&map, name)?;
        let PolicyState { exists, nearest, removed } =
            match self.request_from_leader_patiently(volume, &NodeRequest::SchemeOf { volume, ino })? {
                NodeReply::SchemeOf(state) => state,
                other => return Err(format!("unexpected answer: {other:?}")),
            };
        if !exists {
            return Err("the volume does not have this directory or file".into());
        }
        // The leader may not know of a change yet. A scheme of its own needs no leader.
        let nearest = match step {
            SchemeStep::Show => nearest,
            SchemeStep::Auto => {
                let (scheme, force) = (None, false);
                self.decide(&Command::SetDirectoryScheme { volume, ino, scheme, removed, force })?;
                None
            }
            SchemeStep::Set { replica, shards, force } => {
                let scheme = BlockScheme::new(replica, shards.map(Into::into));
                self.check_no_other_scheme(name, scheme.shards())?;
                let set = Some(scheme);
                let command = Command::SetDirectoryScheme { volume, ino, scheme: set, removed, force };
                self.allow_copies(volume, scheme, &command)?;
                self.decide(&command)?;
                Some((ino, scheme))
            }
        };
        Ok(SchemeOfReport {
            volume: it.name.clone(),
            scheme: nearest.map(|(_, scheme)| scheme.to_string()),
            inherited_from: self.inherited_from(volume, ino, nearest),
            of_volume: map.scheme_in(volume, Tier::Cold).map_or_else(String::new, |it| it.to_string()),
        })
    }

    /// Lets blocks of a volume survive another number of losses than at its creation, if a command needs that
    /// and is not refused for another reason.
    pub(super) fn allow_copies(
        &self,
        volume: GroupId,
        scheme: BlockScheme,
        command: &Command,
    ) -> Result<(), String> {
        let map = self.view.map();
        if scheme.copies() == map.original_copies(volume) || map.copies.contains_key(&volume) {
            return Ok(());
        }
        let allow = Command::AllowCopies { volume };
        if let (_, Outcome::Refused(why)) = apply(&apply(&map, &allow).0, command) {
            return Err(why);
        }
        self.decide(&allow).map(drop)
    }

    /// The directories and files of a volume that have a scheme of their own.
    pub(super) fn directory_schemes(&self, volume: GroupId) -> Vec<DirectoryScheme> {
        let report = |path, ino: InodeId, scheme: BlockScheme| DirectoryScheme {
            path,
            inode: ino.0,
            scheme: scheme.to_string(),
        };
        self.with_paths(volume, &self.view.map().policies(volume).schemes, report)
    }
}
