//! From a folder to a [`Manifest`].

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

use drupe_extension_api::ExtensionId;

use super::{Isolation, Located, MANIFEST, Manifest, Right, Scope};
use crate::{
    Diagnostics, Loaded,
    expression::Expressions,
    fields::{Field, Fields, bounded_items},
    json_schema,
    overlay::{self, Unresolved},
    parse,
    shape::Shape,
    source::{self, At, Links, Source, SourceOrigin},
    tree::{self, Entry, Node, Yaml},
};

/// The form of the whole file.
static FILE: Shape = Shape::Record(&MANIFEST);

/// Names of secrets, and ids in one list of others. Each may be a part of what the operator is asked, who must see all of it.
const MAX_SECRETS: usize = 64;
const MAX_OTHERS: usize = 64;

/// The newest form of manifests that this release knows.
const API: u32 = 1;

/// Reads `manifest.yaml` of an extension's folder. All faults are reported at once.
pub fn load_manifest(folder: &Path, home: &Path) -> Result<Loaded<Manifest>, Diagnostics> {
    let mut faults = Diagnostics::default();
    let manifest = read_file(folder, home, &mut faults);
    let faults = faults.sorted();
    match manifest {
        Some(value) if !faults.has_errors() => Ok(Loaded { value, warnings: faults }),
        _ => Err(faults),
    }
}

fn read_file(folder: &Path, home: &Path, faults: &mut Diagnostics) -> Option<Manifest> {
    let path = folder.join("manifest.yaml");
    let text = source::read_text(&path, Links::Refused, faults)?;
    let source = Source::new(SourceOrigin::File(path.clone()), text);
    // A manifest holds names of secrets, never their values.
    source.reveal_except(Vec::new());
    let mut node = parse::document(&source, faults)?;
    if node.is_null() {
        faults
            .error("empty", &At::start_of(&source), "", "the manifest is empty")
            .help("an extension needs at least `id`, `name` and `entrypoint` or `agent`");
        return None;
    }
    if too_new(&node, faults) {
        return None;
    }
    accept_two_descriptions(&mut node, faults);
    tree::refuse_duplicates(&mut node, "", faults);
    FILE.check(&node, "", faults);
    if !matches!(node.value, Yaml::Map(_)) {
        return None;
    }
    let folder = match folder.canonicalize() {
        Ok(folder) => folder,
        Err(error) => {
            faults.file_error("unreadable", &path, 0, format!("`{}`: {error}", folder.display()));
            return None;
        }
    };
    Reader::new(faults, folder, home, &node, Form::Folder).manifest()
}

/// Nothing else can be said about a form that this release does not know.
pub(super) fn too_new(node: &Node, faults: &mut Diagnostics) -> bool {
    let Some(Node { value: Yaml::Integer(api), at }) = node.get("api") else { return false };
    if *api <= i128::from(API) {
        return false;
    }
    let message = format!("`api: {api}` is newer than this release, which knows `api: {API}`");
    faults
        .error("unsupported_api", at, "api", message)
        .help("install a newer drupe, or write the manifest for api 1");
    true
}

/// Manifests in the wild have `description` twice: first the line for people, then the text for the model.
fn accept_two_descriptions(node: &mut Node, faults: &mut Diagnostics) {
    let Yaml::Map(entries) = &mut node.value else { return };
    let is_description = |entry: &&mut Entry| entry.key == "description";
    let has_summary = entries.iter().any(|entry| entry.key == "summary");
    let count = entries.iter_mut().filter(is_description).count();
    if count != 2 || has_summary {
        return;
    }
    if let Some(first) = entries.iter_mut().find(is_description) {
        first.key = "summary".into();
        let message = "`description` stands twice: the first is taken as `summary`";
        faults
            .warning("two_descriptions", &first.key_at, "description", message)
            .help("rename the first to `summary`");
    }
}

/// Where a manifest stands.
pub(super) enum Form<'a> {
    /// In a folder, with `agent` as a section.
    Folder,
    /// In a file of its own, with the keys of `agent` beside the others.
    File { agent: &'a Node },
}

pub(super) struct Reader<'a> {
    pub faults: &'a mut Diagnostics,
    pub expressions: Expressions,
    pub folder: PathBuf,
    pub home: &'a Path,
    node: &'a Node,
    pub form: Form<'a>,
}

