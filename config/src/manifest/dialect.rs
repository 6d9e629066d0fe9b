//! The frontmatter of other systems' agent files, put into our own words.
//!
//! What only looks different is renamed. What would be lost is named in a warning; what would make an agent freer
//! than its author meant is no known key, hence a fault.

use super::{AGENT, MANIFEST};
use crate::{
    Diagnostics,
    agent_keys::{LIMITS, PARAMETERS},
    shape::{Table, suggestion},
    source::At,
    tree::{Entry, Node, Yaml},
};

/// Another system's key, and ours; a dot leads into a map.
const ALIASES: &[(&str, &str)] = &[
    ("prompt", "instructions"),
    ("mcp-servers", "mcp_servers"),
    ("max_turns", "limits.max_turns"),
    ("maxTurns", "limits.max_turns"),
    ("maxToolTurns", "limits.max_turns"),
    ("temperature", "parameters.temperature"),
    ("top_p", "parameters.top_p"),
    ("topP", "parameters.top_p"),
];

/// Within `limits`.
const LIMIT_ALIASES: &[(&str, &str)] = &[("maxToolTurns", "max_turns")];

/// How other systems show an agent.
const LOOKS: [&str; 2] = ["color", "icon"];

/// Keys of a manifest that mean nothing for a file without native code.
pub(super) const FOLDER_ONLY: [&str; 3] = ["agent", "entrypoint", "isolation"];

/// Other systems' names of what our tools do, then our own names without their extension.
const TOOLS: &[(&[&str], &str)] = &[
    (&["Read", "NotebookRead", "read", "read_file", "readFile", "view", "files_read"], "files/files_read"),
    (&["Write", "write", "write_file", "create_file", "files_write"], "files/files_write"),
    (&["Edit", "MultiEdit", "edit", "replace", "edit_file", "files_edit"], "files/files_edit"),
    (
        &["LS", "Glob", "ls", "list", "glob", "list_directory", "listDirectory", "files_list"],
        "files/files_list",
    ),
    (&["Grep", "grep", "search", "search_file_content", "grep_search", "files_search"], "files/files_search"),
    (&["kv_get"], "kv/kv_get"),
    (&["kv_set"], "kv/kv_set"),
    (&["kv_list"], "kv/kv_list"),
    (&["kv_delete"], "kv/kv_delete"),
];

/// The same for tools that a manifest names by their extensions, which are off until somebody turns them on.
const TURNED_ON: &[(&[&str], &str)] = &[
    (&["Bash", "bash", "shell", "run_shell_command", "execute"], "shell_run"),
    (&["WebFetch", "web_fetch", "fetch"], "web_fetch"),
    (&["WebSearch", "web_search", "google_web_search"], "web_search"),
];

/// The name of our tool for another system's, where there is one that does the same.
pub fn counterpart(name: &str) -> Option<&'static str> {
    let all = TOOLS.iter().chain(TURNED_ON);
    let (_, ours) = all.into_iter().find(|(theirs, _)| theirs.contains(&name))?;
    Some(ours.rsplit_once('/').map_or(*ours, |(_, tool)| tool))
}

/// The keys of the manifest, and those of its `agent`.
pub(super) fn adopt(root: Node, faults: &mut Diagnostics) -> (Node, Node) {
    let empty = || Node { value: Yaml::Map(Vec::new()), at: root.at.clone() };
    let (mut top, mut agent) = (empty(), empty());
    let (mut tools, mut inner) = (None, Vec::new());
    let Yaml::Map(entries) = root.value else { return (top, agent) };
    for entry in entries {
        let key = entry.key.as_str();
        if key == "tools" {
            tools = Some(entry);
        } else if key == "model" && entry.value.text() == Some("inherit") {
            // The model of the defaults.
        } else if LOOKS.contains(&key) {
            let message = format!("`{key}` has no counterpart here, and is left out");
            faults.warning("left_out", &entry.key_at, key, message).help("remove it");
        } else if FOLDER_ONLY.contains(&key) {
            not_in_a_file(&entry, faults);
        } else {
            place(entry, &mut top, &mut agent, &mut inner, faults);
        }
    }
    // Only now is it known whether the file has those maps itself.
    for (parent, entry) in inner {
        insert(&mut agent, parent, entry);
    }
    if let Some(limits) = member(&mut agent, "limits") {
        rename(limits, &LIMITS, LIMIT_ALIASES);
    }
    if let Some(parameters) = member(&mut agent, "parameters") {
        rename(parameters, &PARAMETERS, &[]);
    }
    if let Some(tools) = tools {
        add_tools(&mut agent, tools, faults);
    }
    (top, agent)
}

fn not_in_a_file(entry: &Entry, faults: &mut Diagnostics) {
    let key = entry.key.as_str();
    let help = if key == "agent" {
        "write the keys of `agent` beside the others"
    } else {
        "make a folder with a `manifest.yaml`: a single file has no native code"
    };
    let message = format!("`{key}` is no key of an agent that is a single file");
    faults.error("not_in_a_file", &entry.key_at, key, message).help(help);
}

