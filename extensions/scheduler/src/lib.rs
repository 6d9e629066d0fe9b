//! What somebody asks for at set times. Provides `scheduler_add`, `scheduler_list` and `scheduler_remove`; needs the right
//! `control`, since the daemon keeps schedules and does what is due.
//!
//! Each call sees the schedules of its own conversation, where their answers are shown.

use drupe_extension_api::{
    control::{Named, ScheduleNew, ScheduleStatus, method},
    prelude::*,
};

struct Scheduler {
    host: Host,
}

impl Extension for Scheduler {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Self { host })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Add {
    /// A short name of `a-z`, `0-9`, `_` and `-`, such as `morning-news`.
    name: String,
    /// Cron (`0 8 * * 1-5`), `@every 30m`, or a date and time for once (`2026-12-24 18:00`).
    when: String,
    /// What is to be done then, in full: whoever does it knows nothing of this conversation.
    task: String,
    /// The time zone of `when`, such as `Europe/Berlin`; leave it out for the user's own.
    timezone: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Remove {
    /// Its name, as `scheduler_list` gives it.
    name: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// A schedule, as a model is shown it.
#[derive(Serialize)]
struct Shown {
    name: String,
    when: String,
    timezone: String,
    task: Option<String>,
    next: Option<String>,
    last: Option<String>,
    paused: Option<String>,
}

impl From<ScheduleStatus> for Shown {
    fn from(status: ScheduleStatus) -> Self {
        let last = status.last.map(|run| match run.detail {
            Some(why) => format!("{} {:?}: {why}", run.slot, run.state),
            None => format!("{} {:?}", run.slot, run.state),
        });
        Self {
            name: status.id,
            when: status.when,
            timezone: status.timezone,
            task: status.task,
            next: status.next.map(|next| next.to_string()),
            last,
            paused: status.paused,
        }
    }
}

impl ToolProvider for Scheduler {
    fn tools(&self) -> Vec<Tool<Self>> {
        vec![
            Tool::new("scheduler_add", "Has a task done later, once or again and again.", Self::add)
                .remembers(),
            Tool::new("scheduler_list", "Lists what this conversation has scheduled.", Self::list)
                .read_only(),
            // What strangers want left out is asked about as what they want done.
            Tool::new("scheduler_remove", "Removes what this conversation has scheduled.", Self::remove)
                .idempotent()
                .remembers(),
        ]
    }
}

impl Scheduler {
    async fn add(&self, add: Add, call: Call) -> Result<Shown, Fault> {
        let Add { name, when, task, timezone } = add;
        let session = Some(call.session.clone());
        let new = ScheduleNew { name, when, timezone, task, agent: None, session, grace_ms: None };
        self.host.control::<ScheduleStatus>(method::SCHEDULES_ADD, &new).await.map(Shown::from)
    }

    async fn list(&self, _: Nothing, _: Call) -> Result<Vec<Shown>, Fault> {
        let all: Vec<ScheduleStatus> = self.host.control(method::SCHEDULES_LIST, &()).await?;
        Ok(all.into_iter().map(Shown::from).collect())
    }

    async fn remove(&self, remove: Remove, _: Call) -> Result<&'static str, Fault> {
        self.host.control::<()>(method::SCHEDULES_REMOVE, &Named { id: remove.name }).await?;
        Ok("removed")
    }
}

export!(Scheduler: Tool);

#[cfg(test)]
mod tests {
    use drupe_extension_api::testing::{Harness, block_on};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_asked_for_is_added_for_the_conversation_of_the_call() {
        let harness: Harness<Scheduler> =
            block_on(Harness::setup().id("scheduler").start()).expect("it starts");
        let status =
            json!({"id": "tea", "when": "@daily", "timezone": "system", "task": "tea", "made_by": "x"});
        harness.host().answer_control(method::SCHEDULES_ADD, Ok(status));
        let tea = json!({"name": "tea", "when": "@daily", "task": "tea"});
        let shown = block_on(harness.calling().call("scheduler_add", tea)).expect("it is added");
        assert!(shown.contains("\"name\":\"tea\""), "{shown}");
        let (method, params) = harness.host().control_calls().remove(0);
        assert_eq!(method, "schedules.add");
        assert_eq!(params, json!({"name": "tea", "when": "@daily", "task": "tea", "session": "session-1"}));
        let fault = block_on(harness.calling().call("scheduler_add", json!({"name": "tea"})));
        assert!(fault.expect_err("it says too little").to_string().contains("when"));
    }
}
