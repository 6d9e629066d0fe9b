//! What a session finds changed when it goes on: agents, their tools and models, skills that its turns have made use of, and
//! what was agreed to. It goes on with what there is, and says so. What agents had planned they are told again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use drupe_agent::{Agent, CHANGED, Journal, LoopAgent, Recipe, RecipeChange, TurnOutcome};
use drupe_extension_api::{
    AgentId, EventBody, ToolName,
    control::{KeptPlan, PlanStatus, PlanStep, SessionSnapshot, StandingGrant},
};
use drupe_journal::{QueuedTurn, StoreError};
use drupe_wiring::{ORCHESTRATOR, Snapshot};

use super::Turns;

/// Turns in which an agent is told a plan that it does nothing about: what is left lying is worth no more words.
const TOLD: u64 = 20;

/// An agent as it is wired, whatever a turn asks of it beside; none where it is code or not there.
fn looping<'a>(snapshot: &'a Snapshot, agent: &AgentId) -> Option<&'a LoopAgent> {
    match agent.as_str() {
        ORCHESTRATOR => Some(&snapshot.orchestrator),
        _ => snapshot.agents.get(agent)?.looping.as_deref(),
    }
}

/// The names of its tools, in order.
fn tools(agent: &LoopAgent) -> Vec<ToolName> {
    match agent.model().profile().tools {
        true => agent.registry().specs().iter().map(|spec| spec.name.clone()).collect(),
        false => Vec::new(),
    }
}

fn models(agent: &LoopAgent) -> Vec<String> {
    agent.model().names().into_iter().map(str::to_owned).collect()
}

