//! The `agent` section of a manifest.

use drupe_extension_api::{AgentId, ExtensionId, Format, IntegrationMode, OutputSpec, ToolName};
use serde_json::Value;

use super::{
    AgentSection, ContextSource, InputSpec, ToolSelector,
    keys::AGENT,
    offline,
    read::{Form, Reader},
};
use crate::{
    Diagnostics, Instructions, PartialLimits,
    agent_keys::read_parameters,
    fields::{Field, Fields, bounded_items},
    files::{self, Roots},
    json_schema,
    tree::{self, Node, Yaml},
};

impl Reader<'_> {
    pub fn agent(
        &mut self,
        fields: &Fields<'_>,
        own: Option<&ExtensionId>,
        native: bool,
    ) -> Option<AgentSection> {
        let (agent, section) = match self.form {
            Form::Folder => (fields.within("agent"), fields.get("agent")),
            Form::File { agent } => {
                (Fields::new(Some(agent), &AGENT, ""), Some(Field { node: agent, path: String::new() }))
            }
        };
        self.require_description(fields, section.as_ref());
        let section = section?;
        if !matches!(section.node.value, Yaml::Map(_)) {
            return None;
        }
        if !native && matches!(self.form, Form::Folder) {
            self.require(&agent, section.node, "model", "name a model or an alias: `model: default`");
            self.require(
                &agent,
                section.node,
                "instructions",
                "say what the agent does, in a text or a file",
            );
        }
        let value = AgentSection {
            integration_mode: match agent.text("integration_mode") {
                Some("handoff") => IntegrationMode::Handoff,
                _ => IntegrationMode::Tool,
            },
            models: self.models(&agent),
            instructions: self.instructions(&agent),
            context: self.context(&agent),
            parameters: read_parameters(agent.within("parameters")),
            uses_tools: self.tools(&agent, own),
            uses_agents: self.others(&agent, "uses_agents", own).into_iter().map(AgentId::from).collect(),
            input: self.input(&agent),
            output: self.output(&agent),
            usage: agent.owned("usage"),
            tool_name: agent.text("tool_name").and_then(|name| ToolName::new(name).ok()),
            infer: agent.bool("infer").unwrap_or(true),
            limits: PartialLimits::read(agent.within("limits")),
            offline: offline::read(&agent, &mut self.expressions, self.faults),
        };
        self.warn_undocumented(&value, section.node, agent.path());
        agent.done();
        Some(value)
    }

    fn require(&mut self, agent: &Fields<'_>, section: &Node, key: &str, help: &str) {
        let list_is_empty =
            |field: &Field<'_>| matches!(&field.node.value, Yaml::List(list) if list.is_empty());
        let present = section.get(key).is_some_and(|node| !node.is_null());
        if !present || agent.get(key).as_ref().is_some_and(list_is_empty) {
            let field = tree::join(agent.path(), key);
            let message = format!("`{field}` is missing: an agent without `entrypoint` needs it");
            self.faults.error("missing_key", &section.at, &field, message).help(help);
        }
    }

    fn require_description(&mut self, fields: &Fields<'_>, section: Option<&Field<'_>>) {
        let Some(section) = section else { return };
        let description = fields.get("description");
        let empty = description
            .as_ref()
            .and_then(|field| field.node.text())
            .is_none_or(|text| text.trim().is_empty());
        if empty {
            let at = description.as_ref().map_or(&section.node.at, |field| &field.node.at);
            let message = "`description` is missing or empty: an agent needs it";
            self.faults
                .error("missing_key", at, "description", message)
                .help("say for the model that routes when to use the agent, when not to, and what it can do");
        }
    }

    fn roots(&self) -> Roots<'_> {
        Roots { folders: [&self.folder, self.home] }
    }

    fn instructions(&mut self, agent: &Fields<'_>) -> Option<Instructions> {
        let field = agent.get("instructions")?;
        if let Form::File { .. } = self.form {
            self.refuse_file(&field);
            let text = field.node.text().unwrap_or_default();
            if !files::ends_like_a_file(text) {
                files::refuse_what_seems_a_path(&field, text, self.faults);
            }
            return field.node.text().map(|text| Instructions::Inline(text.to_owned()));
        }
        let mut faults = Diagnostics::default();
        let value = files::instructions(&field, &self.roots(), &mut faults);
        self.faults.extend(faults);
        value
    }

    fn context(&mut self, agent: &Fields<'_>) -> Vec<ContextSource> {
        if let Form::File { .. } = self.form {
            let field = agent.get("context");
            field.iter().for_each(|field| self.refuse_file(field));
            return agent
                .text("context")
                .map(|text| ContextSource::Inline(text.to_owned()))
                .into_iter()
                .collect();
        }
        let mut faults = Diagnostics::default();
        let value = context(agent, &self.roots(), &mut faults);
        self.faults.extend(faults);
        value
    }

    /// A text that a folder's manifest would take for a file, or a list of files.
    fn refuse_file(&mut self, field: &Field<'_>) {
        let names_one = field
            .node
            .text()
            .is_none_or(|text| files::ends_like_a_file(text) && !text.contains(char::is_whitespace));
        if names_one {
            let message =
                format!("`{}` names a file, and an agent that is a single file has no others", field.path);
            self.faults
                .error("not_in_a_file", &field.node.at, &field.path, message)
                .help("write the text itself, or make a folder with a `manifest.yaml`");
        }
    }

    fn models(&mut self, agent: &Fields<'_>) -> Vec<String> {
        let names = bounded_items(agent, "model", MAX_MODELS, self.faults);
        names.iter().filter_map(|field| field.node.text().map(str::to_owned)).collect()
    }

    fn tools(&mut self, agent: &Fields<'_>, own: Option<&ExtensionId>) -> Vec<ToolSelector> {
        let mut selectors = Vec::new();
        for field in bounded_items(agent, "uses_tools", MAX_TOOLS, self.faults) {
            let Some(selector) = field.node.text().and_then(ToolSelector::parse) else { continue };
            self.refuse_self(&field, &selector.extension, own);
            selectors.push(selector);
        }
        selectors
    }

    fn input(&mut self, agent: &Fields<'_>) -> Option<InputSpec> {
        let (format, schema) = self.form(agent.within("input"));
        agent.get("input").map(|_| InputSpec { format, schema })
    }

    fn output(&mut self, agent: &Fields<'_>) -> Option<OutputSpec> {
        let (format, schema) = self.form(agent.within("output"));
        agent.get("output").map(|_| OutputSpec { format, schema })
    }

    fn form(&mut self, fields: Fields<'_>) -> (Format, Option<Value>) {
        let format = format(&fields);
        let schema = fields.get("schema");
        json_schema::check_format(schema.as_ref(), format, self.faults);
        let schema = schema.map(|field| json_schema::read(&field, &mut self.expressions, self.faults));
        fields.done();
        (format, schema)
    }

    fn warn_undocumented(&mut self, agent: &AgentSection, section: &Node, path: &str) {
        let missing = match (&agent.usage, &agent.output) {
            (None, None) => "`usage` and no `output`",
            (None, Some(_)) => "`usage`",
            (Some(_), None) => "`output`",
            (Some(_), Some(_)) => return,
        };
        let message = format!("the agent has no {missing}");
        self.faults
            .warning("undocumented_agent", &section.at, path, message)
            .help("`usage` shows people an example input; `output` says what form the answer has");
    }
}

