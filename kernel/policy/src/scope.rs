//! What an agreement for the rest of a conversation is about: a key, which is equal for all calls that it covers.

use drupe_extension_api::{ApprovalScope, ScopeKind, ToolSpec};

use crate::{rules::Params, texts::as_path};

/// Programs whose first word behind the name says what they do, and which do no more than that says. Of any other program
/// the whole command line counts: `env`, `xargs` or `sh` run what stands behind them.
const WITH_SUBCOMMANDS: [&str; 12] =
    ["cargo", "docker", "gh", "git", "go", "just", "kubectl", "npm", "pip", "pnpm", "rustup", "uv"];

/// What a call of a tool is about; none where no agreement can be about more than this one call.
pub fn key(spec: &ToolSpec, params: &str) -> Option<String> {
    let tool = spec.name.as_str();
    let Some(ApprovalScope { param, kind, same }) = &spec.annotations.approval_scope else {
        return Some(tool.to_owned());
    };
    let params = Params::new(params);
    let text = params.get(param)?;
    let about = match kind {
        ScopeKind::Folder => folder(&text),
        ScopeKind::Host => host(&text)?,
        ScopeKind::Command => command(&text)?,
        ScopeKind::Exact => text,
    };
    let mut key = format!("{tool} {about}");
    for name in same {
        if let Some(value) = params.get(name) {
            // As JSON, so that no value can look like another parameter.
            key.push_str(&format!(" {name}={}", serde_json::Value::String(value)));
        }
    }
    Some(key)
}

/// Whether a parameter is a command line that runs more than it says, or may.
pub(crate) fn is_compound(spec: &ToolSpec, param: &str, text: &str) -> bool {
    let scope = spec.annotations.approval_scope.as_ref();
    scope.is_some_and(|scope| scope.kind == ScopeKind::Command && scope.param == param)
        && words(text).is_none()
}

fn folder(path: &str) -> String {
    let path = as_path(path);
    path.rsplit_once('/').map_or("./", |(folder, _)| &path[..folder.len() + 1]).to_owned()
}

fn host(address: &str) -> Option<String> {
    let (scheme, rest) = address.split_once("://")?;
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let host = &rest[..end];
    // What stands before an `@` is read as the host by people, and by no browser.
    (!scheme.is_empty() && !host.is_empty() && !host.contains('@'))
        .then(|| format!("{scheme}://{host}").to_ascii_lowercase())
}

fn command(line: &str) -> Option<String> {
    let words = words(line)?;
    let is_plain = |word: &&str| {
        word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !word.starts_with('-')
    };
    match words.as_slice() {
        [program, does, ..] if WITH_SUBCOMMANDS.contains(program) && is_plain(does) => {
            Some(format!("{program} {does} …"))
        }
        words => Some(words.join(" ")),
    }
}

/// The words of a command line that a shell reads as nothing but words; none where it might read anything else in it.
fn words(line: &str) -> Option<Vec<&str>> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " -_./=:,@%+".contains(c);
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    // A word with `=` before the program sets a variable of it.
    let begins = words.first().is_some_and(|first| !first.contains('='));
    (begins && line.chars().all(is_plain)).then_some(words)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(kind: &str) -> ToolSpec {
        let scope = json!({"param": "x", "kind": kind});
        let spec = json!({"name": "t", "description": "", "input_schema": {}, "annotations": {"approval_scope": scope}});
        serde_json::from_value(spec).expect("a tool")
    }

    fn of(kind: &str, text: &str) -> Option<String> {
        key(&spec(kind), &json!({ "x": text }).to_string())
    }

    #[test]
    fn a_command_is_the_program_with_its_sub_command_and_never_a_text_that_begins_so() {
        assert_eq!(of("command", "git status"), Some("t git status …".into()));
        assert_eq!(of("command", "git  status --porcelain"), of("command", "git status"));
        for other in [
            "git status; rm -r x",
            "git status && rm x",
            "git status | sh",
            "git status `rm x`",
            "git status $(rm x)",
            "git status\nrm x",
            "git status > x",
            "git status \"x\"",
            "GIT_DIR=x git status",
            "git statusx",
            "git -c x=y status",
            "Git status",
            "./git status",
            "env git status",
        ] {
            assert_ne!(of("command", other), of("command", "git status"), "{other}");
        }
        assert_eq!(of("command", "git status; rm x"), None);
        assert_eq!(of("command", ""), None);
        // What runs what stands behind it is the whole line.
        assert_eq!(of("command", "env FOO=1 make"), Some("t env FOO=1 make".into()));
        assert_ne!(of("command", "env FOO=1 rm"), of("command", "env FOO=1 make"));
    }

    #[test]
    fn a_path_is_its_folder_and_an_address_its_host() {
        assert_eq!(of("folder", "notes/a.md"), Some("t notes/".into()));
        assert_eq!(of("folder", "notes/../secret.md"), of("folder", "other.md"));
        assert_ne!(of("folder", "notes/deep/a.md"), of("folder", "notes/a.md"));
        assert_eq!(of("host", "https://Docs.rs/a"), Some("t https://docs.rs".into()));
        for other in [
            "https://docs.rs.example.org/",
            "http://docs.rs/",
            "https://docs.rs:444/",
            "https://docs.rs@example.org/",
        ] {
            assert_ne!(of("host", other), of("host", "https://docs.rs/"), "{other}");
        }
        assert_eq!(of("host", "docs.rs"), None);
        assert_eq!(of("exact", "a b"), Some("t a b".into()));
    }

    #[test]
    fn what_must_be_the_same_is_a_part_of_it() {
        let mut spec = spec("command");
        spec.annotations.approval_scope.as_mut().expect("it has one").same =
            vec!["network".into(), "cwd".into()];
        let of = |params: serde_json::Value| key(&spec, &params.to_string());
        assert_eq!(of(json!({"x": "git status"})), Some("t git status …".into()));
        let network = of(json!({"x": "git status", "network": true, "other": 1}));
        assert_eq!(network.as_deref(), Some("t git status … network=\"true\""));
        assert_ne!(of(json!({"x": "git status", "cwd": "a\" network=\"true"})), network);
    }
}
