//! Makes new extensions. An agent with tools of its own, which draft, check and activate declarative agents, and where
//! there is a Rust toolchain write, compile and test native extensions, too.
//!
//! Drafts live in a staging folder of its own. What becomes of them is the kernel's decision: it checks them again and
//! asks the operator where they bring what needs agreement. Nothing of a draft runs in here: cargo and the tests of a
//! draft run confined, in processes of the kernel's.

mod activation;
mod cargo_home;
mod compiler;
mod draft;
mod eval;
mod floor;
mod native;
mod place;
mod staging;
mod toolchain;
mod trials;

#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc, time::Duration};

use drupe_extension_api::{
    control::{CheckReport, method},
    prelude::*,
};
use floor::Floor;
use serde_json::json;
use staging::Staging;
use toolchain::{PATIENCE, Toolchain};
use trials::Trials;

/// The tools that its runs may use.
const TOOLS: [&str; 11] = [
    "builder_guide",
    "builder_draft",
    "builder_draft_native",
    "builder_write",
    "builder_patch",
    "builder_check",
    "builder_eval",
    "builder_compile",
    "builder_test",
    "builder_activate",
    "builder_restart",
];

/// The deadline of a tool that runs cargo. Beyond cargo's own, asking whether there is one takes a while, and the fault
/// that says why it was ended shall be heard.
const DEADLINE: Duration = PATIENCE.saturating_add(Duration::from_secs(60));

struct Builder {
    host: Host,
    staging: Arc<Staging>,
    toolchain: Toolchain,
    floor: Floor,
    trials: Trials,
}

impl Extension for Builder {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let staging = Arc::new(Staging::new(host.data_folder())?);
        Ok(Self {
            host,
            staging,
            toolchain: Toolchain::default(),
            floor: Floor::default(),
            trials: Trials::default(),
        })
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

/// What the guide is asked for.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
enum Topic {
    /// Agents without code.
    #[default]
    Agent,
    /// Extensions in Rust.
    Native,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Guide {
    /// `agent` (default) for agents without code, `native` for extensions in Rust.
    #[serde(default)]
    topic: Topic,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Named {
    /// Id of the draft.
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
    /// Id of the draft.
    id: String,
    /// A file of its folder, such as `manifest.yaml`, `prompt.md` or `src/lib.rs`.
    file: String,
    /// The whole content.
    content: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Patch {
    /// Id of the draft.
    id: String,
    /// A file of its folder.
    file: String,
    /// A passage that stands in it exactly once.
    find: String,
    /// What replaces it.
    replace: String,
}

impl ToolProvider for Builder {
    fn tools(&self) -> Vec<Tool<Self>> {
        let [guide, draft, draft_native, write, patch, check, eval, compile, test, activate, restart] = TOOLS;
        vec![
            Tool::new(guide, "Shows the form of an extension's files.", Self::guide).read_only(),
            Tool::new(draft, "Writes a first draft of an agent without code.", Self::draft).idempotent(),
            Tool::new(draft_native, "Writes a first draft of an extension in Rust.", Self::draft_native),
            Tool::new(write, "Writes a file of a draft.", Self::write)
                .idempotent()
                .item(ItemKind::FileChange),
            Tool::new(patch, "Replaces one passage in a file of a draft.", Self::patch)
                .item(ItemKind::FileChange),
            Tool::new(check, "Checks a draft's manifest and cases; tells every fault.", Self::check)
                .read_only(),
            // A trial changes nothing: what would is noted and not done.
            Tool::new(eval, "Asks a draft its cases; tells what failed.", Self::eval)
                .idempotent()
                .exclusive()
                .timeout(eval::DEADLINE),
            runs_cargo(Tool::new(
                compile,
                "Compiles a draft in Rust; tells the first errors.",
                Self::compile,
            )),
            runs_cargo(Tool::new(test, "Runs the tests of a draft in Rust; tells what failed.", Self::test)),
            // From then on models in all conversations read what it says of itself.
            Tool::new(activate, "Makes a checked draft an extension.", Self::activate).remembers(),
            Tool::new(restart, "Asks for the restart that takes new agents in.", Self::restart).idempotent(),
        ]
    }
}

/// May be repeated; fetches crates; takes long. What a crate's build says may come from strangers.
fn runs_cargo(tool: Tool<Builder>) -> Tool<Builder> {
    tool.idempotent()
        .exclusive()
        .outward()
        .reads_untrusted()
        .timeout(DEADLINE)
        .item(ItemKind::CommandExecution)
}

impl Builder {
    async fn guide(&self, input: Guide, _: Call) -> Result<&'static str, Fault> {
        Ok(match input.topic {
            Topic::Agent => include_str!("guide.md"),
            Topic::Native => include_str!("native.md"),
        })
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
        let id = ExtensionId::new(&input.id)?;
        let report = self.report(&self.staging.folder(&id)?).await?;
        let rendered = report.rendered.trim();
        if !report.ok {
            return Err(Fault::invalid(format!("the draft has faults:\n{rendered}")));
        }
        if report.agent {
            self.cases(&id)?;
        }
        Ok(match rendered {
            "" => "no fault".into(),
            remarks => format!("no fault, but:\n{remarks}"),
        })
    }

    /// What the daemon would make of a folder.
    async fn report(&self, folder: &Path) -> Result<CheckReport, Fault> {
        self.host.control(method::EXTENSIONS_CHECK, json!({ "path": folder })).await
    }
}

export!(Builder: Agent, Tool);

/// The page for authors of native extensions, whose example is tested.
#[cfg(doctest)]
#[doc = include_str!("native.md")]
mod native_guide {}
