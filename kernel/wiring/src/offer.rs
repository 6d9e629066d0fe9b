//! What one run is offered, and who is at fault where that cannot be.

use std::{collections::BTreeMap, fmt, sync::Arc};

use drupe_agent::{ModelProfile, Registered, Registry, RegistryBuilder};
use drupe_config::Config;
use drupe_extension_api::{ExtensionId, ToolName};

use crate::{Part, WireFault, bounds, names::looks};

/// Bytes that a token stands for at least.
const BYTES_PER_TOKEN: u64 = 3;

/// The one place where it is decided which tools a run is offered: what its agent may use, as far as its model can call
/// tools. Above the configured number of them, or where they would fill more than half of what the model can read, their
/// schemas are brought on demand. What is left out has a reason.
pub struct Offer<'a> {
    builder: RegistryBuilder,
    model: Option<&'a ModelProfile>,
    named: BTreeMap<String, (ToolName, String)>,
    /// What all of them add to a request.
    bytes: u64,
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

impl<'a> Offer<'a> {
    /// Of nothing so far. Without a model, as for an agent that is code, none is too small for tools.
    pub fn new(model: Option<&'a ModelProfile>, config: &Config) -> Self {
        let mut builder = RegistryBuilder::default();
        builder.defer_above(config.tool_search.threshold);
        Self { builder, model, named: BTreeMap::new(), bytes: 0 }
    }

    /// Adds a tool that the agent may use.
    pub fn add(&mut self, tool: Arc<Registered>) -> Result<(), Clash> {
        if let Some(model) = self.model.filter(|model| !model.tools) {
            let why = format!("the model `{}` cannot call tools", model.name);
            self.builder.exclude(tool.spec().name.as_str(), why);
            return Ok(());
        }
        let (name, owner) = (tool.spec().name.clone(), tool.tool().origin().to_owned());
        let bytes = bounds::size(tool.spec());
        match self.named.get(&looks(name.as_str())) {
            Some((known, of)) if *known != name && *of != owner => {
                let reason = format!(
                    "tool `{name}` of `{owner}` looks like `{known}` of `{of}`; rename one, or give it to other agents \
                     only"
                );
                return Err(Clash { owners: [of.clone(), owner], reason });
            }
            Some((known, of)) => {
                let owners = [of.clone(), owner];
                let same = *known == name;
                self.builder.add(tool).map_err(|error| Clash { owners, reason: error.to_string() })?;
                self.bytes += if same { 0 } else { bytes };
            }
            None => {
                let owners = [owner.clone(), owner.clone()];
                self.builder.add(tool).map_err(|error| Clash { owners, reason: error.to_string() })?;
                self.named.insert(looks(name.as_str()), (name, owner));
                self.bytes += bytes;
            }
        }
        Ok(())
    }

    pub fn exclude(&mut self, tool: &str, reason: impl Into<String>) {
        self.builder.exclude(tool, reason);
    }

    pub fn build(mut self) -> Arc<Registry> {
        if self.model.is_some_and(|model| self.bytes / BYTES_PER_TOKEN > model.context_window / 2) {
            self.builder.defer_above(0);
        }
        Arc::new(self.builder.build())
    }
}