impl<'a> Reader<'a> {
    pub fn new(
        faults: &'a mut Diagnostics,
        folder: PathBuf,
        home: &'a Path,
        node: &'a Node,
        form: Form<'a>,
    ) -> Self {
        Self { faults, expressions: Expressions::new(), folder, home, node, form }
    }

    pub fn manifest(mut self) -> Option<Manifest> {
        let fields = Fields::new(Some(self.node), &MANIFEST, "");
        let id = fields.text("id").and_then(|id| ExtensionId::new(id).ok());
        self.check_id(&fields, id.as_ref());
        let secrets = bounded_items(&fields, "secrets", MAX_SECRETS, self.faults);
        let (secrets, at_secrets): (Vec<_>, Vec<_>) = secrets
            .iter()
            .filter_map(|field| Some((field.node.text()?.to_owned(), field.node.at.clone())))
            .unzip();
        let config = fields.get("config").map(|field| field.node.clone());
        if let Some(config) = &config {
            self.check_config(config, &secrets);
        }
        let entrypoint = self.entrypoint(&fields);
        let depends_on = self.others(&fields, "depends_on", id.as_ref());
        let subscribe = self.subscriptions(&fields);
        let agent = self.agent(&fields, id.as_ref(), entrypoint.is_some());
        let manifest = Manifest {
            id: id?,
            name: fields.owned("name")?,
            version: fields
                .text("version")
                .and_then(|text| semver::Version::parse(text).ok())
                .unwrap_or(semver::Version::new(1, 0, 0)),
            summary: fields.owned("summary").unwrap_or_default(),
            description: fields.owned("description").unwrap_or_default(),
            entrypoint,
            isolation: fields.text("isolation").and_then(isolation),
            depends_on,
            config: config.as_ref().map(Node::to_json_map).unwrap_or_default(),
            config_schema: fields
                .get("config_schema")
                .map(|field| json_schema::read(&field, &mut self.expressions, self.faults)),
            setup_instructions: fields.owned("setup_instructions"),
            scope: if fields.text("scope") == Some("agents") { Scope::Agents } else { Scope::Shared },
            rights: rights(&fields),
            subscribe,
            enabled: fields.bool("enabled").unwrap_or(true),
            overrides: fields.bool("overrides").unwrap_or(false),
            agent,
            folder: self.folder,
            located: Located { start: At::start_of(&self.node.at.source), config, secrets: at_secrets },
            secrets,
        };
        let api: Option<u32> = fields.integer("api");
        debug_assert!(api.is_none_or(|api| api <= API), "a newer form was refused before");
        fields.done();
        Some(manifest)
    }

    fn check_id(&mut self, fields: &Fields<'_>, id: Option<&ExtensionId>) {
        let (Some(field), Some(id)) = (fields.get("id"), id) else { return };
        let (name, kind) = match self.form {
            Form::Folder => (self.folder.file_name(), "folder"),
            Form::File { .. } => (self.folder.file_stem(), "file"),
        };
        let name = name.unwrap_or_default().to_string_lossy().into_owned();
        // In drupe.yaml, `extensions.paths` is the list of folders to search, `preauthorized: all` is everybody.
        if matches!(id.as_str(), "paths" | "all") {
            let message = format!("`{id}` cannot be the id of an extension");
            self.faults
                .error("reserved_id", &field.node.at, "id", message)
                .help("choose another id; drupe.yaml uses this word for something else");
        } else if id.as_str() != name {
            let message = format!("`id` is `{id}`, but the {kind} is called `{name}`: they must be equal");
            self.faults
                .error("id_mismatch", &field.node.at, "id", message)
                .help(format!("rename the {kind} to `{id}`, or write `id: {name}`"));
        }
    }

