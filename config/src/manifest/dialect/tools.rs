//! Which tools an agent of another system has: lists and maps of names, what is denied, and how far its sandbox reaches.
//!
//! An agent gets what its file names and we have, and nothing that its author denied.

use super::{
    NO_HELP, left_out, listed, member,
    node::{list, map, push, text},
    permission::{Action, Rules},
};
use crate::{
    Diagnostics,
    source::At,
    tree::{Entry, Node, Yaml, shorten},
};

/// Other systems' names of what our tools do, then our own names without their extension.
const TOOLS: &[(&[&str], &[&str])] = &[
    (
        &["Read", "NotebookRead", "read", "read_file", "readFile", "read_many_files", "view", "files_read"],
        &["files/files_read"],
    ),
    (&["Write", "write", "write_file", "create_file", "createFile", "files_write"], &["files/files_write"]),
    (&["Edit", "MultiEdit", "replace", "edit_file", "files_edit"], &["files/files_edit"]),
    // Elsewhere these cover writing, too.
    (&["edit", "editFiles", "edit/editFiles", "patch"], &["files/files_edit", "files/files_write"]),
    (
        &["LS", "Glob", "ls", "list", "glob", "list_directory", "listDirectory", "files_list"],
        &["files/files_list"],
    ),
    (
        &[
            "Grep",
            "grep",
            "search_file_content",
            "grep_search",
            "codebase",
            "search/codebase",
            "files_search",
        ],
        &["files/files_search"],
    ),
    (&["search"], &["files/files_search", "files/files_list"]),
    (&["kv_get"], &["kv/kv_get"]),
    (&["kv_set"], &["kv/kv_set"]),
    (&["kv_list"], &["kv/kv_list"]),
    (&["kv_delete"], &["kv/kv_delete"]),
];

/// The same for tools whose extensions are off until somebody turns them on.
const TURNED_ON: &[(&[&str], &[&str])] = &[
    (
        &["Bash", "bash", "shell", "run_shell_command", "execute", "runCommands", "PowerShell", "powershell"],
        &["shell/shell_run"],
    ),
    (&["WebFetch", "web_fetch", "webfetch", "fetch", "web/fetch"], &["web/web_fetch"]),
    (&["WebSearch", "web_search", "websearch", "google_web_search"], &["web/web_search"]),
    (&["web"], &["web/web_fetch", "web/web_search"]),
];

/// What every run has here: a plan, and the skills that there are.
const ALWAYS: &[&str] = &[
    "TodoWrite",
    "TodoRead",
    "todowrite",
    "todoread",
    "todo",
    "write_todos",
    "Skill",
    "skill",
    "activate_skill",
];

/// Tools by which other systems' agents call agents.
const AGENTS: &[&str] = &["Agent", "Task", "agent", "task", "subagent", "custom-agent"];

/// What opencode calls the permission of a tool.
const PERMISSIONS: &[(&str, &[&str])] = &[
    ("read", &["files/files_read"]),
    ("edit", &["files/files_edit", "files/files_write"]),
    ("glob", &["files/files_list"]),
    ("list", &["files/files_list"]),
    ("grep", &["files/files_search"]),
];

const READING: &[&str] = &["files/files_read", "files/files_list", "files/files_search"];
const WRITING: &[&str] = &["files/files_edit", "files/files_write"];

/// The name of our tool for another system's, where there is one that does the same.
pub fn counterpart(name: &str) -> Option<&'static str> {
    let all = TOOLS.iter().chain(TURNED_ON);
    let (_, ours) = all.into_iter().find(|(theirs, _)| theirs.contains(&name))?;
    let first = ours.first()?;
    Some(first.rsplit_once('/').map_or(*first, |(_, tool)| tool))
}

