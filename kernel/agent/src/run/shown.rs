//! What tools of the loop's own keep in a run: its plan, the tools that were looked up, and those that skills leave it.

use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
};

use drupe_extension_api::{EventBody, Item, ItemKind, ItemOutcome, Preview, ToolName, control::PlanStep};
use tokio::time::Instant;

use super::{Run, millis};

#[derive(Default)]
pub(super) struct Shown {
    /// The last plan.
    plan: Option<String>,
    /// When its item was started.
    plan_began: Option<Instant>,
    /// Deferred tools that were looked up.
    brought: BTreeSet<ToolName>,
    /// The skills that leave the run some tools only, and which these are.
    narrowed: Option<(String, BTreeSet<String>)>,
    /// An item of a model's answer tells of the failure by which the run ends.
    failed: bool,
}

impl Run {
    /// Shows a plan: the item begins with the first one, and the last one completes it when the run ends.
    pub(crate) fn show_plan(&self, plan: String) {
        let mut shown = self.shown();
        self.start_plan(&mut shown);
        self.tell(EventBody::ItemUpdated {
            id: self.plan_id(),
            item: ItemKind::TodoList,
            delta: plan.clone(),
        });
        shown.plan = Some(plan);
    }

    /// Takes over a plan that an earlier process showed.
    pub(crate) fn keep_plan(&self, plan: String) {
        self.shown().plan = Some(plan);
    }

    /// Leaves a plan to later turns, where its agent is the one that answers.
    pub(crate) fn leave_plan(&self, steps: Vec<PlanStep>) {
        if self.parent.is_none() {
            self.scope.used().plans.insert(self.agent.clone(), steps);
        }
    }

    fn start_plan(&self, shown: &mut Shown) {
        if shown.plan_began.is_none() {
            shown.plan_began = Some(Instant::now());
            self.tell(EventBody::ItemStarted { item: self.plan_item(None) });
        }
    }

    /// Completes the plan with what it is by now.
    pub(super) fn end_plan(&self) {
        let mut shown = self.shown();
        let Some(plan) = shown.plan.take() else { return };
        self.start_plan(&mut shown);
        let elapsed_ms = shown.plan_began.map_or(0, |began| millis(began.elapsed()));
        let item = self.plan_item(Some(Preview::kept(&plan, &self.plan_id())));
        self.tell(EventBody::ItemCompleted { item, outcome: ItemOutcome::Ok, elapsed_ms });
    }

    fn plan_item(&self, output: Option<Preview>) -> Item {
        Item { id: self.plan_id(), kind: ItemKind::TodoList, name: None, input: None, output }
    }

    fn plan_id(&self) -> String {
        format!("{}.plan", self.id)
    }

    /// Deferred tools that were looked up are offered from the next step on.
    pub(crate) fn bring(&self, names: impl IntoIterator<Item = ToolName>) {
        self.shown().brought.extend(names);
    }

    /// The deferred tools that were looked up.
    pub(crate) fn brought(&self) -> BTreeSet<ToolName> {
        self.shown().brought.clone()
    }

    /// Leaves the run the loop's own tools and `allowed`, as `skill` says. With several such skills, what any of them leaves.
    pub(crate) fn narrow(&self, skill: &str, allowed: BTreeSet<String>) {
        let mut shown = self.shown();
        let (skills, all) = shown.narrowed.get_or_insert_default();
        if !skills.is_empty() {
            skills.push_str("`, `");
        }
        skills.push_str(skill);
        all.extend(allowed);
    }

    /// Why a skill does not leave the run that tool, if it does not.
    pub(crate) fn narrowed_out(&self, tool: &str) -> Option<String> {
        let shown = self.shown();
        let (skills, allowed) = shown.narrowed.as_ref().filter(|(_, allowed)| !allowed.contains(tool))?;
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
        Some(format!("not run: of the tools beside the loop's own the skill `{skills}` leaves you {allowed}"))
    }

    /// The item of a model's answer ended without success.
    pub(crate) fn item_failed(&self) {
        self.shown().failed = true;
    }

    /// Tells of a failure that no item tells of.
    pub(super) fn error_item(&self, error: &str) {
        if self.shown().failed {
            return;
        }
        let id = format!("{}.error", self.id);
        let item = |output| Item { id: id.clone(), kind: ItemKind::Error, name: None, input: None, output };
        self.tell(EventBody::ItemStarted { item: item(None) });
        let item = item(Some(Preview::of(error)));
        self.tell(EventBody::ItemCompleted { item, outcome: ItemOutcome::Error, elapsed_ms: 0 });
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