    /// A manifest's configuration may name the secrets that the manifest declares, and no key of the kernel's.
    fn check_config(&mut self, config: &Node, secrets: &[String]) {
        if let Some(entry) = config.entries().iter().find(|entry| entry.key == "enabled") {
            self.faults
                .error(
                    "reserved_key",
                    &entry.key_at,
                    "config.enabled",
                    "`enabled` cannot be a key of `config`",
                )
                .help(
                    "choose another name; `extensions.<id>.enabled` of drupe.yaml switches the extension off",
                );
        }
        each_text(config, "config", &mut |text, at, field| {
            let declared = overlay::Secret::new("");
            let lookup = |name: &str| secrets.iter().any(|secret| secret == name).then_some(&declared);
            for unresolved in overlay::expand(text, lookup).err().unwrap_or_default() {
                match unresolved {
                    Unresolved::Missing(name) => undeclared(&name, at, field, self.faults),
                    malformed => malformed.report(at, field, "the extension", self.faults),
                }
            }
        });
    }

    fn entrypoint(&mut self, fields: &Fields<'_>) -> Option<String> {
        let Some(field) = fields.get("entrypoint") else {
            if fields.get("agent").is_none() && matches!(self.form, Form::Folder) {
                self.faults
                    .error(
                        "missing_key",
                        &self.node.at,
                        "entrypoint",
                        "`entrypoint` is missing, and there is no `agent`",
                    )
                    .help("name the native library (`entrypoint: libkv`), or add an `agent` section");
            }
            return None;
        };
        let text = field.node.text()?;
        if text.contains(':') {
            let message =
                format!("`entrypoint` is `{text}`: a library has no such name, and nothing in it is named");
            self.faults
                .error("invalid_value", &field.node.at, "entrypoint", message)
                .help("write the file stem of the native library alone, such as `entrypoint: libkv`");
            return Some(text.to_owned());
        }
        if Path::new(text).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Some(text.to_owned());
        }
        let message = format!("`entrypoint` is `{text}`: expected a file stem or a path inside the folder");
        self.faults
            .error("path_escapes", &field.node.at, "entrypoint", message)
            .help("put the library into the extension's folder and name it without `..` or a leading `/`");
        // Present, though unusable: without it the manifest would seem to be a declarative agent's.
        Some(text.to_owned())
    }

    /// A list of ids in which the extension itself must not be.
    pub fn others(&mut self, fields: &Fields<'_>, key: &str, own: Option<&ExtensionId>) -> Vec<ExtensionId> {
        let mut ids = Vec::new();
        for field in bounded_items(fields, key, MAX_OTHERS, self.faults) {
            let Some(id) = field.node.text().and_then(|text| ExtensionId::new(text).ok()) else { continue };
            self.refuse_self(&field, &id, own);
            ids.push(id);
        }
        ids
    }

    pub fn refuse_self(&mut self, field: &Field<'_>, id: &ExtensionId, own: Option<&ExtensionId>) {
        if Some(id) == own {
            let message = format!("`{}` names the extension itself", field.path);
            self.faults
                .error("self_dependency", &field.node.at, &field.path, message)
                .help("remove it: what an extension has of its own, it has without listing it");
        }
    }
}

fn isolation(name: &str) -> Option<Isolation> {
    match name {
        "process" => Some(Isolation::Process),
        "inproc" => Some(Isolation::Inproc),
        _ => None,
    }
}

fn rights(fields: &Fields<'_>) -> BTreeSet<Right> {
    let right = |name: &String| match name.as_str() {
        "submit" => Some(Right::Submit),
        "control" => Some(Right::Control),
        "restart" => Some(Right::Restart),
        "processes" => Some(Right::Processes),
        "network" => Some(Right::Network),
        _ => None,
    };
    fields.texts("rights").iter().filter_map(right).collect()
}

/// A placeholder whose name the manifest does not declare.
pub(super) fn undeclared(name: &str, at: &At, field: &str, faults: &mut Diagnostics) {
    let message = format!("`${{{name}}}` is used, but `secrets` of the manifest does not list `{name}`");
    faults.error("undeclared_secret", at, field, message).help(format!("add `{name}` to `secrets`"));
}

/// Visits every text of a tree with its place and name.
pub(super) fn each_text(node: &Node, path: &str, visit: &mut dyn FnMut(&str, &At, &str)) {
    match &node.value {
        Yaml::Text(text) => visit(text, &node.at, path),
        Yaml::List(list) => {
            for (index, item) in list.iter().enumerate() {
                each_text(item, &tree::item(path, index), visit);
            }
        }
        Yaml::Map(entries) => {
            for entry in entries {
                each_text(&entry.value, &tree::join(path, &entry.key), visit);
            }
        }
        _ => {}
    }
}
