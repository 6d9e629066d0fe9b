//! The frontmatter of other systems' agent files, put into our own words.
//!
//! What only looks different is renamed, and what narrows an agent narrows it here. What would be lost is named in a warning;
//! where it would make an agent freer than its author meant, it is a fault, unless somebody looks at what is left out
//! before the agent is made.
//!
//! The formats, looked up on 2026-11-27: subagents of Claude Code, custom agents of Codex and of GitHub Copilot, agents of
//! opencode, subagents of Gemini CLI. `docs/reference/import.md` has them with their sources.

mod node;
mod permission;
mod tools;

pub use tools::counterpart;

use super::{AGENT, MANIFEST};
use crate::{
    Diagnostics,
    agent_keys::{LIMITS, PARAMETERS},
    shape::{Table, suggestion},
    tree::{Entry, Node, Yaml, shorten},
};

/// Another system's key, and ours; a dot leads into a map.
const ALIASES: &[(&str, &str)] = &[
    ("prompt", "instructions"),
    ("developer_instructions", "instructions"),
    ("system", "instructions"),
    ("mcp-servers", "mcp_servers"),
    ("argument-hint", "usage"),
    ("max_turns", "limits.max_turns"),
    ("maxTurns", "limits.max_turns"),
    ("maxToolTurns", "limits.max_turns"),
    ("steps", "limits.max_turns"),
    ("maxSteps", "limits.max_turns"),
    ("temperature", "parameters.temperature"),
    ("top_p", "parameters.top_p"),
    ("topP", "parameters.top_p"),
];

const LIMIT_ALIASES: &[(&str, &str)] = &[("maxToolTurns", "max_turns")];

/// How other systems call the effort of a model.
const EFFORT: [&str; 3] = ["effort", "reasoningEffort", "model_reasoning_effort"];

/// Keys of other systems without a counterpart, and why nothing is lost that would make an agent safer.
const LEFT: &[(&[&str], &str)] = &[
    (&["color", "icon", "emoji"], "has no counterpart here"),
    (&["nickname_candidates", "metadata", "target"], "says nothing of what an agent does here"),
    (&["handoffs", "initialPrompt"], "is of an editor or a chat, and has no counterpart here"),
    (&["background"], "has no counterpart: who calls an agent waits for it, or does other work meanwhile"),
    (
        &["hidden", "hidden_from_cycle", "user-invocable", "user-invokable"],
        "hides it from people elsewhere, and people can always name it here",
    ),
    (
        &["variant", "options", "model_verbosity", "model_reasoning_summary", "model_provider", "request"],
        "is of another system's models",
    ),
    (&["memory"], "has no counterpart: what is remembered is of the extension `memory`"),
    (&["web_search"], "has no counterpart: the extension `web` searches, once it is turned on"),
    (&["approval_policy"], "has no counterpart: `approvals` of drupe.yaml says what is asked about"),
];

/// Keys that may hold an agent back, which nothing here does in the same way.
const GUARDS: &[(&[&str], &str)] = &[
    (&["hooks"], "are programs that may stop it, and hooks are extensions here"),
    (&["policy"], "are rules about its tools, which `approvals.rules` says in other words"),
];

/// Keys of a manifest that mean nothing for a file without native code.
pub(super) const FOLDER_ONLY: [&str; 3] = ["agent", "entrypoint", "isolation"];

const NO_HELP: &str = "remove it";

/// What becomes of what nobody here knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strange {
    /// The file is used as it lies, and nobody may have looked at it.
    Refused,
    /// Somebody is told, and decides whether the agent is made.
    LeftOut,
}

/// The keys of the manifest, and those of its `agent`.
pub(super) fn adopt(root: Node, strange: Strange, faults: &mut Diagnostics) -> (Node, Node) {
    let empty = || Node { value: Yaml::Map(Vec::new()), at: root.at.clone() };
    let mut adopting = Adopting {
        strange,
        top: empty(),
        agent: empty(),
        inner: Vec::new(),
        written: tools::Written::default(),
        silent: false,
        faults,
    };
    let Yaml::Map(mut entries) = root.value else { return (adopting.top, adopting.agent) };
    // Where a name for people stands beside it, `name` is what models call it, as the file's name is here.
    if entries.iter().any(|entry| entry.key == "display_name") {
        entries.retain(|entry| entry.key != "name");
    }
    for entry in entries {
        adopting.entry(entry);
    }
    adopting.end()
}