/// By its name as it stands, else in other letters: some systems do not tell them apart.
fn look(table: &'static [(&[&str], &[&str])], name: &str) -> Option<&'static [&'static str]> {
    let exact = table.iter().find(|(theirs, _)| theirs.contains(&name));
    let alike = || table.iter().find(|(theirs, _)| theirs.iter().any(|one| one.eq_ignore_ascii_case(name)));
    exact.or_else(alike).map(|(_, ours)| *ours)
}

/// What a file says of tools, each with its place.
#[derive(Default)]
pub(super) struct Written {
    pub tools: Option<Entry>,
    pub denied: Option<Entry>,
    pub permission: Option<Entry>,
    pub sandbox: Option<Entry>,
    /// That it may change nothing.
    pub plans: Option<Entry>,
    /// Agents that it may call.
    pub agents: Option<Entry>,
}

#[derive(Default)]
struct Taken {
    found: Vec<(&'static str, At)>,
    asked: Vec<&'static str>,
    agents: Vec<(String, At)>,
    /// Names without a counterpart, and those of what is turned off.
    without: Vec<String>,
    off: Vec<(String, &'static str)>,
}

impl Taken {
    fn add(&mut self, ours: &[&'static str], at: &At) {
        for tool in ours {
            if !self.found.iter().any(|(found, _)| found == tool) {
                self.found.push((tool, at.clone()));
            }
        }
    }

    /// A name that somebody wants to have.
    fn want(&mut self, name: &str, at: &At) {
        let (base, within) = match name.split_once('(') {
            Some((base, rest)) => (base.trim(), Some(rest.trim_end_matches(')'))),
            None => (name, None),
        };
        if AGENTS.contains(&base) && within.is_some() {
            let names = within.unwrap_or_default().split(',').map(str::trim).filter(|one| !one.is_empty());
            self.agents.extend(names.map(|one| (one.to_owned(), at.clone())));
        } else if let (Some(ours), None) = (look(TOOLS, name), within) {
            self.add(ours, at);
        } else if let (Some(ours), None) = (look(TURNED_ON, name), within) {
            self.off.extend(ours.first().map(|ours| (quoted(name), *ours)));
        } else if !ALWAYS.contains(&name) {
            // One that is narrowed by a pattern would be freer here.
            self.without.push(quoted(name));
        }
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", shorten(name))
}

/// Puts what the file says of tools and agents into `uses_tools`, `uses_agents` and `approvals`.
pub(super) fn add(agent: &mut Node, written: Written, faults: &mut Diagnostics) {
    let mut taken = Taken::default();
    let place = [&written.tools, &written.permission, &written.sandbox].into_iter().flatten().next();
    let place = place.map(|entry| (entry.key_at.clone(), entry.value.at.clone(), entry.key.clone()));
    let mut rules = Rules::default();
    match written.tools.as_ref().map(|entry| (entry, &entry.value.value)) {
        Some((_, Yaml::Map(entries))) => rules.of_tools(entries, faults),
        Some((entry, _)) => {
            for (name, at) in names(entry, faults).unwrap_or_default() {
                taken.want(&name, &at);
            }
        }
        None => {}
    }
    match &written.permission {
        Some(entry) if entry.key == "permissions" => rules.of_rules(entry, faults),
        Some(entry) => rules.of_permission(entry, faults),
        None => {}
    }
    by_rules(&rules, &mut taken);
    if let Some(entry) = &written.sandbox {
        sandbox(entry, &mut taken, faults);
    }
    if let Some(entry) = &written.plans {
        deny(agent, WRITING, ("what writes", &entry.value.at, &entry.key), &mut taken, faults);
    }
    if let Some(entry) = &written.denied {
        for (name, at) in names(entry, faults).unwrap_or_default() {
            let base = name.split('(').next().unwrap_or_default().trim();
            let ours = look(TOOLS, base).or_else(|| look(TURNED_ON, base)).unwrap_or_default();
            deny(agent, ours, (&quoted(&name), &at, &entry.key), &mut taken, faults);
        }
    }
    if let Some(entry) = &written.agents {
        // Which agents they call stands there.
        taken.without.retain(|name| !AGENTS.contains(&name.trim_matches('`')));
        taken.agents.extend(names(entry, faults).unwrap_or_default());
    }
    if let Some((key_at, value_at, key)) = place {
        say(&taken, &key_at, &key, faults);
        write(agent, &taken, &key_at, &value_at);
    }
    call(agent, taken.agents, faults);
}

/// What the rules of a map leave of our tools; one is given where it is named, and not by `*` alone.
fn by_rules(rules: &Rules, taken: &mut Taken) {
    for rule in rules.named() {
        if rules.of(&rule.name).is_some_and(|action| action != Action::Deny) {
            taken.want(&rule.name, &rule.at);
        }
    }
    let found = std::mem::take(&mut taken.found);
    for (tool, at) in found {
        let names = PERMISSIONS.iter().filter(|(_, ours)| ours.contains(&tool));
        let actions: Vec<Action> = names.filter_map(|(name, _)| rules.of(name)).collect();
        if actions.contains(&Action::Deny) {
            continue;
        }
        if actions.contains(&Action::Ask) {
            taken.asked.push(tool);
        }
        taken.found.push((tool, at));
    }
    taken.agents.extend(rules.agents());
}

/// The reach of Codex's sandbox says which files an agent works on.
fn sandbox(entry: &Entry, taken: &mut Taken, faults: &mut Diagnostics) {
    match entry.value.text() {
        Some("read-only") => taken.add(READING, &entry.value.at),
        Some(reach @ ("workspace-write" | "danger-full-access")) => {
            taken.add(READING, &entry.value.at);
            taken.add(WRITING, &entry.value.at);
            if reach == "danger-full-access" {
                let message =
                    "`danger-full-access` is the workspace here: no agent reaches beyond it by itself";
                left_out(entry, message, NO_HELP, faults);
            }
        }
        _ => {
            let message = format!("`sandbox_mode` is {}, which is none", entry.value.describe());
            faults
                .error("invalid_value", &entry.value.at, "sandbox_mode", message)
                .help("write `read-only` or `workspace-write`");
        }
    }
}

/// Takes tools of ours away, also from what the file names in our own words. What cannot be parted is a fault.
fn deny(
    agent: &mut Node,
    ours: &[&str],
    (name, at, key): (&str, &At, &str),
    taken: &mut Taken,
    faults: &mut Diagnostics,
) {
    taken.found.retain(|(tool, _)| !ours.contains(tool));
    let Some(Yaml::List(list)) = member(agent, "uses_tools").map(|node| &mut node.value) else { return };
    list.retain(|one| !one.text().is_some_and(|one| ours.contains(&one)));
    let whole =
        |one: &Node| one.text().is_some_and(|id| ours.iter().any(|tool| tool.split('/').next() == Some(id)));
    if let Some(one) = list.iter().find(|one| whole(one)) {
        let message =
            format!("{name} is denied, and `uses_tools` has `{}` as a whole", one.text().unwrap_or_default());
        faults
            .error("denied_and_used", at, key, message)
            .help("name the tools that it may use, one by one: `files/files_read`");
    }
}

fn say(taken: &Taken, at: &At, key: &str, faults: &mut Diagnostics) {
    if !taken.without.is_empty() {
        let message = format!("without a counterpart here, and left out: {}", listed(&taken.without));
        faults.warning("left_out", at, key, message).help(
            "name extensions of drupe under `uses_tools`: `[files, kv]`, or `files/files_read` for one tool",
        );
    }
    if !taken.off.is_empty() {
        let names: Vec<String> = taken.off.iter().map(|(name, ours)| format!("{name} is `{ours}`")).collect();
        let message =
            format!("of extensions that are off until they are turned on, and left out: {}", listed(&names));
        faults
            .warning("left_out", at, key, message)
            .help("turn the extension on in drupe.yaml, then name the tool under `uses_tools`");
    }
}

/// Adds what was found to what the file has in our own words.
fn write(agent: &mut Node, taken: &Taken, key_at: &At, at: &At) {
    let mut found: Vec<Node> = taken.found.iter().map(|(tool, at)| text(tool, at)).collect();
    match member(agent, "uses_tools").map(|node| &mut node.value) {
        Some(Yaml::List(list)) => {
            found.retain(|new| !list.iter().any(|old| old.text() == new.text()));
            list.extend(found);
        }
        // Nothing, or what is no list and will be reported.
        Some(_) => {}
        None => push(agent, "uses_tools", key_at, list(found, at)),
    }
    let asked = taken.asked.iter().filter(|asked| taken.found.iter().any(|(found, _)| found == *asked));
    let rules: Vec<Node> = asked
        .map(|tool| {
            let tool = tool.rsplit('/').next().unwrap_or(tool);
            map(vec![("tool", text(tool, at)), ("then", text("ask", at))], at)
        })
        .collect();
    if rules.is_empty() {
        return;
    }
    if member(agent, "approvals").is_none() {
        push(agent, "approvals", key_at, map(Vec::new(), at));
    }
    let Some(approvals) = member(agent, "approvals") else { return };
    match member(approvals, "rules").map(|node| &mut node.value) {
        // Those of the file come first, and none of them can allow.
        Some(Yaml::List(own)) => own.extend(rules),
        Some(_) => {}
        None => push(approvals, "rules", key_at, list(rules, at)),
    }
}

/// Adds agents that it may call. A name that can be none of ours is left out.
fn call(agent: &mut Node, agents: Vec<(String, At)>, faults: &mut Diagnostics) {
    let Some((_, first)) = agents.first().cloned() else { return };
    let (mut found, mut without): (Vec<Node>, Vec<String>) = (Vec::new(), Vec::new());
    for (name, at) in agents {
        let id = name.to_ascii_lowercase().replace(' ', "-");
        match drupe_extension_api::AgentId::new(&*id) {
            Ok(_) if found.iter().any(|one| one.text() == Some(&id)) => {}
            Ok(_) => found.push(text(&id, &at)),
            Err(_) => without.push(quoted(&name)),
        }
    }
    if !without.is_empty() {
        let message = format!("these are no ids of agents, and left out: {}", listed(&without));
        faults
            .warning("left_out", &first, "uses_agents", message)
            .help("name each agent that it may call under `uses_agents`");
    }
    match member(agent, "uses_agents").map(|node| &mut node.value) {
        Some(Yaml::List(own)) => {
            found.retain(|new| !own.iter().any(|old| old.text() == new.text()));
            own.extend(found);
        }
        Some(_) => {}
        None if found.is_empty() => {}
        None => push(agent, "uses_agents", &first, list(found, &first)),
    }
}

/// A list of texts, or one text with commas; those in brackets part nothing.
pub(super) fn names(entry: &Entry, faults: &mut Diagnostics) -> Option<Vec<(String, At)>> {
    let node = &entry.value;
    let names: Option<Vec<_>> = match &node.value {
        Yaml::Null => Some(Vec::new()),
        Yaml::List(list) => {
            list.iter().map(|item| Some((item.text()?.to_owned(), item.at.clone()))).collect()
        }
        Yaml::Text(text) => {
            let mut depth = 0usize;
            let parts = text.split(|letter| {
                match letter {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                letter == ',' && depth == 0
            });
            let parts = parts.map(str::trim).filter(|part| !part.is_empty());
            Some(parts.map(|part| (part.to_owned(), node.at.clone())).collect())
        }
        _ => None,
    };
    if names.is_none() {
        let key = &entry.key;
        let message = format!("`{key}`: expected names, found {}", node.describe());
        faults
            .error("wrong_type", &node.at, key, message)
            .help("write a list `[Read, Grep]`, or `Read, Grep`; or `uses_tools: [files]`");
    }
    names
}