/// What the earlier turns of a session have made use of.
#[derive(Default)]
pub struct MadeUseOf {
    snapshot: SessionSnapshot,
    /// The skills among that, as they are by now.
    skills: BTreeMap<String, String>,
    /// How many of them there are.
    turns: u64,
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
    let session = &queued.inbound.ask.session;
    let before = turns.store.snapshot(session).await?;
    let (mut told, mut skills) = (Vec::new(), BTreeMap::new());
    for agent in before.agents.keys() {
        let Some(now) = looping(snapshot, agent) else {
            if !snapshot.agents.contains_key(agent) {
                told.push(format!(
                    "the agent `{agent}`, which worked in this conversation, is not there any more"
                ));
            }
            continue;
        };
        let changes = changes(turns, &before, now).await;
        if !changes.is_empty() {
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
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
    if !before.agreements.is_empty() {
        let hold = agreements(turns.store.standing(session).await?.grants);
        for (agent, about) in &before.agreements {
            let hold = hold.get(agent);
            for about in about.iter().filter(|about| !hold.is_some_and(|hold| hold.contains(*about))) {
                told.push(format!(
                    "`{agent}` was allowed `{about}` for the rest of this conversation, and is not any more"
                ));
            }
        }
    }
    Ok(MadeUseOf { snapshot: before, skills, turns: queued.earlier_turns, changes: told })
}

/// What of an agent is not what it was when a session made use of it.
async fn changes(turns: &Turns, before: &SessionSnapshot, now: &LoopAgent) -> Vec<RecipeChange> {
    let id = now.id();
    let (kept_tools, kept_models) = (before.tools.get(id), before.models.get(id));
    let mut changes: Vec<RecipeChange> = Vec::new();
    let (Some(hash), Some(recipe)) = (before.agents.get(id), now.recipe()) else { return changes };
    let is_another = *recipe.hash != **hash;
    if let Some(kept) = kept_tools.filter(|_| is_another) {
        changes.extend(RecipeChange::of_names(kept, &tools(now)));
    }
    changes.extend(kept_models.and_then(|kept| RecipeChange::of_models(kept, &models(now))));
    if !is_another {
        return changes;
    }
    let kept = turns.store.recipe(hash.clone()).await.ok().flatten();
    let mut rest = match kept.zip(Recipe::read(&recipe.json).ok()) {
        Some((kept, now)) => kept.changes(&now),
        None => vec![RecipeChange::not_kept()],
    };
    rest.retain(|change| match change {
        // These are known without it.
        RecipeChange::Names(_) => kept_tools.is_none(),
        RecipeChange::Models(_) => kept_models.is_none(),
        // What the orchestrator is told of tools and agents stands in its instructions.
        RecipeChange::Instructions => id.as_str() != ORCHESTRATOR,
        RecipeChange::Other(_) => true,
    });
    changes.extend(rest);
    changes
}

/// What agents were allowed, as it is kept.
fn agreements(grants: Vec<StandingGrant>) -> BTreeMap<AgentId, BTreeSet<String>> {
    let mut all = BTreeMap::<AgentId, BTreeSet<String>>::new();
    for StandingGrant { agent, about, .. } in grants {
        all.entry(agent).or_default().insert(about);
    }
    all
}

impl MadeUseOf {
    /// The remarks that tell of what changed.
    pub fn told(&self) -> impl Iterator<Item = EventBody> {
        let remark =
            |message: &String| EventBody::Diagnostic { code: CHANGED.to_owned(), message: message.clone() };
        self.changes.iter().map(remark)
    }

    /// What an agent that answers is told of its plan; none where no step of it is open.
    pub fn reminder(&self, agent: &AgentId) -> Option<String> {
        let KeptPlan { items, after_turns } = self.snapshot.plans.get(agent)?;
        let done = items.iter().filter(|item| item.status == PlanStatus::Done).count();
        if done == items.len() || self.turns.saturating_sub(*after_turns) > TOLD {
            return None;
        }
        let mut text = format!(
            "Your plan from an earlier turn of this conversation, {done} of {} steps done. Where the task goes on with it, \
             update_plan takes the whole plan:",
            items.len()
        );
        for PlanStep { step, status } in items {
            let status = match status {
                PlanStatus::Pending => "pending",
                PlanStatus::InProgress => "in_progress",
                PlanStatus::Done => "done",
            };
            let _ = write!(text, "\n- [{status}] {step}");
        }
        Some(text)
    }

    /// What the turns of the session have made use of after this one; none where that is what it was. What an agent is made of
    /// by now is recorded with the turn, since it may change again before it runs.
    pub fn after(
        &self,
        snapshot: &Snapshot,
        outcome: &mut TurnOutcome,
        grants: Vec<StandingGrant>,
    ) -> Option<SessionSnapshot> {
        let used = std::mem::take(&mut outcome.used);
        let is_there =
            |agent: &AgentId| agent.as_str() == ORCHESTRATOR || snapshot.agents.contains_key(agent);
        let mut now = SessionSnapshot { agreements: agreements(grants), ..SessionSnapshot::default() };
        for agent in self.snapshot.agents.keys().chain(&used.agents).filter(|agent| is_there(agent)) {
            let looping = looping(snapshot, agent);
            // Code says nothing of what it is made of.
            let recipe = looping.and_then(Agent::recipe);
            let hash = recipe.map(|recipe| recipe.hash.to_string()).unwrap_or_default();
            if self.snapshot.agents.get(agent) != Some(&hash) {
                outcome.last.recipes.extend(recipe.cloned());
            }
            now.agents.insert(agent.clone(), hash);
            if let Some(looping) = looping {
                now.tools.insert(agent.clone(), tools(looping));
                now.models.insert(agent.clone(), models(looping));
            }
        }
        now.skills.clone_from(&self.skills);
        let own = used.skills.into_iter().filter(|((agent, _), _)| agent.as_str() == ORCHESTRATOR);
        now.skills.extend(own.map(|((_, name), hash)| (name, hash.unwrap_or_default())));
        let lies =
            |name: &String| Some((name.clone(), snapshot.skills.all.get(name)?.folder.display().to_string()));
        now.skill_folders = now.skills.keys().filter_map(lies).collect();
        now.plans.clone_from(&self.snapshot.plans);
        let plans = used.plans.into_iter();
        now.plans.extend(plans.map(|(agent, items)| (agent, KeptPlan { items, after_turns: self.turns })));
        now.plans.retain(|agent, _| is_there(agent));
        (now != self.snapshot).then_some(now)
    }
}
