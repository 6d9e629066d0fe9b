//! The topics that agents follow, by their manifests.

use std::collections::BTreeSet;

use drupe_bus::Subscriber;
use drupe_extension_api::{AgentId, ExtensionId, control::ExtensionState};
use drupe_journal::StoreError;

use super::Roster;

/// Has exactly those topics followed that the manifests of agents list. Messages for an agent that failed, waits or is
/// left out for now are kept for it; those for one that was turned off or removed are not.
pub async fn reconcile(roster: &Roster) -> Result<(), StoreError> {
    let mut agents = BTreeSet::new();
    let mut known = BTreeSet::new();
    let mut unreadable = BTreeSet::new();
    let seen = roster.extensions.read(|r| (r.found.name.clone(), r.manifest.clone(), r.state.shown().0));
    for (name, manifest, state) in seen {
        let Some(manifest) = manifest else {
            unreadable.insert(name);
            continue;
        };
        if matches!(state, ExtensionState::Disabled) {
            continue;
        }
        let id: ExtensionId = manifest.id.clone();
        let topics =
            manifest.subscribe.iter().map(|follows| (AgentId::from(id.clone()), follows.topic.clone()));
        agents.extend(topics);
        known.insert(id);
    }
    // Who is left out by this start alone, or cannot be read, comes back as it was.
    let all = !roster.base.takes_all();
    for (subscriber, topic) in roster.store.following().await? {
        match Subscriber::of(&subscriber) {
            Some(Subscriber::Agent(agent)) if all || unreadable.contains(agent.as_str()) => {
                agents.insert((agent, topic));
            }
            Some(Subscriber::Extension(id)) if all || unreadable.contains(id.as_str()) => {
                known.insert(id);
            }
            _ => {}
        }
    }
    roster.topics.reconcile(&agents, &known).await
}
