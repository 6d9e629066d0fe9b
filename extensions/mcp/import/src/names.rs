//! Names of servers. Pure.

use drupe_extension_api::Fault;

/// Whether a server may have this name.
///
/// # Errors
/// What is wrong with it.
pub fn check_server(name: &str) -> Result<(), Fault> {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let fits = (1..=32).contains(&name.len()) && name.bytes().all(usual) && !name.starts_with(['_', '-']);
    if !fits {
        return Err(Fault::invalid(format!("`{name}` is no name for an MCP server"))
            .help("1 to 32 letters, digits, `_` and `-`, the first a letter or a digit"));
    }
    // `a__b` of a tool `c` and `a` of a tool `b__c` would be one name.
    if name.contains("__") || name.ends_with('_') {
        return Err(Fault::invalid(format!(
            "the name `{name}` of an MCP server has `__`, or `_` at its end"
        ))
        .help("these two characters part the server from the tool"));
    }
    if matches!(looks(name).as_str(), "agent" | "handoff" | "mcp") {
        return Err(Fault::invalid(format!("`{name}` is no name for an MCP server: it is kept for others"))
            .help("choose another name"));
    }
    Ok(())
}

/// How a name looks to people, models and providers: the kernel takes no two tools that look the same.
#[must_use]
pub fn looks(name: &str) -> String {
    let mut seen = String::with_capacity(name.len());
    for character in name.chars() {
        let character = match character.to_ascii_lowercase() {
            '-' | '.' => '_',
            '0' => 'o',
            '1' | 'i' => 'l',
            other => other,
        };
        if character != '_' || !seen.ends_with('_') {
            seen.push(character);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_names_that_part_from_those_of_their_tools() {
        for fine in ["git", "my-files", "a_b", "9"] {
            assert!(check_server(fine).is_ok(), "{fine}");
        }
        for not in [
            "",
            "a__b",
            "a_",
            "_a",
            "-a",
            "a b",
            "größe",
            "agent",
            "Agent",
            "handoff",
            "MCP",
            &"x".repeat(33),
        ] {
            assert!(check_server(not).is_err(), "{not}");
        }
    }
}
