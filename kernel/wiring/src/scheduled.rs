//! What extensions do at set times, by their manifests and by their code.

use drupe_config::{ScheduleConfig, UnfitSchedule};
use drupe_extension_api::{
    ExtensionId, ToolCallRequest,
    wire::{Capability, Schedule},
};
use drupe_schedule::{Misfire, Timing};
use serde_json::Value;

use crate::{AgentEntry, Part};

/// Something that an extension does at set times.
#[derive(Debug, Clone)]
pub struct Scheduled {
    /// `extension/name`, or the name of one that a person added.
    pub id: String,
    /// The extension; none where a person added it.
    pub owner: Option<ExtensionId>,
    /// Its name within the extension.
    pub name: String,
    pub timing: Timing,
    /// The time zone of that, as it was named.
    pub timezone: String,
    /// What becomes of times that nobody was there for.
    pub misfire: Misfire,
    /// Whether a time at which the run before still goes on is done afterwards.
    pub queues: bool,
    /// What its agent does; none where its code does something.
    pub task: Option<String>,
    /// What its agent's tool is asked before the agent is.
    pub only_if: Option<ToolCallRequest>,
    /// Whether answers are shown to people.
    pub notify: bool,
}

/// Those of one part; fails where one cannot be.
pub(crate) fn of(part: &Part, timezone: &str) -> Result<Vec<Scheduled>, UnfitSchedule> {
    let can = part.can(Capability::Scheduler);
    let named = &part.manifest.schedules;
    let own = part.description.schedules.iter().filter(|_| can).map(|schedule| {
        let Schedule { name, cron, timezone, .. } = schedule;
        if named.iter().any(|other| other.name == *name) {
            return Err(UnfitSchedule(format!(
                "its code and its manifest both have a schedule `{name:.64}`"
            )));
        }
        ScheduleConfig::of_code(name, cron, timezone.as_deref())
    });
    let all = named.iter().cloned().map(Ok).chain(own);
    all.map(|schedule| scheduled(part.id(), can, schedule?, timezone)).collect()
}

/// Why the condition of a schedule of that agent's cannot be; none where it can.
pub(crate) fn unfit_condition(schedule: &Scheduled, agent: Option<&AgentEntry>) -> Option<String> {
    let condition = schedule.only_if.as_ref()?;
    let why = match agent.map(|agent| agent.registry.get(&condition.name)) {
        Some(Some(tool)) => tool.parameters(&condition.arguments).err()?,
        _ => format!("`{}` is none of its agent's tools", condition.name),
    };
    Some(format!("`only_if` of its schedule `{}` cannot be: {why}", schedule.name))
}

fn scheduled(
    owner: &ExtensionId,
    can: bool,
    schedule: ScheduleConfig,
    timezone: &str,
) -> Result<Scheduled, UnfitSchedule> {
    let name = &schedule.name;
    if schedule.task.is_none() && !can {
        return Err(UnfitSchedule(format!(
            "the schedule `{name}` has no `task`, and the extension's code has not the capability Scheduler"
        )));
    }
    let timezone = schedule.timezone.as_deref().unwrap_or(timezone);
    let timing = Timing::new(&schedule.cron, timezone)
        .map_err(|unfit| UnfitSchedule(format!("its schedule `{name}` cannot be: {unfit}")))?;
    Ok(Scheduled {
        id: format!("{owner}/{name}"),
        owner: Some(owner.clone()),
        timing,
        timezone: timezone.to_owned(),
        misfire: schedule.misfire(),
        queues: schedule.queues(),
        only_if: schedule.only_if.map(|condition| ToolCallRequest {
            call_id: String::new(),
            name: condition.tool,
            arguments: Value::Object(condition.params).to_string(),
        }),
        notify: schedule.notify,
        name: schedule.name,
        task: schedule.task,
    })
}
