//! Watches: as a hook, as a provider of context, and as a follower of a topic; and hands messages in. For tests of whoever
//! calls it. What it is to do at set times it writes down as well.
//!
//! What it was told is appended to files in its data folder, a line of JSON each: `hooks.jsonl` has `{point, facts}`,
//! `messages.jsonl` the messages of the topic, `schedules.jsonl` the names of schedules, `calls.jsonl` the paths of calls of
//! `emit`, and on whose behalf they were made. It deliberately decides nothing: the configuration says what it does.

mod config;
mod submit;

use std::{fs::OpenOptions, io::Write as _};

use drupe_extension_api::prelude::*;
use serde_json::Value;

use config::{Act, Config};

struct Watcher {
    host: Host,
    config: Config,
}

impl Extension for Watcher {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Self { config: host.config()?, host })
    }

    async fn start(&self) -> Result<(), Fault> {
        let Some(topic) = &self.config.follow else { return Ok(()) };
        let messages = self.host.subscribe_durable(topic).await?;
        self.host.spawn(follow(self.host.clone(), messages))
    }
}

/// Writes each message down before it asks for the next, which is what says that it is done with it.
async fn follow(host: Host, mut messages: Subscription) {
    while let Ok(Some(message)) = messages.next().await {
        if let Err(fault) = append(&host, "messages.jsonl", &message) {
            return host.error(fault);
        }
    }
}

impl ToolProvider for Watcher {
    fn tools(&self) -> Vec<Tool<Self>> {
        let prefix = self.config.prefix.as_deref().unwrap_or("watcher");
        let name = |name: &str| format!("{prefix}_{name}");
        vec![
            Tool::new(name("emit"), "Publishes a message on a topic.", Self::emit),
            Tool::new(name("send"), "Hands messages in.", Self::send),
            Tool::new(name("hold"), "Goes on until a file is there.", Self::hold),
            Tool::new(name("run"), "Runs an agent of the caller's making.", Self::run).idempotent(),
        ]
    }
}

impl ContextProvider for Watcher {
    async fn context(&self, _: Turn) -> Result<Option<ContextText>, Fault> {
        let Some(context) = &self.config.context else { return Ok(None) };
        if let Some(act) = context.does {
            perform(act).await?;
        }
        Ok(Some(ContextText { text: context.text.clone(), priority: context.priority, untrusted: false }))
    }
}

impl Hook for Watcher {
    fn points(&self) -> Vec<HookPoint> {
        self.config.points.clone()
    }

    async fn on(&self, call: HookCall) -> Result<HookVerdict, Fault> {
        append(&self.host, "hooks.jsonl", &call)?;
        match self.config.act(&call) {
            Some(Act::Block) => Ok(HookVerdict::Block { reason: "the watcher says no".into() }),
            Some(act) => perform(act).await.map(|()| HookVerdict::Continue),
            None => Ok(HookVerdict::Continue),
        }
    }
}

impl Scheduler for Watcher {
    fn schedules(&self) -> Vec<Schedule> {
        self.config.schedules.clone()
    }

    async fn execute(&self, name: String) -> Result<Option<String>, Fault> {
        append(&self.host, "schedules.jsonl", &name)?;
        match self.config.fail_schedules {
            true => perform(Act::Fail).await.map(|()| None),
            false => Ok(None),
        }
    }
}

export!(Watcher: Tool, Scheduler, Context, Hook);

async fn perform(act: Act) -> Result<(), Fault> {
    match act {
        Act::Block => Ok(()),
        Act::Hang => std::future::pending().await,
        Act::Fail => Err(Fault::new(FaultCode::Other, "the configuration says `fail`")),
    }
}

fn append(host: &Host, file: &str, line: &impl Serialize) -> Result<(), Fault> {
    let mut file = OpenOptions::new().create(true).append(true).open(host.data_folder().join(file))?;
    let line = serde_json::to_string(line)? + "\n";
    // In one piece, so that a reader finds whole lines.
    Ok(file.write_all(line.as_bytes())?)
}

#[derive(Deserialize, JsonSchema)]
struct Message {
    /// The topic, below the extension's id.
    topic: String,
    /// What is said.
    #[serde(default)]
    payload: Value,
    /// Says it as the extension does of itself, and not on behalf of the call.
    #[serde(default)]
    detached: bool,
}

impl Watcher {
    async fn emit(&self, message: Message, call: Call) -> Result<&'static str, Fault> {
        append(&self.host, "calls.jsonl", &(&call.call_path, &call.on_behalf_of))?;
        match message.detached {
            true => self.host.emit(&message.topic, &message.payload).await?,
            false => call.emit(&message.topic, &message.payload).await?,
        }
        Ok("emitted")
    }
}

#[cfg(test)]
mod tests;
