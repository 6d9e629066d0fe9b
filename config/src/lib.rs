//! What operators and authors write, as validated types: `drupe.yaml` becomes a [`Config`], `manifest.yaml` a
//! [`Manifest`].
//!
//! Text is parsed once into a tree that knows where each value stands, checked against declared tables of keys,
//! and read into types whose invariants hold from then on; nothing beyond this crate sees raw YAML. Every fault
//! of a file is reported at once. The tables are also the source of the JSON Schemas that editors use.
//!
//! The crate reads the files that it is asked for and nothing else: no process environment, no network, no
//! execution. It never writes.

mod diagnostic;
mod env_file;
mod overlay;
mod source;
mod visible;

mod declare;
mod fields;
mod forms;
mod frontmatter;
mod parse;
mod read;
mod shape;
mod tree;

mod agent_keys;
mod approvals;
mod files;
pub mod instructions;
mod json_schema;
mod schema;

mod catalogue;
mod manifest;
mod profile;
mod settings;
mod skill;

pub use agent_keys::PartialLimits;
pub use approvals::{AgentApprovals, ApprovalMode, ApprovalRule, RuleVerdict, ToolLabel};
pub use catalogue::{
    Catalogue, CatalogueEntry, CatalogueProvider, CatalogueSource, is_snapshot, model_catalogue,
};
pub use diagnostic::{Diagnostic, Diagnostics, Loaded, Severity};
pub use env_file::{EnvFile, EnvFileFault};
pub use files::Instructions;
pub use manifest::{
    AdoptedAgent, AgentMcpServer, AgentSection, BoundSecret, ContextSource, HandoffSection, InputSpec,
    Isolation, Manifest, McpServerTools, MisfireChoice, OverlapChoice, Right, ScheduleConfig, Scope, Senders,
    Subscription, ToolSelector, UnfitSchedule, adopt_agent, agent_template, counterpart, load_agent_file,
    load_manifest, new_agent,
};
pub use overlay::{Overlay, Secret};
pub use profile::{LongPrompts, ModelProfile, Thinking};
pub use schema::{config_schema, manifest_schema};
pub use settings::{
    AgentDefaults, AgentsConfig, ApprovalsConfig, Archive, BackupConfig, ConcurrencyConfig, Config, CopyRule,
    Durability, EffectiveValue, ExtensionOverride, ExtensionsConfig, HostsConfig, InboxConfig, Interval,
    JournalConfig, LimitsConfig, LogFileConfig, ModelsConfig, NativeReload, OrchestratorConfig,
    Preauthorized, ProviderConfig, ProviderKind, ReloadConfig, RetentionConfig, SandboxConfig,
    SchedulesConfig, ScopeLimitsConfig, SkillsConfig, Sources, ToolSearchConfig, ValueOrigin, default_file,
    load_config,
};
pub use skill::{
    DISPLAY_FILES, SKILL_FILE, SkillDisplay, SkillFile, SkillHead, UnfitDisplay, load_skill, parse_skill,
    parse_skill_display,
};
pub use source::{MAX_FILE_BYTES, read_text_file};
pub use visible::acts;

/// The orchestrator's instructions where `orchestrator.instructions` says nothing: a minijinja template.
pub const ORCHESTRATOR_PROMPT: &str = include_str!("../prompts/orchestrator.jinja2");

/// The commented `drupe.yaml` that ships.
pub const DEFAULT_CONFIG: &str = include_str!("../drupe.yaml");