/// Models that are tried in order.
const MAX_MODELS: usize = 16;

/// Entries of `uses_tools`. Each may be a line of what the operator is asked.
const MAX_TOOLS: usize = 128;

/// Each is looked for and looked at, and all of them go into every request.
const MAX_CONTEXT_FILES: usize = 64;

/// Default context: one text, or a list of files; one text that names a file is that file.
pub(crate) fn context(
    fields: &Fields<'_>,
    roots: &Roots<'_>,
    faults: &mut Diagnostics,
) -> Vec<ContextSource> {
    let Some(field) = fields.get("context") else { return Vec::new() };
    match field.node.text() {
        Some(text) if !files::names_a_file(text, roots) => {
            files::refuse_what_seems_a_path(&field, text, faults);
            vec![ContextSource::Inline(text.to_owned())]
        }
        _ => bounded_items(fields, "context", MAX_CONTEXT_FILES, faults)
            .iter()
            .filter_map(|item| files::resolve(item, item.node.text()?, roots, faults))
            .map(ContextSource::File)
            .collect(),
    }
}

impl ToolSelector {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (extension, tool) = match text.split_once('/') {
            Some((extension, tool)) => (extension, Some(ToolName::new(tool).ok()?)),
            None => (text, None),
        };
        Some(Self { extension: ExtensionId::new(extension).ok()?, tool })
    }
}

fn format(fields: &Fields<'_>) -> Format {
    match fields.text("format") {
        Some("json") => Format::Json,
        Some("markdown") => Format::Markdown,
        _ => Format::Text,
    }
}
