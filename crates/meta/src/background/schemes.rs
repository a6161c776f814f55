//! Walks over the blocks of all files, with the scheme that each should have.
//!
//! **Model.** A block does not know its file. So where directories have schemes of their own, a walk over the
//! content of all files, in the order of their numbers, says which scheme each block should have. Without
//! such directories no walk is needed: all blocks should have the volume's scheme.
//!
//! **A block of several files** has one scheme, so one of them must decide: the file with the lowest number.
//! The walk remembers such blocks up to a bound, and passes over further ones, which keep the scheme they
//! have.

use super::policies::Finder;
use crate::limits::{SCHEME_READ_PAGE, SCHEME_SHARED_MAX};
use shoal_namespace::kv::KvRead;
use shoal_namespace::{TreeError, query};
use shoal_runtime::planted::mistake;
use shoal_types::{BlockId, BlockInfo, BlockScheme, InodeId, Schemes};
use std::collections::HashSet;

/// A walk over the content of all files.
pub(crate) struct SchemeWalk {
    schemes: Schemes,
    finder: Finder,
    /// The file of the last block, and its scheme.
    file: Option<(InodeId, Option<BlockScheme>)>,
    /// Where to continue; `None` at the beginning.
    from: Option<Vec<u8>>,
    /// Blocks that several extents refer to, and for which a file has decided.
    decided: HashSet<BlockId>,
}

impl SchemeWalk {
    pub(crate) fn new(schemes: Schemes) -> SchemeWalk {
        let (finder, decided) = (Finder::default(), HashSet::new());
        SchemeWalk { schemes, finder, file: None, from: None, decided }
    }

    /// Visits the next blocks, a bounded number of them, each with the scheme of its file; `None`: the
    /// volume's. Returns whether there are more.
    pub(crate) fn step(
        &mut self,
        store: &(impl KvRead + ?Sized),
        mut each: impl FnMut(BlockId, BlockInfo, Option<BlockScheme>),
    ) -> Result<bool, TreeError> {
        let page = query::references(store, self.from.take(), SCHEME_READ_PAGE)?;
        for (ino, id) in page.blocks {
            let Some(block) = query::block(store, id)?.filter(|block| block.refs > 0) else { continue };
            if block.refs == 1 || self.decides(id) {
                each(id, block.info, self.scheme_of(store, ino)?);
            }
        }
        self.from = page.next;
        Ok(self.from.is_some())
    }

    /// Whether the file that is being visited decides for a block of several extents.
    fn decides(&mut self, id: BlockId) -> bool {
        self.decided.len() < SCHEME_SHARED_MAX && self.decided.insert(id)
    }

    fn scheme_of(
        &mut self,
        store: &(impl KvRead + ?Sized),
        ino: InodeId,
    ) -> Result<Option<BlockScheme>, TreeError> {
        if mistake("convert blocks whatever their directories say") {
            return Ok(None);
        }
        match self.file {
            Some((known, scheme)) if known == ino => Ok(scheme),
            _ => {
                let nearest = self.finder.nearest(&self.schemes, store, ino)?;
                let scheme = nearest.map(|(_, scheme)| scheme);
                self.file = Some((ino, scheme));
                Ok(scheme)
            }
        }
    }
}
