//! The tools of one invocation: what is not in here does not run, by whatever spelling.

use std::{collections::BTreeMap, sync::Arc};

use drupe_extension_api::{ToolName, ToolSpec, control::Exclusion};
use serde_json::{Value, value::RawValue};

use crate::tool::Tool;

/// A tool with its compiled schema; shared by all registries that hold it.
pub struct Registered {
    tool: Arc<dyn Tool>,
    validator: jsonschema::Validator,
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
        let spec = tool.spec();
        let validator =
            jsonschema::validator_for(&spec.input_schema).map_err(|error| RegistryError::Schema {
                name: spec.name.clone(),
                origin: tool.origin().to_owned(),
                reason: error.to_string(),
            })?;
        Ok(Arc::new(Self { tool, validator }))
    }

    /// The tool.
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }

    /// What models are told of it.
    pub fn spec(&self) -> &Arc<ToolSpec> {
        self.tool.spec()
    }

    /// Parses and validates parameters as a model wrote them; no text stands for no parameters.
    pub fn parameters(&self, arguments: &str) -> Result<Box<RawValue>, String> {
        /// More faults than this help no model.
        const SHOWN: usize = 3;
        let text = if arguments.trim().is_empty() { "{}" } else { arguments };
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("the parameters are not valid JSON: {error}"))?;
        let faults: Vec<String> = self
            .validator
            .iter_errors(&value)
            .take(SHOWN)
            .map(|fault| match fault.instance_path().as_str() {
                "" => fault.to_string(),
                path => format!("{path}: {fault}"),
            })
            .collect();
        if !faults.is_empty() {
            return Err(format!(
                "the parameters do not fit the schema of `{}`: {}",
                self.spec().name,
                faults.join("; ")
            ));
        }
        RawValue::from_string(text.to_owned()).map_err(|error| error.to_string())
    }
}

/// An immutable set of tools, sorted by name.
#[derive(Default)]
pub struct Registry {
    tools: BTreeMap<ToolName, Arc<Registered>>,
    specs: Arc<[Arc<ToolSpec>]>,
    excluded: Vec<Exclusion>,
}

impl Registry {
    /// The tool of exactly that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Registered>> {
        self.tools.get(name)
    }

    /// What models are told, sorted by name; the same list for the registry's whole life.
    pub fn specs(&self) -> &Arc<[Arc<ToolSpec>]> {
        &self.specs
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
}

impl RegistryBuilder {
    /// Adds a tool; the same one twice counts once.
    pub fn add(&mut self, tool: Arc<Registered>) -> Result<(), RegistryError> {
        let name = tool.spec().name.clone();
        match self.tools.get(&name) {
            Some(known) if Arc::ptr_eq(known, &tool) => Ok(()),
            Some(known) => Err(RegistryError::Duplicate {
                name,
                first: known.tool.origin().to_owned(),
                second: tool.tool.origin().to_owned(),
            }),
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

    /// The registry.
    pub fn build(mut self) -> Registry {
        self.excluded.sort_by(|a, b| a.tool.cmp(&b.tool));
        let specs = self.tools.values().map(|t| Arc::clone(t.spec())).collect();
        Registry { tools: self.tools, specs, excluded: self.excluded }
    }
}
