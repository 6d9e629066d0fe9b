//! From a folder to a [`Manifest`].

use std::path::{Component, Path, PathBuf};

use drupe_extension_api::ExtensionId;
use drupe_json_schema::Expressions;

use super::{Located, MANIFEST, Manifest, NO_ID, ToolSelector};
use crate::{
    Diagnostics, Loaded,
    fields::Field,
    json_schema,
    overlay::{self, Unresolved},
    parse,
    read::Reading,
    source::{self, At, Links, Source, SourceOrigin},
    tree::{self, Entry, Node, Yaml},
};

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
    let manifest = Reading { faults, variables: None }.typed(&MANIFEST, &node, "")?;
    let folder = source::canonical(folder, faults)?;
    Some(Reader::new(faults, folder, home, &node, Form::Folder).manifest(manifest))
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
    pub(super) node: &'a Node,
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
        Self { faults, expressions: Expressions::default(), folder, home, node, form }
    }

    /// Whose skills these are, and whether anything can lie where they are to be.
    fn check_skills(&mut self, root: &Field<'_>, manifest: &Manifest) {
        let Some(field) = root.get("skills").filter(|_| !manifest.skills.is_empty()) else { return };
        let (code, message, help) = match (&manifest.agent, &self.form) {
            (_, Form::File { .. }) => (
                "not_in_a_file",
                "`skills` names folders, and an agent that is a single file has none beside it",
                "make a folder with a `manifest.yaml`, or put the skill into `skills` of the home",
            ),
            (None, _) => (
                "skills_without_agent",
                "`skills` are of an agent, and there is no `agent`",
                "add `agent`, or put the skills into `skills` of the home, for the orchestrator",
            ),
            (Some(_), _) if manifest.entrypoint.is_some() => (
                "skills_of_code",
                "`skills` are of agents without code: code reads its own folder",
                "remove `skills`",
            ),
            _ => return,
        };
        self.faults.error(code, &field.node.at, "skills", message).help(help);
    }

    /// Checks what relates the values of a manifest to each other and to its folder, and adds what is read from there.
    pub fn manifest(mut self, mut manifest: Manifest) -> Manifest {
        let root = Field::root(self.node);
        let own = root.get("id").filter(|_| manifest.id.as_str() != NO_ID).map(|_| manifest.id.clone());
        self.check_id(&root, own.as_ref());
        let config = root.get("config").map(|field| field.node.clone());
        if let Some(config) = &config {
            self.check_config(config, &manifest.secrets);
        }
        self.check_entrypoint(&root);
        self.check_bound_secrets(&root);
        self.refuse_self(&root, "depends_on", own.as_ref());
        self.check_subscriptions(&root);
        self.check_schedules(&root);
        self.check_servers(&root, &manifest.mcp_servers);
        self.check_skills(&root, &manifest);
        if let Some(schema) = root.get("config_schema") {
            json_schema::check(&schema, &mut self.expressions, self.faults);
        }
        let native = manifest.entrypoint.is_some();
        self.agent(&root, manifest.agent.as_mut(), own.as_ref(), native);
        manifest.located = Located {
            start: At::start_of(&self.node.at.source),
            config,
            servers: root.get("mcp_servers").map(|field| field.node.clone()),
            bound: root.items("bound_secrets").iter().map(|field| field.node.at.clone()).collect(),
            secrets: root.items("secrets").iter().map(|field| field.node.at.clone()).collect(),
        };
        manifest.folder = self.folder;
        manifest
    }

    fn check_id(&mut self, root: &Field<'_>, id: Option<&ExtensionId>) {
        let (Some(field), Some(id)) = (root.get("id"), id) else { return };
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
        self.check_placeholders(config, "config", secrets);
    }

    /// Placeholders name secrets that the manifest declares.
    pub(super) fn check_placeholders(&mut self, node: &Node, path: &str, secrets: &[String]) {
        let mut missing = Vec::new();
        each_text(node, path, &mut |text, at, field| {
            let declared = overlay::Secret::new("");
            let lookup = |name: &str| secrets.iter().any(|secret| secret == name).then_some(&declared);
            for unresolved in overlay::expand(text, lookup).err().unwrap_or_default() {
                match unresolved {
                    Unresolved::Missing(name) => missing.push((name, at.clone(), field.to_owned())),
                    malformed => malformed.report(at, field, "the extension", self.faults),
                }
            }
        });
        for (name, at, field) in missing {
            undeclared(&name, self.binds(&name), &at, &field, self.faults);
        }
    }

    fn check_entrypoint(&mut self, root: &Field<'_>) {
        let Some(field) = root.get("entrypoint") else {
            if root.get("agent").is_none() && matches!(self.form, Form::Folder) {
                let message = "`entrypoint` is missing, and there is no `agent`";
                self.faults
                    .error("missing_key", &self.node.at, "entrypoint", message)
                    .help("name the native library (`entrypoint: libkv`), or add an `agent` section");
            }
            return;
        };
        let Some(text) = field.node.text() else { return };
        if text.contains(':') {
            let message =
                format!("`entrypoint` is `{text}`: a library has no such name, and nothing in it is named");
            self.faults
                .error("invalid_value", &field.node.at, "entrypoint", message)
                .help("write the file stem of the native library alone, such as `entrypoint: libkv`");
        } else if !Path::new(text)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        {
            let message =
                format!("`entrypoint` is `{text}`: expected a file stem or a path inside the folder");
            self.faults.error("path_escapes", &field.node.at, "entrypoint", message).help(
                "put the library into the extension's folder and name it without `..` or a leading `/`",
            );
        }
    }

    /// Reports the extension itself in a list of ids or of tools of others.
    pub fn refuse_self(&mut self, map: &Field<'_>, key: &str, own: Option<&ExtensionId>) {
        let Some(own) = own else { return };
        for field in map.items(key) {
            let named = field.node.text().and_then(|text| text.parse::<ToolSelector>().ok());
            if named.is_some_and(|named| named.extension == *own) {
                let message = format!("`{}` names the extension itself", field.path);
                self.faults
                    .error("self_dependency", &field.node.at, &field.path, message)
                    .help("remove it: what an extension has of its own, it has without listing it");
            }
        }
    }
}

/// A placeholder whose name the manifest does not declare.
pub(super) fn undeclared(name: &str, bound: bool, at: &At, field: &str, faults: &mut Diagnostics) {
    if bound {
        let message = format!("`${{{name}}}` is a bound secret, which stands in no configuration");
        faults
            .error("bound_secret", at, field, message)
            .help("write the placeholder into the request: its value is filled in on the way out");
        return;
    }
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
