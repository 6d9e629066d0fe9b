//! Names: those of servers, those under which tools are offered, and patterns of them. Pure.

use std::fmt::Write;

use drupe_extension_api::{AgentId, Fault};
pub use drupe_mcp_import::{check_server, looks};
use sha2::{Digest, Sha256};

/// The longest name of a tool that every provider takes.
const LONGEST: usize = 64;

/// Hexadecimal digits that stand for what was cut off a name: two tools of one server share them by chance once in billions.
const DIGITS: usize = 8;

/// The tools of this extension itself.
pub const FIND: &str = "mcp_find";
pub const CALL: &str = "mcp_call";
pub const RESOURCES: &str = "mcp_resources";
pub const PROMPTS: &str = "mcp_prompts";

/// The tool that gives the skills of a server, beside the tools of that server.
pub const LOAD_SKILL: &str = "load_skill";

/// The name of an agent's server. An operator's has no dot, so that the two are never one.
pub fn of_agent(agent: &AgentId, server: &str) -> String {
    format!("{agent}.{server}")
}

/// Whether a server may be known by this name: an operator's, or an agent's.
pub fn check_known(name: &str) -> Result<(), Fault> {
    match name.split_once('.') {
        Some((agent, server)) if AgentId::new(agent).is_ok() && !server.contains(['.', '/']) => Ok(()),
        _ => check_server(name),
    }
}

/// What the tools of a server begin with.
pub fn prefix(server: &str) -> String {
    server.replace('.', "_") + "__"
}

/// The name under which a tool of a server is offered. What no provider takes becomes `_`, and what is too long is cut, with
/// a hash of the whole in place of the rest.
pub fn offered(server: &str, tool: &str) -> String {
    let usual = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    let name: String = server.chars().chain("__".chars()).chain(tool.chars()).map(usual).collect();
    if name.len() <= LONGEST {
        return name;
    }
    let digits = hash(format!("{server}\0{tool}").as_bytes());
    format!("{}_{}", &name[..LONGEST - DIGITS - 1], &digits[..DIGITS])
}

/// Stands for bytes: SHA-256, in hexadecimal digits.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a name has the form of a pattern, in which `*` stands for any text. On a mismatch only the last `*` is tried again,
/// so that no pattern takes more than the product of the lengths.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match (pattern.get(p), star) {
            (Some(b'*'), _) => {
                star = Some((p, n));
                p += 1;
            }
            (Some(byte), _) if *byte == name[n] => (p, n) = (p + 1, n + 1),
            (_, Some((place, taken))) => {
                star = Some((place, taken + 1));
                (p, n) = (place + 1, taken + 1);
            }
            (_, None) => return false,
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_where_they_can_be_and_cut_the_same_way_each_time() {
        assert_eq!(offered("git", "git_status"), "git__git_status");
        assert_eq!(offered("git", "repo/list.all"), "git__repo_list_all");
        let long = "x".repeat(80);
        let name = offered("git", &long);
        assert!(name.len() == LONGEST && name == offered("git", &long), "{name}");
        assert_ne!(name, offered("git", &format!("{long}y")), "what was cut off counts");
        assert_eq!(offered("git", "größe"), "git__gr__e");
    }

    #[test]
    fn patterns_are_whole_names() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("get_*", "get_one", true),
            ("get_*", "forget_one", false),
            ("*_*e", "get_one", true),
            ("get", "get_one", false),
            ("g*t*x", "get_one", false),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
