//! Which extension comes before which, and what becomes of those that wait in vain.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use drupe_config::Manifest;

use crate::state::{Event, Out, State};

/// The folder's name, then the folder: two folders of one name are two.
pub type Key = (String, PathBuf);

/// The key of manifests that needs an extension which it does not list.
const SERVERS: &str = "mcp_servers";

#[derive(Debug, Default)]
pub struct Wave {
    /// What they depend on is all there.
    pub ready: Vec<(Key, Arc<Manifest>)>,
    pub lost: Vec<(Key, Event)>,
}

/// The states by name: of several of one name, that of the one that is used.
pub fn used(all: impl IntoIterator<Item = (String, State)>) -> BTreeMap<String, State> {
    let mut states: BTreeMap<String, State> = BTreeMap::new();
    for (name, state) in all {
        if states.get(&name).is_none_or(State::is_out) {
            states.insert(name, state);
        }
    }
    states
}

/// Takes those out of `waiting` whose dependencies are all there, and those that wait in vain.
pub fn wave(states: &BTreeMap<String, State>, waiting: &mut BTreeMap<Key, Arc<Manifest>>) -> Wave {
    let mut wave = Wave::default();
    for (key, manifest) in waiting.clone() {
        let mut event = None;
        let mut waits = false;
        for (dependency, field) in dependencies(&manifest) {
            match states.get(&dependency) {
                None => {
                    let why = match field {
                        SERVERS => {
                            format!("`{field}` needs the extension `{dependency}`, which is not there")
                        }
                        _ => format!("`{field}` lists `{dependency}`, but there is no such extension"),
                    };
                    event = event.or(Some(Event::Rejected(Out::Unwired(why))));
                }
                Some(state) if state.is_out() => {
                    event = event.or(Some(Event::DependencyLost(lost(field, &dependency, Some(state)))));
                }
                Some(State::Initialized | State::Active) => {}
                Some(_) => waits = true,
            }
        }
        if let Some(event) = event {
            waiting.remove(&key);
            wave.lost.push((key, event));
        } else if !waits {
            waiting.remove(&key);
            wave.ready.push((key, manifest));
        }
    }
    wave
}

/// What an extension depends on, each with the field that says so.
pub fn dependencies(manifest: &Manifest) -> BTreeSet<(String, &'static str)> {
    let agent = manifest.agent.as_ref();
    let hard = manifest.depends_on.iter().map(|d| (d.to_string(), "depends_on"));
    let tools =
        agent.into_iter().flat_map(|a| &a.uses_tools).map(|t| (t.extension.to_string(), "agent.uses_tools"));
    let agents = agent.into_iter().flat_map(|a| &a.uses_agents).map(|a| (a.to_string(), "agent.uses_agents"));
    // Whoever speaks with its servers.
    let servers = (!manifest.mcp_servers.is_empty()).then(|| (drupe_wiring::MCP.to_owned(), SERVERS));
    hard.chain(tools).chain(agents).chain(servers).collect()
}

/// Nothing can go on: those that wait for each other are taken out of `waiting`, and fail with the members of their circle.
pub fn circle(waiting: &mut BTreeMap<Key, Arc<Manifest>>) -> Vec<(Key, Event)> {
    let uses: BTreeMap<String, Vec<String>> = waiting
        .iter()
        .map(|((name, _), manifest)| {
            (name.clone(), dependencies(manifest).into_iter().map(|(d, _)| d).collect())
        })
        .collect();
    let members = drupe_wiring::cycle(&uses);
    let why = match &members {
        Some(members) => format!("dependencies go in a circle: {} → {}", members.join(" → "), members[0]),
        None => "what it depends on never came to work".to_owned(),
    };
    let mut failed = Vec::new();
    waiting.retain(|key, _| {
        let member = members.as_ref().is_none_or(|members| members.contains(&key.0));
        if member {
            failed.push((key.clone(), Event::Rejected(Out::Failed(why.clone()))));
        }
        !member
    });
    failed
}

/// Why one is skipped whose dependency, in this state, went out.
pub fn lost(field: &str, name: &str, state: Option<&State>) -> String {
    match field {
        SERVERS => format!(
            "`{field}` needs the extension `{name}`, which {}; `extensions.{name}.enabled: true` in drupe.yaml turns it on",
            went(state)
        ),
        _ => format!("`{field}` lists `{name}`, which {}", went(state)),
    }
}

/// What became of an extension, as the end of a sentence.
fn went(state: Option<&State>) -> String {
    let Some(state) = state else { return "was removed".into() };
    let (state, reason) = state.shown();
    let state = serde_json::to_value(state).ok().and_then(|s| s.as_str().map(str::to_owned));
    let reason = reason.map(|r| format!(": {}", r.lines().next().unwrap_or(r))).unwrap_or_default();
    format!("is {}{reason}", state.unwrap_or_default().replace('_', " "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use drupe_config::load_manifest;

    use super::*;

    /// Brings all up, as if each that is ready came to work; how each ends.
    fn check(manifests: &[(&str, &str)]) -> BTreeMap<String, State> {
        let root = tempfile::tempdir().expect("a folder");
        let mut waiting = BTreeMap::new();
        let mut states: BTreeMap<String, State> = BTreeMap::new();
        for (id, more) in manifests {
            let folder = root.path().join(id);
            fs::create_dir(&folder).expect("a folder");
            fs::write(folder.join("manifest.yaml"), format!("id: {id}\nname: x\nentrypoint: libx\n{more}\n"))
                .expect("a file");
            let loaded = load_manifest(&folder, root.path());
            let manifest = loaded.unwrap_or_else(|faults| panic!("{}", faults.render(false))).value;
            waiting.insert(((*id).to_owned(), folder), Arc::new(manifest));
            states.insert((*id).to_owned(), State::Discovered);
        }
        while !waiting.is_empty() {
            let mut wave = wave(&states, &mut waiting);
            if wave.ready.is_empty() && wave.lost.is_empty() {
                wave.lost = circle(&mut waiting);
            }
            for (key, _) in wave.ready {
                states.insert(key.0, State::Initialized);
            }
            for (key, event) in wave.lost {
                states.insert(key.0, State::Discovered.step(event).0);
            }
        }
        states
    }

    #[test]
    fn each_link_of_a_chain_that_is_lost_says_what_it_misses() {
        let states = check(&[
            ("a", "depends_on: [nobody]"),
            ("b", "depends_on: [a]"),
            ("c", "depends_on: [b]"),
            ("d", ""),
            ("e", "depends_on: [d]"),
        ]);
        let why = |id: &str| states[id].shown().1.unwrap_or_default().to_owned();
        assert!(why("a").contains("`nobody`, but there is no such extension"), "{}", why("a"));
        assert!(why("b").contains("lists `a`, which is failed"), "{}", why("b"));
        assert!(why("c").contains("lists `b`, which is skipped"), "{}", why("c"));
        assert_eq!((&states["d"], &states["e"]), (&State::Initialized, &State::Initialized));
    }

    #[test]
    fn a_circle_names_its_members_and_who_waits_for_it_is_skipped() {
        let states = check(&[("a", "depends_on: [b]"), ("b", "depends_on: [a]"), ("c", "depends_on: [a]")]);
        let why = |id: &str| states[id].shown().1.unwrap_or_default().to_owned();
        assert!(why("a").contains("a → b → a") && why("b").contains("a → b → a"), "{}", why("a"));
        assert!(why("c").contains("lists `a`, which is failed"), "{}", why("c"));
    }
}
