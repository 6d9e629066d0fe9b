//! From the merged tree to a [`Config`].

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use drupe_extension_api::{DefinitionLimits, ExtensionId, wire::QueueMode};

use super::{
    AgentDefaults, CONFIG, Config, Durability, ExtensionOverride, ExtensionsConfig, InboxConfig,
    JournalConfig, OrchestratorConfig, RetentionConfig, Sources, ToolSearchConfig, layers, limits, models,
    trust,
};
use crate::{
    Diagnostics, Loaded, Overlay, PartialLimits, Secret, ToolSelector,
    agent_keys::read_parameters,
    fields::{Field, Fields},
    files::{self, Roots},
    manifest::read_context,
    overlay::{self, expand},
    tree::{Node, Yaml},
};

/// The newest form of the file that this release knows.
const API: u32 = 1;

/// Reads the configuration from all its layers. All faults are reported at once.
pub fn load_config(sources: &Sources) -> Result<Loaded<Config>, Diagnostics> {
    let mut faults = Diagnostics::default();
    let config = read_layers(sources, &mut faults);
    let faults = faults.sorted();
    match config {
        Some(value) if !faults.has_errors() => Ok(Loaded { value, warnings: faults }),
        _ => Err(faults),
    }
}

fn read_layers(sources: &Sources, faults: &mut Diagnostics) -> Option<Config> {
    let mut root = match &sources.file {
        Some(path) => layers::file(path, faults)?,
        None => layers::empty(),
    };
    layers::overlay(&mut root, sources, faults);
    if too_new(&root, faults) {
        return None;
    }
    layers::FILE.check(&root, "", faults);
    let folder = sources.file.as_deref().and_then(Path::parent).unwrap_or(&sources.home);
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let fields = Fields::new(Some(&root), &CONFIG, "");
    let overlay = overlay_of(&fields, sources, faults);
    let mut reader = Reader { faults, overlay: &overlay, folder: &folder, home: &sources.home };
    let mut config = reader.config(&fields);
    let _form: Option<u32> = fields.integer("api");
    fields.done();
    layers::origins(&root, "", &mut config.origins);
    layers::written(&root, "", &mut config.written);
    models::add_implicit(&mut config.models, &overlay, &mut config.origins, faults);
    Some(config)
}

/// Nothing else can be said about a form that this release does not know.
fn too_new(root: &Node, faults: &mut Diagnostics) -> bool {
    let Some(Node { value: Yaml::Integer(api), at }) = root.get("api") else { return false };
    if *api <= i128::from(API) {
        return false;
    }
    let message = format!("`api: {api}` is newer than this release, which knows `api: {API}`");
    faults
        .error("unsupported_api", at, "api", message)
        .help("install a newer drupe, or write the file for api 1");
    true
}

/// `env:` over `HOME/.env` over the process environment; `env:` itself may use the two below it.
fn overlay_of(fields: &Fields<'_>, sources: &Sources, faults: &mut Diagnostics) -> Overlay {
    let process: Overlay = sources.environment.clone().into_iter().collect();
    let below = process.with(overlay::read_env_file(&sources.home.join(".env"), faults));
    let mut values = BTreeMap::new();
    for (name, field) in fields.entries("env") {
        let Some(text) = field.node.text() else { continue };
        match expand(text, |name| below.get(name)) {
            Ok(text) if text.contains('\0') => faults
                .error(
                    "invalid_value",
                    &field.node.at,
                    &field.path,
                    format!("`{}` holds a zero byte", field.path),
                )
                .help("remove it: no environment can carry it"),
            Ok(text) => {
                values.insert(name.to_owned(), Secret::new(text));
            }
            Err(unresolved) => {
                for item in unresolved {
                    item.report(&field.node.at, &field.path, &format!("`{}`", field.path), faults);
                }
            }
        }
    }
    below.with(values)
}

pub(super) struct Reader<'a> {
    pub faults: &'a mut Diagnostics,
    pub overlay: &'a Overlay,
    /// What relative paths are relative to.
    pub folder: &'a Path,
    pub home: &'a Path,
}

