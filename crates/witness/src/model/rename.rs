//! Renames: the call with the most ways to fail, tried in Linux's order.

use super::names::{Changed, alive, drop_name};
use super::{Id, State};
use crate::ops::{How, Outcome, Path};

pub(super) fn rename(
    state: &State,
    (from_dir, from): (Id, &Path),
    (to_dir, to): (Id, &Path),
    how: How,
) -> Changed {
    let (Some((from, _)), Some((to, _))) = (from.split_last(), to.split_last()) else {
        return Err(libc::EBUSY);
    };
    let (from_names, to_names) = (state.names(from_dir)?, state.names(to_dir)?);
    let source = *from_names.get(&from).ok_or(libc::ENOENT)?;
    let target = to_names.get(&to).copied();
    match (how, target) {
        (How::NoReplace, Some(_)) => return Err(libc::EEXIST),
        (How::Exchange, None) => return Err(libc::ENOENT),
        _ => (),
    }
    if state.is_dir(source) && state.holds(source, to_dir) {
        return Err(libc::EINVAL);
    }
    if let Some(target) = target
        && state.is_dir(target)
        && state.holds(target, from_dir)
    {
        return Err(if how == How::Exchange { libc::EINVAL } else { libc::ENOTEMPTY });
    }
    if target == Some(source) {
        // Two names of one file: POSIX wants nothing done.
        return Ok((Outcome::Done, Some(state.clone())));
    }
    alive(state, to_dir)?;
    if let (Some(target), true) = (target, how != How::Exchange) {
        match (state.is_dir(source), state.names(target)) {
            (true, Err(_)) => return Err(libc::ENOTDIR),
            (false, Ok(_)) => return Err(libc::EISDIR),
            (true, Ok(names)) if !names.is_empty() => return Err(libc::ENOTEMPTY),
            _ => (),
        }
    }
    let mut after = state.clone();
    after.set_name(from_dir, from, target.filter(|_| how == How::Exchange));
    after.set_name(to_dir, to, Some(source));
    if let (Some(target), true) = (target, how != How::Exchange) {
        drop_name(&mut after, target);
    }
    Ok((Outcome::Done, Some(after)))
}
