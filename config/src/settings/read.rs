//! From the merged tree to a [`Config`].
//!
//! The declared keys give the values; here is what relates them to each other and to the file system.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use drupe_schedule::Timing;

use super::{Archive, CONFIG, Config, ExtensionsConfig, OrchestratorConfig, Sources, layers, models, trust};
use crate::{
    Diagnostics, Loaded, Overlay, Secret, approvals, env_file,
    fields::Field,
    files::{self, Roots},
    manifest::read_context,
    overlay::expand,
    read::Reading,
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
    let mut tree = match &sources.file {
        Some(path) => layers::file(path, faults)?,
        None => layers::empty(),
    };
    layers::overlay(&mut tree, sources, faults);
    if too_new(&tree, faults) {
        return None;
    }
    let root = Field::root(&tree);
    let overlay = overlay_of(&root, sources, faults);
    let mut config: Config = Reading { faults, variables: Some(&overlay) }.typed(&CONFIG, &tree, "")?;
    let folder = sources.file.as_deref().and_then(Path::parent).unwrap_or(&sources.home);
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    Checks { faults, folder: &folder, home: &sources.home }.config(&root, &mut config);
    layers::origins(&tree, "", &mut config.origins);
    layers::written(&tree, "", &mut config.written);
    models::add_implicit(&mut config.models, &overlay, &mut config.origins, faults);
    config.overlay = overlay;
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

/// `env:` over `HOME/.env` over credentials of the service over the process environment; `env:` itself may use those below it.
fn overlay_of(root: &Field<'_>, sources: &Sources, faults: &mut Diagnostics) -> Overlay {
    let process: Overlay = sources.environment.clone().into_iter().collect();
    let credentials = sources.environment.get("CREDENTIALS_DIRECTORY").map(Path::new);
    let credentials = credentials.map(|folder| env_file::read_credentials(folder, faults));
    let below = process.with(credentials.unwrap_or_default());
    let below = below.with(env_file::read_env_file(&sources.home.join(".env"), faults));
    let mut values = BTreeMap::new();
    for (name, field) in root.entries("env") {
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

/// What the form of single values cannot say.
pub(super) struct Checks<'a> {
    pub faults: &'a mut Diagnostics,
    /// What relative paths are relative to.
    pub folder: &'a Path,
    pub home: &'a Path,
}

impl Checks<'_> {
    fn config(&mut self, root: &Field<'_>, config: &mut Config) {
        if let Some(section) = root.get("orchestrator") {
            self.orchestrator(&section, &mut config.orchestrator);
        }
        if let Some(section) = root.get("agents").and_then(|agents| agents.get("defaults")) {
            self.refuse_no_model(&section);
        }
        if let Some(section) = root.get("models") {
            self.models(&section, &mut config.models);
        }
        if let Some(section) = root.get("extensions") {
            self.extensions(&section, &mut config.extensions);
        }
        if let Some(section) = root.get("skills") {
            let folders = section.items("directories");
            self.folders(&folders, &mut config.skills.directories, "no skill is found there");
        }
        config.skills_of_home = self.home.join("skills");
        if let Some(folder) = &mut config.journal.backup.directory {
            *folder = files::lexical(&self.folder.join(&*folder));
        }
        if let Archive::Folder(folder) = &mut config.journal.retention.archive {
            *folder = files::lexical(&self.folder.join(&*folder));
        }
        if let Some(zone) = root.get("schedules").and_then(|section| section.get("timezone"))
            && let Some(text) = zone.node.text()
            && let Err(unfit) = Timing::new("@daily", text)
        {
            self.faults.error("unknown_timezone", &zone.node.at, &zone.path, unfit.to_string());
        }
        if let Some(section) = root.get("approvals") {
            trust::refuse_listed_all(&section, self.faults);
            approvals::check_rules(&section, true, self.faults);
            trust::refuse_unconfined_on_failure(root, config, self.faults);
        }
        if let Some(field) = root.get("log") {
            self.check_log(&field, &config.log);
        }
    }

    fn orchestrator(&mut self, section: &Field<'_>, config: &mut OrchestratorConfig) {
        let roots = Roots { folders: [self.folder, self.home] };
        let instructions = section.get("instructions");
        config.instructions = instructions.and_then(|field| files::instructions(&field, &roots, self.faults));
        config.context = read_context(section, &roots, self.faults);
        self.refuse_no_model(section);
    }

    fn refuse_no_model(&mut self, section: &Field<'_>) {
        if let Some(field) = section.get("model")
            && matches!(&field.node.value, Yaml::List(list) if list.is_empty())
        {
            let message = format!("`{}` is an empty list", field.path);
            self.faults
                .error("invalid_value", &field.node.at, &field.path, message)
                .help("name a model or an alias");
        }
    }

    fn extensions(&mut self, section: &Field<'_>, config: &mut ExtensionsConfig) {
        self.folders(&section.items("paths"), &mut config.paths, "no extension is found there");
        for (id, extension) in &mut config.overrides {
            extension.node = section.get(id.as_str()).map(|field| without_enabled(field.node));
        }
    }

    /// Makes paths absolute, and says which are no folders, with what that means.
    fn folders(&mut self, written: &[Field<'_>], paths: &mut [PathBuf], without: &str) {
        for (index, path) in paths.iter_mut().enumerate() {
            *path = files::lexical(&self.folder.join(&*path));
            // A path that was refused has no value; then no place is certain, and the load fails.
            let Some(field) = written.get(index).filter(|_| !path.is_dir()) else { continue };
            // One that is missing now may be mounted later, so that is no fault.
            let message = format!("`{}` is not a folder: {without}", path.display());
            self.faults
                .warning("folder_not_found", &field.node.at, &field.path, message)
                .help("create it, or correct the path");
        }
    }

    fn check_log(&mut self, field: &Field<'_>, text: &str) {
        if let Some(wrong) = text.split(',').find(|part| !is_directive(part.trim())) {
            let message =
                format!("`log`: `{}` is no log level or `target=level`", crate::tree::shorten(wrong));
            self.faults
                .error("invalid_value", &field.node.at, "log", message)
                .help("levels are off, error, warn, info, debug and trace; parts are separated by commas");
        }
    }
}

/// `enabled` is the kernel's; every other key is a key of the extension's configuration.
fn without_enabled(node: &Node) -> Node {
    let mut config = node.clone();
    if let Yaml::Map(entries) = &mut config.value {
        entries.retain(|entry| entry.key != "enabled");
    }
    config
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
