//! The plan that an agent keeps while it works: read from its item, shown as lines. Pure.

use drupe_extension_api::{Event, EventBody, Item, ItemKind, control::KeptPlan};
use serde::Deserialize;
use serde_json::Value;

use crate::cli::console::short;

/// Characters of a step that are shown.
const STEP: usize = 120;

/// Steps that are shown while the plan is worked off: enough around the current one.
const LIVE: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanView {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Step {
    step: String,
    #[serde(default)]
    status: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Progress {
    Done,
    #[serde(rename = "in_progress")]
    Current,
    /// Also what a later release may say.
    #[default]
    #[serde(other)]
    Pending,
}

impl PlanView {
    /// The plan that an event tells, if it tells one of the root's.
    pub fn of(event: &Event) -> Option<Self> {
        if event.agent.as_ref().is_some_and(|agent| agent.depth > 0) {
            return None;
        }
        match &event.body {
            EventBody::ItemUpdated { item: ItemKind::TodoList, delta, .. } => Self::parse(delta),
            EventBody::ItemStarted { item } | EventBody::ItemCompleted { item, .. } => Self::of_item(item),
            _ => None,
        }
    }

    /// One that is kept with a session.
    pub fn of_kept(plan: &KeptPlan) -> Option<Self> {
        Self::parse(&serde_json::to_string(plan).ok()?)
    }

    fn of_item(item: &Item) -> Option<Self> {
        let texts = [&item.output, &item.input].into_iter().flatten();
        let mut plans = texts.filter_map(|preview| Self::parse(&preview.text));
        if item.kind == ItemKind::TodoList { plans.next() } else { None }
    }

    /// A list of steps, or an object that holds one as `items`. None for what is neither, such as a preview that was
    /// cut.
    fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let list = value.get("items").unwrap_or(&value);
        Some(Self { steps: Vec::deserialize(list).ok()? })
    }

    pub fn lines(&self) -> Vec<String> {
        self.some(0, self.steps.len())
    }

    /// The steps around the one that is worked on.
    pub fn live(&self) -> Vec<String> {
        let current = self.steps.iter().position(|step| step.status != Progress::Done).unwrap_or(0);
        let last = self.steps.len().saturating_sub(LIVE);
        // The one before tells where one is.
        let from = current.saturating_sub(1).min(last);
        self.some(from, from + LIVE)
    }

    fn some(&self, from: usize, to: usize) -> Vec<String> {
        let done = self.steps.iter().filter(|step| step.status == Progress::Done).count();
        let to = to.min(self.steps.len());
        let mut lines = vec![format!("plan: {done} of {} done", self.steps.len())];
        lines.extend(self.steps[from..to].iter().map(|step| {
            let mark = match step.status {
                Progress::Done => "✓",
                Progress::Current => "▸",
                Progress::Pending => "○",
            };
            format!("  {mark} {}", short(&step.step, STEP))
        }));
        let more = self.steps.len() - (to - from);
        if more > 0 {
            lines.push(format!("  and {more} more"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(statuses: &[&str]) -> PlanView {
        let steps = statuses
            .iter()
            .enumerate()
            .map(|(at, status)| format!("{{\"step\":\"s{at}\",\"status\":\"{status}\"}}"));
        PlanView::parse(&format!("{{\"items\":[{}]}}", steps.collect::<Vec<_>>().join(","))).expect("a plan")
    }

    #[test]
    fn a_plan_is_a_line_a_step_with_its_progress() {
        let plan = plan(&["done", "in_progress", "pending", "paused"]);
        assert_eq!(plan.lines(), ["plan: 1 of 4 done", "  ✓ s0", "  ▸ s1", "  ○ s2", "  ○ s3"]);
    }

    #[test]
    fn a_long_plan_is_shown_around_the_step_that_is_worked_on() {
        let check = |done: usize, expected: &[&str]| {
            let statuses: Vec<_> = (0..9).map(|at| if at < done { "done" } else { "pending" }).collect();
            assert_eq!(plan(&statuses).live()[1..], *expected, "{done}");
        };
        check(0, &["  ○ s0", "  ○ s1", "  ○ s2", "  ○ s3", "  ○ s4", "  and 4 more"]);
        check(4, &["  ✓ s3", "  ○ s4", "  ○ s5", "  ○ s6", "  ○ s7", "  and 4 more"]);
        check(8, &["  ✓ s4", "  ✓ s5", "  ✓ s6", "  ✓ s7", "  ○ s8", "  and 4 more"]);
    }

    #[test]
    fn a_list_is_a_plan_and_anything_else_is_none() {
        let list = PlanView::parse("[{\"step\":\"a\\u001b[2J\\nb\"}]").expect("a plan");
        assert_eq!(list.lines(), ["plan: 0 of 1 done", "  ○ a[2J b"]);
        for text in ["", "[{\"step\":\"a\"", "{}", "3", "[1]"] {
            assert_eq!(PlanView::parse(text), None, "{text}");
        }
    }
}