impl Reader<'_> {
    fn config(&mut self, fields: &Fields<'_>) -> Config {
        let orchestrator = fields.within("orchestrator");
        let agents = fields.within("agents");
        let models = fields.within("models");
        let extensions = fields.within("extensions");
        let journal = fields.within("journal");
        let inbox = fields.within("inbox");
        let tool_search = fields.within("tool_search");
        let config = Config {
            orchestrator: self.orchestrator(&orchestrator),
            agents_defaults: self.defaults(agents.within("defaults")),
            models: self.models(&models),
            extensions: self.extensions(&extensions),
            journal: JournalConfig {
                durability: durability(journal.text("durability")),
                retention: retention(journal.within("retention")),
            },
            approvals: self.approvals(fields.within("approvals")),
            reload: trust::reload(fields.within("reload")),
            sandbox: trust::sandbox(fields.within("sandbox")),
            limits: limits::read(fields.within("limits")),
            inbox: InboxConfig { queue: queue(inbox.text("queue")) },
            tool_search: ToolSearchConfig { threshold: tool_search.integer("threshold").unwrap_or(40) },
            log: self.log(fields),
            drain_timeout: Duration::from_millis(fields.integer("drain_timeout_ms").unwrap_or(30_000)),
            health_interval: Duration::from_millis(fields.integer("health_interval_ms").unwrap_or(30_000)),
            tool_response_max_bytes: fields.integer("tool_response_max_bytes").unwrap_or(12 * 1024),
            overlay: self.overlay.clone(),
            origins: BTreeMap::new(),
            written: BTreeMap::new(),
        };
        for part in [orchestrator, agents, models, extensions, journal, inbox, tool_search] {
            part.done();
        }
        config
    }

    fn orchestrator(&mut self, fields: &Fields<'_>) -> OrchestratorConfig {
        let roots = Roots { folders: [self.folder, self.home] };
        let instructions =
            fields.get("instructions").and_then(|field| files::instructions(&field, &roots, self.faults));
        let context = read_context(fields, &roots, self.faults);
        let selectors = fields.get("uses_tools").map(|_| fields.texts("uses_tools"));
        let may_use = fields.get("builder_may_use").map(|_| fields.texts("builder_may_use"));
        let may_use = may_use.unwrap_or_else(|| vec!["kv".into(), "files".into()]);
        OrchestratorConfig {
            name: self.text(fields, "name").unwrap_or_else(|| "drupe".into()),
            models: self.model_list(fields),
            instructions,
            parameters: read_parameters(fields.within("parameters")),
            limits: PartialLimits::read(fields.within("limits")).over(&DefinitionLimits::default()),
            uses_tools: selectors
                .map(|list| list.iter().filter_map(|text| ToolSelector::parse(text)).collect()),
            context,
            context_tokens: fields.integer("context_tokens").unwrap_or(2_000),
            builder_may_use: may_use.iter().filter_map(|id| ExtensionId::new(id).ok()).collect(),
        }
    }

    fn defaults(&mut self, fields: Fields<'_>) -> AgentDefaults {
        let defaults = AgentDefaults {
            models: self.model_list(&fields),
            parameters: read_parameters(fields.within("parameters")),
            limits: PartialLimits::read(fields.within("limits")),
        };
        fields.done();
        defaults
    }

    fn model_list(&mut self, fields: &Fields<'_>) -> Vec<String> {
        let models: Vec<_> = fields.items("model").iter().filter_map(|field| self.expanded(field)).collect();
        if let Some(field) = fields.get("model")
            && matches!(&field.node.value, Yaml::List(list) if list.is_empty())
        {
            let message = format!("`{}` is an empty list", field.path);
            self.faults
                .error("invalid_value", &field.node.at, &field.path, message)
                .help("name a model or an alias");
        }
        if models.is_empty() { vec!["default".into()] } else { models }
    }

    fn extensions(&mut self, fields: &Fields<'_>) -> ExtensionsConfig {
        let paths = fields.items("paths").iter().filter_map(|field| self.folder(field)).collect();
        let mut overrides = BTreeMap::new();
        for entry in fields.others() {
            let Ok(id) = ExtensionId::new(&entry.key) else { continue };
            overrides.insert(id, self.extension(&entry.key, &entry.value));
        }
        ExtensionsConfig { paths, overrides }
    }

    /// `enabled` is the kernel's; every other key is a key of the extension's configuration.
    fn extension(&mut self, id: &str, node: &Node) -> ExtensionOverride {
        let mut config = node.clone();
        let mut enabled = None;
        if let Yaml::Map(entries) = &mut config.value {
            entries.retain(|entry| {
                if entry.key != "enabled" {
                    return true;
                }
                match entry.value.value {
                    Yaml::Bool(value) => enabled = Some(value),
                    _ => {
                        let field = format!("extensions.{id}.enabled");
                        let found = entry.value.describe();
                        let message = format!("`{field}`: expected `true` or `false`, found {found}");
                        self.faults
                            .error("wrong_type", &entry.value.at, &field, message)
                            .help("write `true` or `false`");
                    }
                }
                false
            });
        }
        ExtensionOverride {
            enabled,
            config: config.to_json_map(),
            node: (!config.is_null()).then_some(config),
        }
    }

    /// A folder to search. One that is missing now may be mounted later, so that is no fault.
    fn folder(&mut self, field: &Field<'_>) -> Option<PathBuf> {
        let path = files::lexical(&self.folder.join(self.expanded(field)?));
        if !path.is_dir() {
            let message = format!("`{}` is not a folder: no extension is found there", path.display());
            self.faults
                .warning("folder_not_found", &field.node.at, &field.path, message)
                .help("create it, or correct the path");
        }
        Some(path)
    }

    fn log(&mut self, fields: &Fields<'_>) -> String {
        let Some(text) = self.text(fields, "log") else { return "info".into() };
        if let (Some(field), Some(wrong)) =
            (fields.get("log"), text.split(',').find(|part| !is_directive(part.trim())))
        {
            let message =
                format!("`log`: `{}` is no log level or `target=level`", crate::tree::shorten(wrong));
            self.faults
                .error("invalid_value", &field.node.at, "log", message)
                .help("levels are off, error, warn, info, debug and trace; parts are separated by commas");
        }
        text
    }

    /// A text with its placeholders resolved.
    pub fn text(&mut self, fields: &Fields<'_>, key: &str) -> Option<String> {
        self.expanded(&fields.get(key)?)
    }

    pub fn expanded(&mut self, field: &Field<'_>) -> Option<String> {
        match expand(field.node.text()?, |name| self.overlay.get(name)) {
            Ok(text) => Some(text),
            Err(unresolved) => {
                for item in unresolved {
                    item.report(&field.node.at, &field.path, &format!("`{}`", field.path), self.faults);
                }
                None
            }
        }
    }
}

fn durability(text: Option<&str>) -> Durability {
    match text {
        Some("process") => Durability::Process,
        Some("memory") => Durability::Memory,
        _ => Durability::Full,
    }
}

fn retention(fields: Fields<'_>) -> RetentionConfig {
    let retention =
        RetentionConfig { max_age_days: fields.integer("max_age_days"), max_mb: fields.integer("max_mb") };
    fields.done();
    retention
}

fn queue(text: Option<&str>) -> QueueMode {
    match text {
        Some("steer") => QueueMode::Steer,
        Some("interrupt") => QueueMode::Interrupt,
        _ => QueueMode::Followup,
    }
}

/// A level, a target, or `target=level`; conditions on spans, in brackets, are left to the subscriber.
fn is_directive(text: &str) -> bool {
    let is_level = |text: &str| {
        ["off", "error", "warn", "info", "debug", "trace"]
            .iter()
            .any(|level| level.eq_ignore_ascii_case(text))
    };
    let is_target = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-:.".contains(&b))
    };
    match text.rsplit_once('=') {
        _ if text.contains('[') => true,
        Some((target, level)) => is_target(target) && is_level(level),
        None => is_target(text),
    }
}
