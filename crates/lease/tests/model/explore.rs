//! Paths through the states of the world: all of them, or long random ones.

use crate::events::Event;
use crate::world::*;
use std::collections::HashSet;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A violation, and the path that leads to it.
#[derive(Debug)]
pub struct Broken {
    pub what: String,
    pub way: Vec<Event>,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for event in &self.way {
            writeln!(out, "  {event:?}")?;
        }
        write!(out, "{}", self.what)
    }
}

/// How much was explored.
#[derive(Debug, Default)]
pub struct Seen {
    pub states: usize,
    pub rests: usize,
}

/// Explores every reachable state. Fails also if there are more than `states_max`: then some client loops for
/// ever.
pub fn everywhere(setup: &Setup, states_max: usize) -> Result<Seen, Broken> {
    let mut seen = Seen::default();
    let mut known: HashSet<(u64, u64)> = HashSet::new();
    // The predecessor of each state, to reconstruct the path.
    let mut origins: Vec<(usize, Option<Event>)> = vec![(0, None)];
    let mut todo = vec![(0, World::new(setup))];
    let mut text = String::new();
    while let Some((at, world)) = todo.pop() {
        let broken = |what: String| {
            let (mut way, mut at) = (Vec::new(), at);
            while let (origin, Some(event)) = origins[at] {
                way.push(event);
                at = origin;
            }
            way.reverse();
            Broken { what, way }
        };
        seen.states += 1;
        if seen.states > states_max {
            return Err(broken("there is no end of it".into()));
        }
        world.check().map_err(broken)?;
        let progress = world.progress(setup);
        if progress.is_empty() {
            seen.rests += 1;
            world.check_rest().and_then(|()| world.clone().check_end()).map_err(broken)?;
        }
        for event in progress.into_iter().chain(world.choices(setup)) {
            let mut next = world.clone();
            next.happen(setup, event);
            text.clear();
            write!(text, "{next:?}").expect("a string takes everything");
            if known.insert(fingerprint(&text)) {
                origins.push((at, Some(event)));
                todo.push((origins.len() - 1, next));
            }
        }
    }
    Ok(seen)
}

fn fingerprint(text: &str) -> (u64, u64) {
    let hash = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        hasher.finish()
    };
    (hash(1), hash(2))
}

/// Pseudo-random numbers from a seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }
}

/// A long random path. In the end every request is answered, within a number of steps that depends on what is
/// in flight.
pub fn walk(setup: &Setup, seed: u64, steps: usize) -> Result<(), Broken> {
    let mut chance = Chance::new(seed);
    let mut world = World::new(setup);
    let mut way = Vec::new();
    let mut take = |world: &mut World, event: Event| {
        way.push(event);
        world.happen(setup, event);
        world.check().map_err(|what| Broken { what, way: way.clone() })
    };
    // How often something new is begun: different for each path.
    let eager = 1 + chance.below(6);
    for _ in 0..steps {
        let (progress, choices) = (world.progress(setup), world.choices(setup));
        let rare = |event: &&Event| {
            matches!(event, Event::Expire(_) | Event::End(_) | Event::Lead | Event::Resend(_))
        };
        let (rares, others): (Vec<&Event>, Vec<&Event>) = choices.iter().partition(rare);
        let from: Vec<&Event> = match chance.below(40) {
            0 => rares,
            some if some < 4 * eager => others,
            _ => progress.iter().collect(),
        };
        if !from.is_empty() {
            take(&mut world, *from[chance.below(from.len())])?;
        }
    }
    let under_way: usize = world.clients.iter().map(|client| client.out.len() + client.journal.len()).sum();
    let patience = 200 + 200 * under_way;
    for _ in 0..patience {
        let progress = world.progress(setup);
        if progress.is_empty() {
            break;
        }
        take(&mut world, progress[chance.below(progress.len())])?;
    }
    let rest = match world.progress(setup).is_empty() {
        true => world.check_rest().and_then(|()| world.check_end()),
        false => Err("it does not come to rest".into()),
    };
    rest.map_err(|what| Broken { what, way })
}

/// The same violation in fewer steps, for people to read.
pub fn shorten(setup: &Setup, broken: Broken) -> Broken {
    let mut best = broken;
    let mut part = best.way.len() / 2;
    while part > 0 {
        let mut at = 0;
        while at < best.way.len() {
            let mut way = best.way.clone();
            way.drain(at..(at + part).min(best.way.len()));
            match again(setup, &way) {
                Err(shorter) if shorter.way.len() < best.way.len() => best = shorter,
                _ => at += part,
            }
        }
        part /= 2;
    }
    best
}

/// Follows a path as far as possible, and then runs until no event is possible.
fn again(setup: &Setup, way: &[Event]) -> Result<(), Broken> {
    let mut world = World::new(setup);
    let mut gone = Vec::new();
    for event in way {
        if world.can_happen(setup, *event) {
            gone.push(*event);
            world.happen(setup, *event);
            world.check().map_err(|what| Broken { what, way: gone.clone() })?;
        }
    }
    let asked = gone.clone();
    for _ in 0..2000 {
        let Some(event) = world.progress(setup).first().copied() else { break };
        gone.push(event);
        world.happen(setup, event);
        world.check().map_err(|what| Broken { what, way: gone.clone() })?;
    }
    let rest = world.check_rest().and_then(|()| world.check_end());
    rest.map_err(|what| Broken { what, way: asked })
}
