//! The `agent` section of a manifest.

use drupe_extension_api::{ExtensionId, Format, IntegrationMode};

use super::{
    AgentSection, ContextSource, offline,
    read::{Form, Reader},
};
use crate::{
    Diagnostics, Instructions, approvals,
    fields::Field,
    files::{self, Roots},
    json_schema,
    tree::{self, Node, Yaml},
};

impl Reader<'_> {
    /// Checks the section of an agent, where there is one, and reads the files that it names.
    pub fn agent(
        &mut self,
        root: &Field<'_>,
        agent: Option<&mut AgentSection>,
        own: Option<&ExtensionId>,
        native: bool,
    ) {
        let section = match self.form {
            Form::Folder => root.get("agent"),
            Form::File { agent } => Some(Field::root(agent)),
        };
        self.require_description(root, section.as_ref());
        let (Some(section), Some(agent)) = (section, agent) else { return };
        if !native && matches!(self.form, Form::Folder) {
            self.require(&section, "model", "name a model or an alias: `model: default`");
            self.require(&section, "instructions", "say what the agent does, in a text or a file");
        }
        agent.instructions = self.instructions(&section);
        agent.context = self.context(&section);
        self.refuse_self(&section, "uses_tools", own);
        self.refuse_self(&section, "uses_agents", own);
        let format = agent.input.as_ref().map_or(Format::Text, |input| input.format);
        self.check_form(section.get("input"), format);
        let format = agent.output.as_ref().map_or(Format::Text, |output| output.format);
        self.check_form(section.get("output"), format);
        if let Some(handoff) = section.get("handoff")
            && agent.integration_mode != IntegrationMode::Handoff
        {
            let message = "`agent.handoff` is of agents that take conversations over, and this one does not";
            self.faults
                .error("handoff_without_mode", &handoff.node.at, &handoff.path, message)
                .help("write `integration_mode: handoff`, or remove `handoff`");
        }
        if let Some(approvals) = section.get("approvals") {
            approvals::check_rules(&approvals, false, self.faults);
        }
        agent.offline = offline::read(&section, &mut self.expressions, self.faults);
        self.warn_undocumented(agent, section.node, &section.path);
    }

    fn require(&mut self, section: &Field<'_>, key: &str, help: &str) {
        let is_empty = |field: &Field<'_>| matches!(&field.node.value, Yaml::List(list) if list.is_empty());
        if section.get(key).as_ref().is_none_or(is_empty) {
            let field = tree::join(&section.path, key);
            let message = format!("`{field}` is missing: an agent without `entrypoint` needs it");
            self.faults.error("missing_key", &section.node.at, &field, message).help(help);
        }
    }

    fn require_description(&mut self, root: &Field<'_>, section: Option<&Field<'_>>) {
        let Some(section) = section else { return };
        let description = root.get("description");
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

    fn instructions(&mut self, agent: &Field<'_>) -> Option<Instructions> {
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

    fn context(&mut self, agent: &Field<'_>) -> Vec<ContextSource> {
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

    fn check_form(&mut self, section: Option<Field<'_>>, format: Format) {
        let Some(schema) = section.and_then(|section| section.get("schema")) else { return };
        json_schema::check_format(&schema, format, self.faults);
        json_schema::check(&schema, &mut self.expressions, self.faults);
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

/// Default context: one text, or a list of files; one text that names a file is that file.
pub(crate) fn context(
    section: &Field<'_>,
    roots: &Roots<'_>,
    faults: &mut Diagnostics,
) -> Vec<ContextSource> {
    let Some(field) = section.get("context") else { return Vec::new() };
    match field.node.text() {
        Some(text) if !files::names_a_file(text, roots) => {
            files::refuse_what_seems_a_path(&field, text, faults);
            vec![ContextSource::Inline(text.to_owned())]
        }
        _ => section
            .items("context")
            .iter()
            .filter_map(|item| files::resolve(item, item.node.text()?, roots, faults))
            .map(ContextSource::File)
            .collect(),
    }
}
