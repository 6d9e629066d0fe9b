//! The tools of one invocation: what is not in here does not run, by whatever spelling.
//!
//! With many tools, all but the loop's own are deferred: the model knows them by a line each, and looks up what it
//! needs. They stay in here and run like all others.

use std::{collections::BTreeMap, sync::Arc};

use drupe_extension_api::{ToolName, ToolSpec, control::Exclusion};
use drupe_json_schema::Schema;
use serde_json::value::RawValue;

use crate::{core_tools::search_tools, long_work, parameters, tool::Tool};

/// A tool with its compiled schema; shared by all registries that hold it.
pub struct Registered {
    tool: Arc<dyn Tool>,
    schema: Arc<Schema>,
    /// The loop's own; never deferred.
    core: bool,
}

/// Why tools cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Two tools that one agent sees have the same name.
    #[error(
        "tool `{name}` is provided by both `{first}` and `{second}`; rename one, or give it to other agents only"
    )]
    Duplicate {
        /// The name.
        name: ToolName,
        /// Who provides it.
        first: String,
        /// Who provides it, too.
        second: String,
    },
    /// The schema of a tool's input is no JSON Schema.
    #[error("the input schema of tool `{name}` of `{origin}` is not valid: {reason}")]
    Schema {
        /// The tool.
        name: ToolName,
        /// Who provides it.
        origin: String,
        /// What is wrong.
        reason: String,
    },
}

impl Registered {
    /// Compiles the tool's schema.
    pub fn new(tool: Arc<dyn Tool>) -> Result<Arc<Self>, RegistryError> {
        if let Some(schema) = tool.schema() {
            return Ok(Self::shared(tool, schema, false));
        }
        let spec = tool.spec();
        let schema = Schema::new(&spec.input_schema).map_err(|error| RegistryError::Schema {
            name: spec.name.clone(),
            origin: tool.origin().to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self::shared(tool, Arc::new(schema), false))
    }

    /// A tool of the loop's own, which is never deferred.
    pub fn core(tool: Arc<dyn Tool>) -> Result<Arc<Self>, RegistryError> {
        let Self { tool, schema, .. } = &*Self::new(tool)?;
        Ok(Self::shared(Arc::clone(tool), Arc::clone(schema), true))
    }

    /// Whether it is the loop's own, which every run with it keeps.
    pub fn is_core(&self) -> bool {
        self.core
    }

    /// A tool whose compiled schema others have, too.
    pub(crate) fn shared(tool: Arc<dyn Tool>, schema: Arc<Schema>, core: bool) -> Arc<Self> {
        Arc::new(Self { tool, schema, core })
    }

    /// What runs where the parameters fit.
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }

    /// What models are told of it.
    pub fn spec(&self) -> &Arc<ToolSpec> {
        self.tool.spec()
    }

    /// Parses and validates parameters as a model wrote them; no text stands for no parameters.
    pub fn parameters(&self, arguments: &str) -> Result<Box<RawValue>, String> {
        let text = if arguments.trim().is_empty() { "{}" } else { arguments };
        let value =
            parameters::parse(text).map_err(|error| format!("the parameters are not valid JSON: {error}"))?;
        let refusal = long_work::over(text.len(), || self.schema.refusal(&value));
        if let Some(faults) = refusal {
            return Err(format!("the parameters do not fit the schema of `{}`: {faults}", self.spec().name));
        }
        RawValue::from_string(text.to_owned()).map_err(|error| error.to_string())
    }
}

/// An immutable set of tools, sorted by name.
#[derive(Default)]
pub struct Registry {
    tools: BTreeMap<ToolName, Arc<Registered>>,
    specs: Arc<[Arc<ToolSpec>]>,
    offered: Arc<[Arc<ToolSpec>]>,
    deferred: Arc<[Arc<ToolSpec>]>,
    excluded: Vec<Exclusion>,
}

impl Registry {
    /// The tool of exactly that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Registered>> {
        self.tools.get(name)
    }

    /// All tools as models are told of them, sorted by name; the same list for the registry's whole life.
    pub fn specs(&self) -> &Arc<[Arc<ToolSpec>]> {
        &self.specs
    }

    /// The tools that a model gets from the first step on, sorted by name.
    pub fn offered(&self) -> &Arc<[Arc<ToolSpec>]> {
        &self.offered
    }

    /// The tools that a model gets when it has looked them up, sorted by name.
    pub fn deferred(&self) -> &Arc<[Arc<ToolSpec>]> {
        &self.deferred
    }

    /// The tools that are not in here, and why.
    pub fn excluded(&self) -> &[Exclusion] {
        &self.excluded
    }

    /// All tools, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Registered>> {
        self.tools.values()
    }
}

/// Collects the tools of a registry.
#[derive(Default)]
pub struct RegistryBuilder {
    tools: BTreeMap<ToolName, Arc<Registered>>,
    excluded: Vec<Exclusion>,
    defer_above: Option<usize>,
}

impl RegistryBuilder {
    /// Adds a tool; the same one twice counts once.
    pub fn add(&mut self, tool: Arc<Registered>) -> Result<(), RegistryError> {
        let name = tool.spec().name.clone();
        match self.tools.get(&name) {
            Some(known) if Arc::ptr_eq(known, &tool) => Ok(()),
            Some(known) => Err(duplicate(name, known, &tool)),
            None => {
                self.tools.insert(name, tool);
                Ok(())
            }
        }
    }

    /// Records that a tool is left out.
    pub fn exclude(&mut self, tool: impl Into<String>, reason: impl Into<String>) {
        self.excluded.push(Exclusion { tool: tool.into(), reason: reason.into() });
    }

    /// With more than `threshold` tools, the loop's own not counted, all but the loop's own are deferred, and
    /// `search_tools` joins. Without a threshold none ever is.
    pub fn defer_above(&mut self, threshold: usize) {
        self.defer_above = Some(threshold);
    }

    /// The registry.
    ///
    /// A tool that is named like `search_tools` gives way to it where tools are deferred: without it nobody could
    /// look them up. It is then among [`Registry::excluded`].
    pub fn build(mut self) -> Registry {
        let own = self.tools.values().filter(|tool| !tool.core).count();
        let mut deferred = Vec::new();
        if self.defer_above.is_some_and(|threshold| own > threshold) {
            if self.tools.remove(search_tools::NAME).is_some() {
                self.exclude(search_tools::NAME, "its name is needed to look up deferred tools");
            }
            deferred
                .extend(self.tools.values().filter(|tool| !tool.core).map(|tool| Arc::clone(tool.spec())));
        }
        let deferred: Arc<[_]> = deferred.into();
        if !deferred.is_empty() {
            let search = search_tools::tool(Arc::clone(&deferred));
            self.tools.insert(search.spec().name.clone(), search);
        }
        self.excluded.sort_by(|a, b| a.tool.cmp(&b.tool));
        let specs: Arc<[_]> = self.tools.values().map(|tool| Arc::clone(tool.spec())).collect();
        let offered = if deferred.is_empty() {
            Arc::clone(&specs)
        } else {
            self.tools.values().filter(|tool| tool.core).map(|tool| Arc::clone(tool.spec())).collect()
        };
        Registry { tools: self.tools, specs, offered, deferred, excluded: self.excluded }
    }
}

fn duplicate(name: ToolName, first: &Registered, second: &Registered) -> RegistryError {
    let (first, second) = (first.tool.origin().to_owned(), second.tool.origin().to_owned());
    RegistryError::Duplicate { name, first, second }
}
