//! What is offered to the kernel, and how that is found: a kernel that refuses one tool takes none of an announcement.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drupe_extension_api::prelude::*;

use crate::{
    catalog::Catalog,
    config::McpSettings,
    pins::{KnownServers, Pins},
};

/// Announcements that may be tried to find which tools are refused.
const TRIES: usize = 64;

/// The tools that the kernel is told of when it asks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offered {
    /// Tools of servers; of agents' servers alone where the others are searched for.
    pub tools: Vec<ToolSpec>,
    pub search: bool,
    pub resources: bool,
    pub prompts: bool,
}

pub struct Offer {
    now: Mutex<Offered>,
    /// One announcement at a time.
    announcing: tokio::sync::Mutex<()>,
}

impl Offer {
    pub fn new(settings: &McpSettings, state: &KnownServers) -> Self {
        Self { now: Mutex::new(wanted(settings, state)), announcing: tokio::sync::Mutex::default() }
    }

    pub fn now(&self) -> MutexGuard<'_, Offered> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what is known, and brings the kernel to offer what may be offered. What it refuses is noted by name.
    pub async fn announce(&self, host: &Host, settings: &McpSettings, pins: &Arc<Pins>) -> Result<(), Fault> {
        let _alone = self.announcing.lock().await;
        // Nothing is offered that could be forgotten.
        save(host, pins).await?;
        let wanted = wanted(settings, &pins.state());
        let before = self.now().clone();
        if before == wanted {
            return Ok(());
        }
        let Err(fault) = self.put(host, wanted.clone()).await else { return Ok(()) };
        if wanted.tools.is_empty() {
            *self.now() = before;
            return Err(fault);
        }
        let refused = self.part(host, &wanted).await;
        for (tool, why) in &refused {
            host.warn(format!("the tool `{tool}` of an MCP server is not offered: {why}"));
        }
        pins.state().refused.extend(refused);
        save(host, pins).await
    }

    async fn put(&self, host: &Host, offered: Offered) -> Result<(), Fault> {
        *self.now() = offered;
        host.tools_changed().await
    }

    /// Offers those that are taken, found by halves; gives those that are not.
    async fn part(&self, host: &Host, wanted: &Offered) -> Vec<(String, String)> {
        let mut taken = Offered { tools: Vec::new(), ..wanted.clone() };
        let mut refused = Vec::new();
        let mut waiting = vec![wanted.tools.clone()];
        let mut tries = 0;
        while let Some(mut group) = waiting.pop() {
            let mut with = taken.clone();
            with.tools.extend(group.iter().cloned());
            tries += 1;
            let told = if tries > TRIES {
                Err(Fault::invalid("too many others are refused"))
            } else {
                self.put(host, with.clone()).await
            };
            match told {
                Ok(()) => taken = with,
                Err(fault) if group.len() == 1 || tries > TRIES => {
                    refused.extend(group.iter().map(|spec| (spec.name.to_string(), fault.message.clone())));
                }
                Err(_) => {
                    let second = group.split_off(group.len() / 2);
                    waiting.push(second);
                    waiting.push(group);
                }
            }
        }
        // The kernel may have been told of more than it took.
        *self.now() = taken;
        refused
    }
}

async fn save(host: &Host, pins: &Arc<Pins>) -> Result<(), Fault> {
    let pins = Arc::clone(pins);
    host.blocking(move || pins.save()).await
}

fn wanted(settings: &McpSettings, state: &KnownServers) -> Offered {
    let catalog = Catalog::new(settings, state);
    let search = catalog.is_searched(settings);
    let mut tools = catalog.specs(settings, state);
    // An agent finds its own without a search, and skills are looked for where their names are.
    tools.retain(|spec| {
        !search || spec.annotations.only_for.is_some() || catalog.skills.contains_key(spec.name.as_str())
    });
    Offered { tools, search, resources: !catalog.resources.is_empty(), prompts: !catalog.prompts.is_empty() }
}
