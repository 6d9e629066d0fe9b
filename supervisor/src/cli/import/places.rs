//! Where other assistants keep what is theirs, beneath a project or a user's home folder.
//!
//! Looked up on 2026-11-27; `docs/reference/import.md` has the sources.

use std::path::{Path, PathBuf};

/// In which form an agent is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentForm {
    Markdown,
    Toml,
}

/// What lies at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// A folder of files, each an agent.
    Agents(AgentForm),
    /// A folder of folders, each a skill.
    Skills,
    /// A file with a list of MCP servers under this key.
    Servers(&'static str),
    TomlServers,
    /// A file with servers and agents.
    Opencode,
}

#[derive(Debug, Clone, Copy)]
pub struct ForeignPlace {
    pub system: &'static str,
    pub path: &'static str,
    pub holds: Holds,
}

const fn place(system: &'static str, path: &'static str, holds: Holds) -> ForeignPlace {
    ForeignPlace { system, path, holds }
}

const MARKDOWN: Holds = Holds::Agents(AgentForm::Markdown);
const SERVERS: Holds = Holds::Servers("mcpServers");

/// Of one name the first counts.
const PLACES: &[ForeignPlace] = &[
    place("claude-code", ".claude/agents", MARKDOWN),
    place("claude-code", ".claude/skills", Holds::Skills),
    place("claude-code", ".mcp.json", SERVERS),
    place("claude-code", ".claude.json", SERVERS),
    place("codex", ".codex/agents", Holds::Agents(AgentForm::Toml)),
    place("codex", ".codex/skills", Holds::Skills),
    place("codex", ".codex/config.toml", Holds::TomlServers),
    place("copilot", ".github/agents", MARKDOWN),
    place("copilot", ".github/skills", Holds::Skills),
    place("copilot", ".vscode/mcp.json", Holds::Servers("servers")),
    place("copilot", ".copilot/agents", MARKDOWN),
    place("copilot", ".copilot/skills", Holds::Skills),
    place("copilot", ".copilot/mcp-config.json", SERVERS),
    place("opencode", ".opencode/agents", MARKDOWN),
    place("opencode", ".opencode/agent", MARKDOWN),
    place("opencode", ".opencode/skills", Holds::Skills),
    place("opencode", ".opencode/opencode.json", Holds::Opencode),
    place("opencode", ".opencode/opencode.jsonc", Holds::Opencode),
    place("opencode", "opencode.json", Holds::Opencode),
    place("opencode", "opencode.jsonc", Holds::Opencode),
    place("opencode", ".config/opencode/agents", MARKDOWN),
    place("opencode", ".config/opencode/agent", MARKDOWN),
    place("opencode", ".config/opencode/skills", Holds::Skills),
    place("opencode", ".config/opencode/opencode.json", Holds::Opencode),
    place("opencode", ".config/opencode/opencode.jsonc", Holds::Opencode),
    place("gemini", ".gemini/agents", MARKDOWN),
    place("gemini", ".gemini/skills", Holds::Skills),
    place("gemini", ".gemini/settings.json", SERVERS),
    place("gemini", ".config/gemini-cli/agents", MARKDOWN),
    place("agents", ".agents/skills", Holds::Skills),
];

/// Names that stand for what one assistant has in the user's home folder.
pub const PRESETS: [&str; 6] = ["claude-code", "codex", "copilot", "opencode", "gemini", "agents"];

/// A folder, and the places in it that are looked at.
#[derive(Debug)]
pub struct Chosen {
    pub root: PathBuf,
    pub places: Vec<ForeignPlace>,
}

/// What one assistant has beneath a user's home folder. The common folder of skills is read by all but one of them.
pub fn preset(name: &str, home: PathBuf) -> Option<Chosen> {
    let name = PRESETS.iter().find(|preset| **preset == name)?;
    let common = *name != "claude-code";
    let is_its = |place: &&ForeignPlace| place.system == *name || (common && place.system == "agents");
    Some(Chosen { root: home, places: PLACES.iter().filter(is_its).copied().collect() })
}

/// What lies beneath a folder; of one that an assistant has for itself, such as `.claude`, what is in it.
pub fn folder(path: PathBuf) -> Chosen {
    for place in PLACES {
        for inner in Path::new(place.path).ancestors().skip(1).filter(|inner| *inner != Path::new("")) {
            // `.config` is everybody's.
            if inner != Path::new(".config") && path.ends_with(inner) {
                let root = path.ancestors().nth(inner.components().count()).unwrap_or(&path).to_owned();
                let places = PLACES.iter().filter(|place| Path::new(place.path).starts_with(inner));
                return Chosen { root, places: places.copied().collect() };
            }
        }
    }
    Chosen { root: path, places: PLACES.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assistants_own_folder_is_looked_at_alone() {
        for (path, root, count) in [
            ("/p/x", "/p/x", PLACES.len()),
            ("/p/.claude", "/p", 2),
            ("/p/.claude/skills", "/p/.claude/skills", PLACES.len()),
            ("/h/.config/opencode", "/h", 5),
            ("/h/.config", "/h/.config", PLACES.len()),
            ("/p/.vscode", "/p", 1),
        ] {
            let chosen = folder(path.into());
            assert_eq!((chosen.root.to_str(), chosen.places.len()), (Some(root), count), "{path}");
        }
        assert_eq!(preset("codex", "/h".into()).map(|chosen| chosen.places.len()), Some(4));
        assert!(preset("codexx", "/h".into()).is_none());
    }
}
