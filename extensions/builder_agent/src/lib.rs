//! Makes new agents. An agent with tools of its own, which draft, check and activate declarative agents.
//!
//! Drafts live in a staging folder of its own. What becomes of them is the kernel's decision: it checks them again and
//! refuses what would need the operator's agreement. Native extensions are not made here.

mod draft;
mod staging;

use drupe_extension_api::{control::method, prelude::*};
use serde_json::{Value, json};
use staging::Staging;

/// The tools that its runs may use.
const TOOLS: [&str; 7] = [
    "builder_guide",
    "builder_draft",
    "builder_write",
    "builder_patch",
    "builder_check",
    "builder_activate",
    "builder_restart",
];

struct Builder {
    host: Host,
    staging: Staging,
}

impl Extension for Builder {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let staging = Staging::new(host.data_folder().join("staging"))?;
        Ok(Self { host, staging })
    }
}

impl AgentProvider for Builder {
    fn descriptor(&self) -> AgentDescriptor {
        let own = self.host.agent();
        AgentDescriptor {
            id: self.host.id().clone().into(),
            name: own.map(|a| a.name.clone()).unwrap_or_default(),
            description: own.map(|a| a.description.clone()).unwrap_or_default(),
            integration_mode: IntegrationMode::Tool,
        }
    }

    async fn invoke(&self, task: String, context: AgentInvocationContext, call: Call) -> AgentResponse {
        let Some(definition) = self.host.agent() else {
            return AgentResponse::error(FailureClass::Config, "the manifest has no `agent` section");
        };
        let run = call.run_agent(definition.clone(), task).own_tools(TOOLS).context(context).await;
        run.unwrap_or_else(|fault| AgentResponse::error(FailureClass::Internal, fault.to_string()))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Named {
    /// Id of the new agent.
    id: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Draft {
    /// Id of the new agent: lower-case letters, digits, `_` and `-`.
    id: String,
    /// What it does, as in "an agent that …": "writes haikus".
    purpose: String,
    /// Extensions whose tools it may use.
    #[serde(default)]
    uses_tools: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Write {
    /// Id of the new agent.
    id: String,
    /// A file of its folder, such as `manifest.yaml` or `prompt.md`.
    file: String,
    /// The whole content.
    content: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Patch {
    /// Id of the new agent.
    id: String,
    /// A file of its folder.
    file: String,
    /// A passage that stands in it exactly once.
    find: String,
    /// What replaces it.
    replace: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reason {
    /// Why, for the operator.
    reason: String,
}

impl ToolProvider for Builder {
    fn tools(&self) -> Vec<Tool<Self>> {
        vec![
            Tool::new(TOOLS[0], "Shows the form of an agent's files.", Self::guide).read_only(),
            Tool::new(TOOLS[1], "Writes a first draft of an agent.", Self::draft).idempotent(),
            Tool::new(TOOLS[2], "Writes a file of a draft.", Self::write)
                .idempotent()
                .item(ItemKind::FileChange),
            Tool::new(TOOLS[3], "Replaces one passage in a file of a draft.", Self::patch)
                .item(ItemKind::FileChange),
            Tool::new(TOOLS[4], "Checks a draft; tells every fault.", Self::check).read_only(),
            Tool::new(TOOLS[5], "Makes a checked draft an extension.", Self::activate),
            Tool::new(TOOLS[6], "Asks for the restart that takes new agents in.", Self::restart).idempotent(),
        ]
    }
}

impl Builder {
    async fn guide(&self, _: Nothing, _: Call) -> Result<String, Fault> {
        Ok(include_str!("guide.md").to_owned())
    }

    async fn draft(&self, input: Draft, _: Call) -> Result<String, Fault> {
        let id = ExtensionId::new(&input.id)?;
        let files = draft::files(&id, &input.purpose, &input.uses_tools)?;
        for (name, content) in &files {
            self.staging.write(&id, name, content)?;
        }
        Ok(files.into_iter().map(|(name, content)| format!("--- {name}\n{content}")).collect())
    }

    async fn write(&self, input: Write, _: Call) -> Result<String, Fault> {
        let id = ExtensionId::new(&input.id)?;
        self.staging.write(&id, &input.file, &input.content)?;
        Ok(format!("wrote {} bytes to {}", input.content.len(), input.file))
    }

    async fn patch(&self, input: Patch, _: Call) -> Result<String, Fault> {
        let id = ExtensionId::new(&input.id)?;
        let old = self.staging.read(&id, &input.file)?;
        let found = old.matches(&input.find).count();
        if input.find.is_empty() || found != 1 {
            let message =
                format!("the passage stands {found} times in {}, and must stand there once", input.file);
            return Err(Fault::invalid(message).help("give more of the text around it"));
        }
        self.staging.write(&id, &input.file, &old.replacen(&input.find, &input.replace, 1))?;
        Ok(format!("changed {}", input.file))
    }

    async fn check(&self, input: Named, _: Call) -> Result<String, Fault> {
        let path = self.staging.folder(&ExtensionId::new(&input.id)?)?;
        let report: Value = self.host.control(method::EXTENSIONS_CHECK, json!({ "path": path })).await?;
        let rendered = report["rendered"].as_str().unwrap_or_default().trim();
        match report["ok"].as_bool() {
            Some(true) if rendered.is_empty() => Ok("no fault".into()),
            Some(true) => Ok(format!("no fault, but:\n{rendered}")),
            _ => Err(Fault::invalid(format!("the draft has faults:\n{rendered}"))),
        }
    }

    async fn activate(&self, input: Named, _: Call) -> Result<String, Fault> {
        let id = ExtensionId::new(&input.id)?;
        let path = self.staging.folder(&id)?;
        self.host.control(method::EXTENSIONS_ADD, json!({ "path": path })).await?;
        self.staging.forget(&id)?;
        Ok(format!("`{id}` is an extension now; it takes effect after a restart"))
    }

    async fn restart(&self, input: Reason, call: Call) -> Result<String, Fault> {
        call.request_restart(input.reason).await?;
        Ok("drupe restarts when this turn has ended".into())
    }
}

export!(Builder: Agent, Tool);
