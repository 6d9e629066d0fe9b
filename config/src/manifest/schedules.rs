//! `schedules`: what an extension does at set times.

use std::{collections::BTreeSet, time::Duration};

use drupe_schedule::{Misfire, MisfirePolicy, Timing};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::read::{Form, Reader};
use crate::{
    declare::keys,
    fields::Field,
    forms,
    settings::millis,
    shape::{Shape, each_its_own},
    tree,
};

/// The most schedules of one extension.
pub(super) const MAX_SCHEDULES: usize = 32;

/// The longest name: with the id of its extension it is a part of a session's id.
const LONGEST_NAME: usize = 24;

/// The longest grace: a week, in milliseconds.
const LONGEST_GRACE: u64 = 7 * 24 * 3_600 * 1_000;

keys! {
    /// Something that an extension does at set times.
    #[derive(PartialEq, Eq)]
    pub struct ScheduleConfig in SCHEDULE("the schedule") {
        /// Its name, of which its id is made: `<extension>/<name>`.
        name: String = "" => Shape::Text(&forms::ID), required;
        /// When: cron (`0 8 * * 1-5`), `@every 30m`, or a date (`2026-12-24 18:00`).
        cron: String = "" => Shape::Text(&forms::NON_EMPTY), required;
        /// The time zone of that; absent: that of `schedules.timezone`.
        timezone (skip_serializing_if = "Option::is_none"): Option<String> => Shape::Text(&forms::NON_EMPTY);
        /// What the agent is to do. Without it the extension's own code does something.
        task (skip_serializing_if = "Option::is_none"): Option<String> => Shape::Text(&forms::NON_EMPTY);
        /// What is looked at before the agent is asked: a call of one of its tools, which asks no model.
        only_if (skip_serializing_if = "Option::is_none"): Option<ConditionConfig> => Shape::Record(&CONDITION);
        /// What becomes of times that came while the daemon did not run.
        misfire: MisfireChoice = "once" => Shape::choice(&["skip", "once", "all"]);
        /// With `misfire: all`, the most that are made up for.
        max: u32 = 10 => Shape::Integer { min: 1, max: 100 };
        /// How late it may still be done.
        grace as "grace_ms" (with = "millis"): Duration = 300_000 => Shape::Integer { min: 0, max: LONGEST_GRACE };
        /// What becomes of a time at which the run before still goes on.
        overlap: OverlapChoice = "skip" => Shape::choice(&["skip", "queue"]);
        /// Whether its answers are shown where a person wrote last.
        notify: bool = true => Shape::Bool;
    }
}

keys! {
    /// A call of a tool that says whether there is anything to do.
    #[derive(PartialEq, Eq)]
    pub struct ConditionConfig in CONDITION("the condition") {
        /// The tool, which must be one of the agent's.
        tool: String = "" => Shape::Text(&forms::TOOL_NAME), required;
        /// Its parameters.
        params: Map<String, Value> = each_its_own() => Shape::Open;
    }
}

impl ScheduleConfig {
    /// One that an extension's code names.
    pub fn of_code(name: &str, cron: &str, timezone: Option<&str>) -> Result<Self, UnfitSchedule> {
        if !(forms::ID.check)(name) || name.len() > LONGEST_NAME {
            return Err(UnfitSchedule(format!(
                "its code has a schedule `{name:.64}`, whose name is no id of at most {LONGEST_NAME} characters"
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            cron: cron.to_owned(),
            timezone: timezone.map(str::to_owned),
            task: None,
            only_if: None,
            misfire: MisfireChoice::default(),
            max: 1,
            grace: Duration::from_mins(5),
            overlap: OverlapChoice::default(),
            notify: true,
        })
    }

    /// Whether a time at which the run before still goes on is done afterwards.
    pub fn queues(&self) -> bool {
        self.overlap == OverlapChoice::Queue
    }

    /// What becomes of its times that nobody was there for.
    pub fn misfire(&self) -> Misfire {
        let policy = match self.misfire {
            MisfireChoice::Skip => MisfirePolicy::Skip,
            MisfireChoice::Once => MisfirePolicy::Once,
            MisfireChoice::All => MisfirePolicy::All { max: self.max },
        };
        Misfire { policy, grace: self.grace }
    }
}

/// Why an extension cannot have a schedule as it names it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnfitSchedule(pub String);

/// Which times that nobody was there for are made up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MisfireChoice {
    Skip,
    #[default]
    Once,
    All,
}

/// What becomes of a time at which the run before still goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlapChoice {
    #[default]
    Skip,
    Queue,
}

impl Reader<'_> {
    pub(super) fn check_schedules(&mut self, manifest: &Field<'_>) {
        let is_agent = manifest.get("agent").is_some() || !matches!(self.form, Form::Folder);
        let has_code = manifest.get("entrypoint").is_some();
        let mut names = BTreeSet::new();
        for schedule in manifest.items("schedules") {
            match schedule.get("task") {
                Some(task) if !is_agent => {
                    self.faults
                        .error(
                            "task_without_agent",
                            &task.node.at,
                            &task.path,
                            "`task` runs an agent, and there is no `agent`",
                        )
                        .help(
                            "add an `agent` section, or leave `task` out: the extension's code is asked then",
                        );
                }
                None if !has_code => {
                    self.faults
                        .error(
                            "schedule_without_task",
                            &schedule.node.at,
                            &schedule.path,
                            "the schedule says no `task`, and there is no code that could know",
                        )
                        .help("say in `task` what the agent is to do");
                }
                None if schedule.get("only_if").is_some() => {
                    self.faults
                        .error(
                            "condition_without_task",
                            &schedule.node.at,
                            &schedule.path,
                            "`only_if` says whether an agent is asked, and there is no `task` for one",
                        )
                        .help("say in `task` what the agent is to do, or leave `only_if` out");
                }
                _ => {}
            }
            let name = schedule.get("name");
            if let Some(name) = &name
                && let Some(text) = name.node.text()
                && text.len() > LONGEST_NAME
            {
                let message = format!("the name has {} characters; it may have {LONGEST_NAME}", text.len());
                self.faults.error("invalid_schedule", &name.node.at, &name.path, message).help("shorten it");
            }
            if let Some(name) = name
                && let Some(text) = name.node.text()
                && !names.insert(text)
            {
                let message = format!("`{}` is the name of two schedules", tree::shorten(text));
                self.faults.error("duplicate_schedule", &name.node.at, &name.path, message).help("rename it");
            }
            let zone = schedule.get("timezone");
            let zone_text = zone.as_ref().and_then(|zone| zone.node.text()).unwrap_or("UTC");
            if let Some(cron) = schedule.get("cron")
                && let Some(text) = cron.node.text()
                && let Err(unfit) = Timing::new(text, zone_text)
            {
                // A time that is right in another zone has a zone that is wrong.
                let field = zone.filter(|_| Timing::new(text, "UTC").is_ok()).unwrap_or(cron);
                self.faults.error("invalid_schedule", &field.node.at, &field.path, unfit.to_string());
            }
        }
    }
}
