//! What a session finds changed when it goes on: agents, their tools and skills that its turns have made use of. It goes on
//! with what there is, and says so.

use std::{collections::BTreeMap, sync::Arc};

use drupe_agent::{Agent, CHANGED, Journal, KeptRecipe, Recipe, Used};
use drupe_extension_api::{AgentId, EventBody, control::SessionSnapshot};
use drupe_journal::{QueuedTurn, StoreError};
use drupe_wiring::{ORCHESTRATOR, Snapshot};

use super::Turns;

/// What an agent is made of as it is wired, whatever a turn asks of it beside; none where it is code or not there.
fn recipe<'a>(snapshot: &'a Snapshot, agent: &AgentId) -> Option<&'a KeptRecipe> {
    match agent.as_str() {
        ORCHESTRATOR => snapshot.orchestrator.recipe(),
        _ => snapshot.agents.get(agent)?.looping.as_ref()?.recipe(),
    }
}

/// What the earlier turns of a session have made use of.
#[derive(Default)]
pub struct MadeUseOf {
    snapshot: SessionSnapshot,
    /// The skills among that, as they are by now.
    skills: BTreeMap<String, String>,
    /// What of that is not what it was, a sentence each.
    pub changes: Vec<String>,
}

/// Looks at what the session's earlier turns have made use of.
pub async fn before(
    turns: &Turns,
    snapshot: &Snapshot,
    queued: &QueuedTurn,
) -> Result<MadeUseOf, StoreError> {
    if queued.earlier_turns == 0 {
        return Ok(MadeUseOf::default());
    }
    let before = turns.store.snapshot(&queued.inbound.ask.session).await?;
    let (mut told, mut skills) = (Vec::new(), BTreeMap::new());
    for (agent, hash) in &before.agents {
        let Some(now) = recipe(snapshot, agent) else {
            if !snapshot.agents.contains_key(agent) {
                told.push(format!(
                    "the agent `{agent}`, which worked in this conversation, is not there any more"
                ));
            }
            continue;
        };
        if *now.hash == **hash {
            continue;
        }
        let kept = turns.store.recipe(hash.clone()).await.ok().flatten();
        let mut changes = match kept.zip(Recipe::read(&now.json).ok()) {
            Some((kept, now)) => kept.changes(&now),
            None => vec!["what it was is not kept any more".to_owned()],
        };
        // What the orchestrator is told of tools and agents stands in its instructions.
        if agent.as_str() == ORCHESTRATOR {
            changes.retain(|change| change != "its instructions are others");
        }
        if !changes.is_empty() {
            told.push(format!("`{agent}` is not what it was in this conversation: {}", changes.join("; ")));
        }
    }
    for (name, hash) in &before.skills {
        match snapshot.skills.all.get(name).map(Arc::clone) {
            None => told
                .push(format!("the skill `{name}`, which this conversation has used, is not there any more")),
            Some(skill) => {
                let Ok(now) = tokio::task::spawn_blocking(move || skill.hash()).await else { continue };
                if !hash.is_empty() && now != *hash {
                    told.push(format!(
                        "the skill `{name}` is not what it was when this conversation loaded it"
                    ));
                }
                skills.insert(name.clone(), now);
            }
        }
    }
    Ok(MadeUseOf { snapshot: before, skills, changes: told })
}

impl MadeUseOf {
    /// The remarks that tell of what changed.
    pub fn told(&self) -> impl Iterator<Item = EventBody> {
        let remark =
            |message: &String| EventBody::Diagnostic { code: CHANGED.to_owned(), message: message.clone() };
        self.changes.iter().map(remark)
    }

    /// What the turns of the session have made use of after this one; none where that is what it was.
    pub fn after(&self, snapshot: &Snapshot, used: &Used) -> Option<SessionSnapshot> {
        let mut now = self.snapshot.clone();
        now.agents.retain(|agent, _| agent.as_str() == ORCHESTRATOR || snapshot.agents.contains_key(agent));
        for agent in now.agents.keys().chain(&used.agents).cloned().collect::<Vec<_>>() {
            match recipe(snapshot, &agent) {
                Some(recipe) => drop(now.agents.insert(agent, recipe.hash.to_string())),
                // Code says nothing of what it is made of.
                None if snapshot.agents.contains_key(&agent) => drop(now.agents.insert(agent, String::new())),
                None => {}
            }
        }
        now.skills.clone_from(&self.skills);
        let own = used.skills.iter().filter(|((agent, _), _)| agent.as_str() == ORCHESTRATOR);
        now.skills.extend(own.map(|((_, name), hash)| (name.clone(), hash.clone().unwrap_or_default())));
        (now != self.snapshot).then_some(now)
    }
}