struct Adopting<'a> {
    strange: Strange,
    top: Node,
    agent: Node,
    /// Entries of maps within the agent, each with the map's key.
    inner: Vec<(&'static str, Entry)>,
    written: tools::Written,
    /// Whether nobody is asked, and what would be asked about is refused.
    silent: bool,
    faults: &'a mut Diagnostics,
}

impl Adopting<'_> {
    fn entry(&mut self, mut entry: Entry) {
        let lenient = self.strange == Strange::LeftOut;
        match entry.key.as_str() {
            "tools" => self.written.tools = Some(entry),
            "disallowedTools" => self.written.denied = Some(entry),
            "permission" | "permissions" => {
                if self.written.permission.is_some() {
                    let message = "what it may do stands in `permission` and in `permissions`";
                    self.faults
                        .error("duplicate_key", &entry.key_at, &entry.key, message)
                        .help("keep one of them");
                }
                self.written.permission = Some(entry);
            }
            "sandbox_mode" => self.written.sandbox = Some(entry),
            "agents" => self.written.agents = Some(entry),
            // The model of the defaults.
            "model" if entry.value.text() == Some("inherit") => {}
            "permissionMode" if entry.value.text() == Some("plan") => self.written.plans = Some(entry),
            "permissionMode" => self.permission_mode(&entry),
            "mode" => match entry.value.text() {
                // People choose it, and models do not.
                Some("primary") => self.agent_key("infer", &entry, node::bool(false, &entry.value.at)),
                Some("subagent" | "all") => {}
                _ => self.invalid(&entry, "`primary`, `subagent` or `all`"),
            },
            "kind" => match entry.value.text() {
                Some("local") => {}
                Some("remote") => {
                    let message = "the agent runs elsewhere (`kind: remote`), and no agent here does";
                    self.faults
                        .error("remote_agent", &entry.key_at, "kind", message)
                        .help("agents of others are reached as servers or channels, by extensions");
                }
                _ => self.invalid(&entry, "`local`"),
            },
            "disable" | "disabled" | "disable-model-invocation" => match entry.value.value {
                Yaml::Bool(yes) => {
                    let value = node::bool(!yes, &entry.value.at);
                    match entry.key.as_str() {
                        "disable-model-invocation" => self.agent_key("infer", &entry, value),
                        _ => node::push(&mut self.top, "enabled", &entry.key_at, value),
                    }
                }
                _ => self.invalid(&entry, "`true` or `false`"),
            },
            "display_name" => {
                entry.key = "name".into();
                self.place(entry);
            }
            "timeout_mins" => match entry.value.value {
                Yaml::Integer(minutes) if (1..=1440).contains(&minutes) => {
                    let value = node::integer(minutes * 60_000, &entry.value.at);
                    self.inner.push(("limits", Entry { key: "time_budget_ms".into(), value, ..entry }));
                }
                _ => self.invalid(&entry, "a whole number of minutes, at most 1440"),
            },
            key if EFFORT.contains(&key) => self.effort(entry),
            "isolation" if entry.value.text() == Some("worktree") => {
                left_out(
                    &entry,
                    "a worktree of its own has no counterpart: it works in the workspace",
                    NO_HELP,
                    self.faults,
                );
            }
            "skills" if lenient => left_out(
                &entry,
                "skills of another system are names, and those of an agent here lie in its folder",
                "put the skill into `skills` of the home, for the orchestrator",
                self.faults,
            ),
            // The file's name is one here, and nobody who is asked what is left out expects to lose another extension.
            "id" | "api" if lenient => {}
            "version"
                if lenient && entry.value.text().is_none_or(|text| semver::Version::parse(text).is_err()) =>
            {
                left_out(&entry, "it is no semantic version such as `1.0.0`", NO_HELP, self.faults);
            }
            "overrides" if lenient => {
                left_out(&entry, "what comes over replaces nothing that is there", NO_HELP, self.faults);
            }
            key if FOLDER_ONLY.contains(&key) => not_in_a_file(&entry, self.faults),
            key => match (why(LEFT, key), why(GUARDS, key)) {
                (Some(why), _) => {
                    let message = format!("`{key}` {why}, and is left out");
                    left_out(&entry, &message, NO_HELP, self.faults);
                }
                (None, Some(why)) => self.guard(&entry, why),
                (None, None) => self.place(entry),
            },
        }
    }

    fn agent_key(&mut self, key: &str, entry: &Entry, value: Node) {
        node::push(&mut self.agent, key, &entry.key_at, value);
    }

    fn invalid(&mut self, entry: &Entry, expected: &str) {
        let message = format!("`{}`: expected {expected}, found {}", entry.key, entry.value.describe());
        self.faults
            .error("invalid_value", &entry.value.at, &entry.key, message)
            .help("correct it, or remove the key");
    }

    fn guard(&mut self, entry: &Entry, why: &str) {
        let message = format!("`{}` {why}", entry.key);
        match self.strange {
            Strange::LeftOut => left_out(entry, &format!("{message}: left out"), NO_HELP, self.faults),
            Strange::Refused => self
                .faults
                .error("not_enforced", &entry.key_at, &entry.key, message)
                .help("remove it if the agent may do without"),
        }
    }

    /// What Claude Code asks about. Here a person is asked as the operator says, so that only what is stricter is taken over.
    fn permission_mode(&mut self, entry: &Entry) {
        match entry.value.text() {
            Some("default") => {}
            Some("dontAsk") => self.silent = true,
            Some("acceptEdits" | "auto" | "bypassPermissions" | "manual") => left_out(
                entry,
                "a file cannot agree to calls here: `approvals` of drupe.yaml says what is asked about",
                NO_HELP,
                self.faults,
            ),
            _ => self.invalid(entry, "a mode such as `default`, `plan` or `dontAsk`"),
        }
    }

    /// The effort of a model, in our words.
    fn effort(&mut self, mut entry: Entry) {
        let given = entry.value.text().unwrap_or_default().to_owned();
        let ours = match given.as_str() {
            "none" | "low" | "medium" | "high" => given.as_str(),
            "minimal" => "low",
            "xhigh" | "max" => "high",
            _ => return self.invalid(&entry, "`none`, `low`, `medium` or `high`"),
        };
        if ours != given {
            left_out(&entry, &format!("`{given}` is taken as `{ours}`"), NO_HELP, self.faults);
        }
        entry.value = node::text(ours, &entry.value.at);
        entry.key = "reasoning".into();
        self.inner.push(("parameters", entry));
    }

    /// Puts an entry where its key belongs; those of maps within the agent are left for later, with the map's key.
    fn place(&mut self, mut entry: Entry) {
        let known = |key: &str| MANIFEST.key(key).is_some() || AGENT.key(key).is_some();
        let alias = ALIASES.iter().find(|(theirs, _)| *theirs == entry.key).map(|(_, ours)| *ours);
        if let Some((parent, key)) = alias.and_then(|ours| ours.split_once('.')) {
            entry.key = key.to_owned();
            self.inner.push((parent, entry));
            return;
        }
        let name = alias.map(str::to_owned).unwrap_or_else(|| match snake_case(&entry.key) {
            snake if !known(&entry.key) && known(&snake) => snake,
            _ => entry.key.clone(),
        });
        if !known(&name) {
            match self.strange {
                Strange::Refused => unknown(&entry, self.faults),
                Strange::LeftOut => {
                    let message = format!("`{}` is no key of an agent here", shorten(&entry.key));
                    left_out(&entry, &message, NO_HELP, self.faults);
                }
            }
            return;
        }
        entry.key = name;
        let map = if MANIFEST.key(&entry.key).is_some() { &mut self.top } else { &mut self.agent };
        push(map, entry);
    }

    fn end(mut self) -> (Node, Node) {
        // Only now is it known whether the file has those maps itself.
        for (parent, entry) in self.inner {
            insert(&mut self.agent, parent, entry);
        }
        if let Some(limits) = member(&mut self.agent, "limits") {
            rename(limits, &LIMITS, LIMIT_ALIASES);
        }
        if let Some(parameters) = member(&mut self.agent, "parameters") {
            rename(parameters, &PARAMETERS, &[]);
        }
        tools::add(&mut self.agent, self.written, self.faults);
        if self.silent {
            let at = self.agent.at.clone();
            let value = node::text("never", &at);
            insert(&mut self.agent, "approvals", Entry { key: "mode".into(), key_at: at, value });
        }
        (self.top, self.agent)
    }
}

fn why(table: &[(&[&str], &'static str)], key: &str) -> Option<&'static str> {
    table.iter().find(|(keys, _)| keys.contains(&key)).map(|(_, why)| *why)
}

fn left_out(entry: &Entry, message: &str, help: &str, faults: &mut Diagnostics) {
    faults.warning("left_out", &entry.key_at, &entry.key, message).help(help);
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

/// Nobody reads more of them.
const MAX_LISTED: usize = 12;

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(MAX_LISTED)].join(", ");
    match names.len().saturating_sub(MAX_LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