/// Puts an entry where its key belongs; those of maps within the agent are left for later, with the map's key.
fn place(
    mut entry: Entry,
    top: &mut Node,
    agent: &mut Node,
    inner: &mut Vec<(&'static str, Entry)>,
    faults: &mut Diagnostics,
) {
    let known = |key: &str| MANIFEST.key(key).is_some() || AGENT.key(key).is_some();
    let alias = ALIASES.iter().find(|(theirs, _)| *theirs == entry.key).map(|(_, ours)| *ours);
    if let Some((parent, key)) = alias.and_then(|ours| ours.split_once('.')) {
        entry.key = key.to_owned();
        inner.push((parent, entry));
        return;
    }
    let name = alias.map(str::to_owned).unwrap_or_else(|| match snake_case(&entry.key) {
        snake if !known(&entry.key) && known(&snake) => snake,
        _ => entry.key.clone(),
    });
    if !known(&name) {
        unknown(&entry, faults);
    } else {
        entry.key = name;
        let map = if MANIFEST.key(&entry.key).is_some() { top } else { agent };
        push(map, entry);
    }
}

fn unknown(entry: &Entry, faults: &mut Diagnostics) {
    let keys = MANIFEST.keys.iter().chain(AGENT.keys).filter(|key| !key.later).map(|key| key.name);
    let names = keys.filter(|key| !FOLDER_ONLY.contains(key)).chain(["prompt", "tools"]);
    let all = names.clone().collect::<Vec<_>>().join(", ");
    let help = suggestion(&entry.key, names).unwrap_or(format!("known here: {all}"));
    let message = format!("unknown key `{}` in the frontmatter", entry.key);
    faults.error("unknown_key", &entry.key_at, &entry.key, message).help(help);
}

fn push(map: &mut Node, entry: Entry) {
    if let Yaml::Map(entries) = &mut map.value {
        entries.push(entry);
    }
}

fn member<'a>(map: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let Yaml::Map(entries) = &mut map.value else { return None };
    entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.value)
}

/// Into a map of the agent's, which is made where it is not there.
fn insert(agent: &mut Node, parent: &str, entry: Entry) {
    if member(agent, parent).is_none() {
        let value = Node { value: Yaml::Map(Vec::new()), at: entry.key_at.clone() };
        push(agent, Entry { key: parent.to_owned(), key_at: entry.key_at.clone(), value });
    }
    if let Some(map) = member(agent, parent) {
        if map.is_null() {
            map.value = Yaml::Map(Vec::new());
        }
        push(map, entry);
    }
}

fn rename(map: &mut Node, table: &Table, aliases: &[(&str, &str)]) {
    let Yaml::Map(entries) = &mut map.value else { return };
    for entry in entries {
        let alias = aliases.iter().find(|(theirs, _)| *theirs == entry.key);
        let name = alias.map_or_else(|| snake_case(&entry.key), |(_, ours)| (*ours).to_owned());
        if table.key(&entry.key).is_none() && table.key(&name).is_some() {
            entry.key = name;
        }
    }
}

/// `likeThis` as `like_this`.
fn snake_case(key: &str) -> String {
    let mut name = String::with_capacity(key.len() + 4);
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Adds the counterparts of other systems' tools to `uses_tools`; a tool that two names mean is added once.
fn add_tools(agent: &mut Node, tools: Entry, faults: &mut Diagnostics) {
    let Some(names) = names(&tools, faults) else { return };
    let mut without = Vec::new();
    let mut found: Vec<Node> = Vec::new();
    for (name, at) in &names {
        match TOOLS.iter().find(|(theirs, _)| theirs.contains(&name.as_str())) {
            Some((_, ours)) if found.iter().any(|node| node.text() == Some(ours)) => {}
            Some((_, ours)) => found.push(Node { value: Yaml::Text((*ours).to_owned()), at: at.clone() }),
            None => without.push(format!("`{}`", crate::tree::shorten(name))),
        }
    }
    if !without.is_empty() {
        let message = format!("without a counterpart here, and left out: {}", listed(&without));
        faults.warning("left_out", &tools.key_at, "tools", message).help(
            "name extensions of drupe under `uses_tools`: `[files, kv]`, or `files/files_read` for one tool",
        );
    }
    match member(agent, "uses_tools").map(|node| &mut node.value) {
        Some(Yaml::List(list)) => {
            found.retain(|new| !list.iter().any(|old| old.text() == new.text()));
            list.extend(found);
        }
        // Nothing, or what is no list and will be reported.
        Some(_) => {}
        None => {
            let value = Node { value: Yaml::List(found), at: tools.value.at };
            push(agent, Entry { key: "uses_tools".into(), key_at: tools.key_at, value });
        }
    }
}

/// A list of texts, or one text with commas.
fn names(tools: &Entry, faults: &mut Diagnostics) -> Option<Vec<(String, At)>> {
    let node = &tools.value;
    let names: Option<Vec<_>> = match &node.value {
        Yaml::Null => Some(Vec::new()),
        Yaml::List(list) => {
            list.iter().map(|item| Some((item.text()?.to_owned(), item.at.clone()))).collect()
        }
        Yaml::Text(text) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Some(parts.map(|part| (part.to_owned(), node.at.clone())).collect())
        }
        _ => None,
    };
    if names.is_none() {
        let message = format!("`tools`: expected names, found {}", node.describe());
        faults
            .error("wrong_type", &node.at, "tools", message)
            .help("write a list `[Read, Grep]`, or `Read, Grep`; or `uses_tools: [files]`");
    }
    names
}

/// Nobody reads more of them.
const MAX_LISTED: usize = 12;

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(MAX_LISTED)].join(", ");
    match names.len().saturating_sub(MAX_LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
