//! Messages that the watcher hands in, on behalf of a call or by itself, and a call that goes on meanwhile.

use std::{path::PathBuf, time::Duration};

use drupe_extension_api::prelude::*;
use serde_json::Value;

use crate::{Watcher, append};

/// How long the tool that holds waits before it looks again.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Deserialize, JsonSchema)]
pub struct Messages {
    /// The session; of several messages each has one of its own, with its number behind this.
    session: String,
    /// What is said.
    text: String,
    /// How many of them, where it is not one.
    #[serde(default)]
    count: Option<u32>,
    /// Hands them in by itself, and not on behalf of the call. What came of it is a line of `handed_in.jsonl` then.
    #[serde(default)]
    detached: bool,
    /// The form of their answers.
    #[serde(default)]
    output: Option<Value>,
}

#[derive(Deserialize, JsonSchema)]
pub struct Until {
    /// The file whose coming ends it. One of the same name and `.begun` tells that it has begun.
    until: PathBuf,
}

impl Watcher {
    /// How many were taken in, and why the first one was not that was not.
    pub async fn send(&self, messages: Messages, _: Call) -> Result<String, Fault> {
        if !messages.detached {
            return Ok(hand_in(&self.host, messages).await);
        }
        let host = self.host.clone();
        self.host.spawn(async move {
            let came_of_it = hand_in(&host, messages).await;
            if let Err(fault) = append(&host, "handed_in.jsonl", &came_of_it) {
                host.error(fault);
            }
        })?;
        Ok("it does so by itself".to_owned())
    }

    pub async fn hold(&self, Until { until }: Until, _: Call) -> Result<&'static str, Fault> {
        std::fs::write(until.with_extension("begun"), "")?;
        while !until.exists() {
            self.host.sleep(LOOK).await?;
        }
        Ok("held")
    }
}

#[derive(Deserialize, JsonSchema)]
pub struct Run {
    /// What the agent is.
    definition: Value,
    /// What it shall do.
    task: String,
    /// Ends the process by a signal when the first agent of all has answered.
    #[serde(default)]
    ends: bool,
}

impl Watcher {
    /// The content of the answer of an agent of its own making.
    pub async fn run(&self, Run { definition, task, ends }: Run, call: Call) -> Result<String, Fault> {
        let content = call.run_agent(serde_json::from_value(definition)?, task).await?.content;
        let marker = self.host.data_folder().join("ended");
        if ends && !marker.exists() {
            std::fs::write(marker, "")?;
            std::process::abort();
        }
        Ok(content)
    }
}

async fn hand_in(host: &Host, messages: Messages) -> String {
    let Messages { session, text, count, output, .. } = messages;
    let output = match output.map(serde_json::from_value).transpose() {
        Ok(output) => output,
        Err(error) => return error.to_string(),
    };
    for number in 0..count.unwrap_or(1) {
        let session = if count.is_some() { format!("{session}{number}") } else { session.clone() };
        let taken_in = match SessionId::new(session.clone()) {
            Ok(id) => {
                let submit = Submit { output: output.clone(), ..Submit::new(id, session, text.clone()) };
                host.submit(submit).await.map(drop)
            }
            Err(error) => Err(error.into()),
        };
        if let Err(fault) = taken_in {
            return format!("{number} taken in; then: {fault}");
        }
    }
    "all taken in".to_owned()
}
