//! What a run is offered: the one place where that is decided.
//!
//! [`offer`] is a pure function of what the agent may use and of the terms under which it runs. It is called for each agent
//! when it is wired, for an agent that is code when it has the loop run for it, and for a turn that names another model
//! when that begins. Whatever is to decide in future (who asks, a mode, an allowlist of a session) is a further field of
//! [`Terms`], and nothing else.
//!
//! It must not ask anybody, start anything, look at a clock, or know where a tool comes from beyond its owner's name. What
//! it leaves out it names with the reason: a person who misses a tool finds out why, and the model that lacks it may be told.
//! Two tools that a model would take for each other are refused together, since one of them would run in the other's place.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use drupe_agent::{ModelProfile, Registered, Registry, RegistryBuilder, spawn_agent};
use drupe_config::{Config, Manifest};
use drupe_extension_api::{DefinitionLimits, ExtensionId, control::Exclusion};

use crate::{Part, WireFault, bounds, names::looks};

/// Bytes that a token stands for at least.
const BYTES_PER_TOKEN: u64 = 3;

/// What an agent may use by its definition, whatever model answers for it.
#[derive(Clone, Default)]
pub struct Allowed {
    pub tools: Vec<Arc<Registered>>,
    /// What it may not, and why.
    pub excluded: Vec<Exclusion>,
    /// Whether it is offered none of its clients' tools.
    pub no_client_tools: bool,
}

/// Under which a run begins.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The model that answers; none for an agent that is code, for which no window is too small.
    pub model: Option<&'a ModelProfile>,
    /// With more tools than this, their schemas are brought on demand.
    pub most: usize,
}

impl<'a> Terms<'a> {
    pub fn new(model: Option<&'a ModelProfile>, config: &Config) -> Self {
        Self { model, most: config.tool_search.threshold }
    }
}

/// Two tools that one run cannot both be offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    owners: [String; 2],
    reason: String,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Clash {
    /// Whose fault it is: of the owners and of the agent that was to have both, the one that came last. What was there
    /// before keeps its name.
    pub(crate) fn blame(self, parts: &[Part], agent: Option<&ExtensionId>) -> WireFault {
        let involved = |part: &Part| {
            self.owners.iter().any(|owner| owner == part.id().as_str()) || agent == Some(part.id())
        };
        let last = parts.iter().rfind(|part| involved(part));
        WireFault { extension: last.map(|part| part.id().clone()), reason: self.reason }
    }
}

impl Allowed {
    /// With the tools by which agents have others work beside them, unless the limits say that none may.
    pub fn spawns(&mut self, limits: &DefinitionLimits) {
        match limits.max_active_children {
            0 => self.exclude(spawn_agent::SPAWN, "`max_active_children` is 0".into()),
            _ => self.tools.extend(spawn_agent::tools()),
        }
    }

    /// The same for an agent, where its manifest lists others.
    pub fn spawns_what_is_listed(&mut self, manifest: &Manifest, limits: &DefinitionLimits) {
        if manifest.agent.as_ref().is_some_and(|agent| !agent.uses_agents.is_empty()) {
            self.spawns(limits);
        }
    }

    pub fn exclude(&mut self, tool: &str, reason: String) {
        self.excluded.push(Exclusion { tool: tool.to_owned(), reason });
    }
}

/// The tools of a run. A model that cannot call tools gets none. Above the configured number of them, or where they would
/// fill more than half of what the model can read, their schemas are brought on demand.
pub fn offer(allowed: &Allowed, terms: Terms<'_>) -> Result<Arc<Registry>, Clash> {
    let Terms { model, most } = terms;
    let mut builder = RegistryBuilder::default();
    for Exclusion { tool, reason } in &allowed.excluded {
        builder.exclude(tool, reason);
    }
    let (mut alike, mut counted, mut bytes) = (BTreeMap::new(), BTreeSet::new(), 0);
    for tool in &allowed.tools {
        let (name, owner) = (&tool.spec().name, tool.tool().origin());
        if let Some(model) = model.filter(|model| !model.tools) {
            builder.exclude(name.as_str(), format!("the model `{}` cannot call tools", model.name));
            continue;
        }
        let (known, of) = *alike.entry(looks(name.as_str())).or_insert((name, owner));
        let clash = |reason| Clash { owners: [of.to_owned(), owner.to_owned()], reason };
        if known != name && of != owner {
            return Err(clash(format!(
                "tool `{name}` of `{owner}` looks like `{known}` of `{of}`; rename one, or give it to other agents only"
            )));
        }
        builder.add(Arc::clone(tool)).map_err(|error| clash(error.to_string()))?;
        if counted.insert(name) {
            bytes += bounds::size(tool.spec());
        }
    }
    let too_large = model.is_some_and(|model| bytes / BYTES_PER_TOKEN > model.context_window / 2);
    builder.defer_above(if too_large { 0 } else { most });
    Ok(Arc::new(builder.build()))
}

#[cfg(test)]
mod tests;
