//! Which extension comes before which.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use drupe_config::Manifest;
use drupe_gate::order::{self, Wave};

use super::note;
use crate::{
    extension::{Key, state::State},
    kernel::Kernel,
};

/// Takes those out of `waiting` whose dependencies are all there, and lets those fail that wait in vain; none where nothing
/// can go on.
pub fn next_wave(
    kernel: &Kernel,
    waiting: &mut BTreeMap<Key, Arc<Manifest>>,
) -> Option<Vec<(Key, Arc<Manifest>)>> {
    let Wave { ready, lost } = order::wave(&states(kernel), waiting);
    let moved = !ready.is_empty() || !lost.is_empty();
    for (key, event) in lost {
        note(kernel, &key, event);
    }
    moved.then_some(ready)
}

/// Nothing can go on: those that wait for each other fail, each with the members of its circle.
pub fn circle(kernel: &Kernel, waiting: &mut BTreeMap<Key, Arc<Manifest>>) {
    for (key, event) in order::circle(waiting) {
        note(kernel, &key, event);
    }
}

/// The states by name.
pub fn states(kernel: &Kernel) -> BTreeMap<String, State> {
    order::used(kernel.extensions.read(|r| (r.found.name.clone(), r.state.clone())))
}

/// Those in a state, in waves: each after what it depends on, those of one wave independent of each other.
pub fn waves(kernel: &Kernel, state: &State) -> Vec<Vec<Key>> {
    let all = kernel.extensions.read(|r| {
        let manifest = r.manifest.as_ref().filter(|_| r.state == *state)?;
        Some((r.key(), order::dependencies(manifest).into_iter().map(|(d, _)| d).collect::<BTreeSet<_>>()))
    });
    let mut rest: Vec<(Key, BTreeSet<String>)> = all.into_iter().flatten().collect();
    let mut waves = Vec::new();
    while !rest.is_empty() {
        let names: BTreeSet<String> = rest.iter().map(|((name, _), _)| name.clone()).collect();
        let (ready, waiting): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, needs)| needs.is_disjoint(&names));
        // Loaded extensions have no circle; were there one, its members go together.
        let (ready, waiting) = if ready.is_empty() { (waiting, Vec::new()) } else { (ready, waiting) };
        waves.push(ready.into_iter().map(|(key, _)| key).collect());
        rest = waiting;
    }
    waves
}
