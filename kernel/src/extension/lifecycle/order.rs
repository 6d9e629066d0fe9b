//! Which extension comes before which.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use drupe_config::Manifest;
use drupe_wiring as wiring;

use super::{note, went};
use crate::{
    extension::{
        Key,
        state::{Event, Out, State},
    },
    kernel::Kernel,
};

/// Takes those out of `waiting` whose dependencies are all there, and lets those fail that wait in vain.
pub fn next_wave(kernel: &Kernel, waiting: &mut BTreeMap<Key, Arc<Manifest>>) -> Vec<(Key, Arc<Manifest>)> {
    let mut states: BTreeMap<String, State> = BTreeMap::new();
    for (name, state) in kernel.extensions.read(|r| (r.found.name.clone(), r.state.clone())) {
        // Of several of one name, the one that is used counts.
        if states.get(&name).is_none_or(State::is_out) {
            states.insert(name, state);
        }
    }
    let mut ready = Vec::new();
    for (key, manifest) in waiting.clone() {
        let mut event = None;
        let mut wait = false;
        for (dependency, field) in dependencies(&manifest) {
            match states.get(&dependency) {
                None => {
                    let why = format!("`{field}` lists `{dependency}`, but there is no such extension");
                    event = event.or(Some(Event::Rejected(Out::Unwired(why))));
                }
                Some(state) if state.is_out() => {
                    let why = format!("`{field}` lists `{dependency}`, which {}", went(kernel, &dependency));
                    event = event.or(Some(Event::DependencyLost(why)));
                }
                Some(State::Initialized | State::Active) => {}
                Some(_) => wait = true,
            }
        }
        if let Some(event) = event {
            waiting.remove(&key);
            note(kernel, &key, event);
        } else if !wait {
            waiting.remove(&key);
            ready.push((key, manifest));
        }
    }
    ready
}

pub fn dependencies(manifest: &Manifest) -> BTreeSet<(String, &'static str)> {
    let agent = manifest.agent.as_ref();
    let hard = manifest.depends_on.iter().map(|d| (d.to_string(), "depends_on"));
    let tools =
        agent.into_iter().flat_map(|a| &a.uses_tools).map(|t| (t.extension.to_string(), "agent.uses_tools"));
    let agents = agent.into_iter().flat_map(|a| &a.uses_agents).map(|a| (a.to_string(), "agent.uses_agents"));
    hard.chain(tools).chain(agents).collect()
}

/// Nothing can go on: those that wait for each other fail, each with the members of its circle.
pub fn circle(kernel: &Kernel, waiting: &mut BTreeMap<Key, Arc<Manifest>>) {
    let uses: BTreeMap<String, Vec<String>> = waiting
        .iter()
        .map(|((name, _), manifest)| {
            (name.clone(), dependencies(manifest).into_iter().map(|(d, _)| d).collect())
        })
        .collect();
    let members = wiring::cycle(&uses);
    let why = match &members {
        Some(members) => format!("dependencies go in a circle: {} → {}", members.join(" → "), members[0]),
        None => "what it depends on never came to work".to_owned(),
    };
    waiting.retain(|key, _| {
        let member = members.as_ref().is_none_or(|members| members.contains(&key.0));
        if member {
            note(kernel, key, Event::Rejected(Out::Failed(why.clone())));
        }
        !member
    });
}

/// Those in a state, in waves: each after what it depends on, those of one wave independent of each other.
pub fn waves(kernel: &Kernel, state: &State) -> Vec<Vec<Key>> {
    let all = kernel.extensions.read(|r| {
        let manifest = r.manifest.as_ref().filter(|_| r.state == *state)?;
        Some((r.key(), dependencies(manifest).into_iter().map(|(d, _)| d).collect::<BTreeSet<_>>()))
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
