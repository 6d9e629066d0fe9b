//! Reads the list of MCP servers of another assistant, and gives the text for `drupe.yaml`. Changes nothing. Pure.
//!
//! The shapes, looked up on 2026-11-24: `mcpServers` (most of them), `servers` with `inputs` (VS Code, `mcp.json`),
//! `context_servers` (Zed), `mcp` with a `command` that is a list, and `environment` (opencode). Values that look secret do not
//! come into the text: a `${NAME}` stands for each, and whoever asked is told which names to define.

use std::{collections::BTreeMap, fmt::Write};

use drupe_extension_api::prelude::*;
use serde_json::{Map, Value, json};

use crate::names;

/// The keys under which lists of servers are found.
const LISTS: [&str; 4] = ["mcpServers", "servers", "context_servers", "mcp"];

/// Parts of a name that say that its value is secret.
const SECRET: [&str; 10] =
    ["KEY", "TOKEN", "SECRET", "PASSW", "PWD", "CREDENTIAL", "AUTH", "COOKIE", "PRIVATE", "DSN"];

/// Keys that are understood, of all shapes.
const KNOWN: [&str; 14] = [
    "type",
    "transport",
    "command",
    "args",
    "path",
    "env",
    "environment",
    "url",
    "serverUrl",
    "httpUrl",
    "headers",
    "disabled",
    "enabled",
    "timeout",
];

#[derive(Default)]
struct Reader {
    yaml: String,
    /// Names to define, with what each is for.
    secrets: BTreeMap<String, String>,
    notes: Vec<String>,
    servers: Vec<String>,
}

/// The text for `drupe.yaml`, the names of secrets to define, and what could not be taken over.
pub fn import(given: &Value) -> Result<Value, Fault> {
    let parsed;
    let given = match given {
        Value::String(text) => {
            parsed = serde_json::from_str(text).map_err(|error| {
                Fault::invalid(format!("the text is no JSON: {error}")).help("comments are not taken")
            })?;
            &parsed
        }
        value => value,
    };
    let list = LISTS.iter().find_map(|key| given.get(*key)?.as_object());
    let list = list.ok_or_else(|| {
        Fault::invalid("no MCP servers are found")
            .help("the JSON needs `mcpServers`, `servers`, `context_servers` or `mcp`")
    })?;
    let mut reader = Reader {
        yaml: "extensions:\n  mcp:\n    enabled: true\n    servers:\n".to_owned(),
        ..Reader::default()
    };
    for (name, server) in list {
        match server.as_object() {
            Some(server) => reader.server(name, server),
            None => reader.notes.push(format!("`{}` is no server", plain(name))),
        }
    }
    if reader.servers.is_empty() {
        return Err(Fault::invalid("none of the servers can be taken over").help(reader.notes.join("; ")));
    }
    let secrets: Vec<Value> =
        reader.secrets.iter().map(|(name, of)| json!({"name": name, "for": of})).collect();
    Ok(json!({"yaml": reader.yaml, "secrets": secrets, "servers": reader.servers, "notes": reader.notes}))
}

impl Reader {
    fn server(&mut self, given: &str, server: &Map<String, Value>) {
        let name = self.name(given);
        let text = |key: &str| server.get(key).and_then(Value::as_str);
        let url = ["httpUrl", "serverUrl", "url"].into_iter().find_map(text);
        // Zed had the program in an object of its own.
        let within = server.get("command").and_then(Value::as_object);
        let command = within.and_then(|within| within.get("path")).or(server.get("command"));
        let mut words: Vec<String> = match command {
            Some(Value::String(command)) => vec![command.clone()],
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        let args =
            within.and_then(|within| within.get("args")).or(server.get("args")).and_then(Value::as_array);
        words.extend(args.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        let kind = text("type").or(text("transport")).unwrap_or_default();
        if kind == "sse" {
            self.notes.push(format!("`{name}` is spoken to by the older transport `sse`, which is not supported: try its address for streamable HTTP"));
        }
        let mut body = String::new();
        match (url, words.split_first()) {
            (Some(url), _) => {
                let url = self.of_url(&name, url);
                line(&mut body, "url", &quoted(&url));
                let headers = server.get("headers").and_then(Value::as_object);
                // What a header carries is mostly who one is.
                self.map(&mut body, &name, "headers", headers, true);
            }
            (None, Some((program, arguments))) => {
                line(&mut body, "command", &quoted(&self.references(&name, program)));
                if !arguments.is_empty() {
                    let arguments = self.arguments(&name, arguments);
                    line(&mut body, "args", &format!("[{}]", arguments.join(", ")));
                }
                let env = within
                    .and_then(|within| within.get("env"))
                    .or(server.get("env"))
                    .or(server.get("environment"));
                self.map(&mut body, &name, "env", env.and_then(Value::as_object), false);
                self.hints(&name, program);
            }
            (None, None) => {
                self.notes.push(format!("`{name}` has neither a command nor an address and is left out"));
                return;
            }
        }
        let off = server.get("disabled") == Some(&Value::Bool(true))
            || server.get("enabled") == Some(&Value::Bool(false));
        if off {
            line(&mut body, "enabled", "false");
        }
        let unknown: Vec<String> = server
            .keys()
            .filter(|key| !KNOWN.contains(&key.as_str()))
            .map(|key| format!("`{}`", plain(key)))
            .collect();
        if !unknown.is_empty() {
            self.notes.push(format!("of `{name}` is not taken over: {}", unknown.join(", ")));
        }
        let _ = write!(self.yaml, "      {}:\n{body}", quoted(&name));
        self.servers.push(name);
    }

    /// A name that drupe takes, and that no other one has.
    fn name(&mut self, given: &str) -> String {
        let usual = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let mut name: String = given.chars().map(usual).take(32).collect();
        while name.contains("__") {
            name = name.replace("__", "_");
        }
        let mut name = name.trim_matches(['_', '-']).to_owned();
        if names::check_server(&name).is_err() {
            name = format!("server-{}", self.servers.len() + 1);
        }
        let stem: String = name.chars().take(28).collect();
        let mut number = 2;
        while self.servers.contains(&name) {
            name = format!("{stem}-{number}");
            number += 1;
        }
        if name != given {
            self.notes.push(format!("`{}` is named `{name}`", plain(given)));
        }
        name
    }

    fn map(
        &mut self,
        body: &mut String,
        server: &str,
        key: &str,
        map: Option<&Map<String, Value>>,
        all: bool,
    ) {
        let Some(map) = map.filter(|map| !map.is_empty()) else { return };
        let _ = writeln!(body, "        {key}:");
        for (name, value) in map {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let value = match all || is_secret_name(name) || looks_secret(&value) {
                true => self.secret(server, name, &value),
                false => self.references(server, &value),
            };
            let _ = writeln!(body, "          {}: {}", quoted(name), quoted(&value));
        }
    }

    /// The value of a secret, in the form in which its name stands for it.
    fn secret(&mut self, server: &str, name: &str, value: &str) -> String {
        if value.contains("${") {
            return self.references(server, value);
        }
        // The kind of a credential before it is no secret: `Bearer …`.
        let (kind, _) = value
            .rsplit_once(' ')
            .filter(|(kind, _)| kind.chars().all(char::is_alphabetic))
            .unwrap_or_default();
        let space = if kind.is_empty() { "" } else { " " };
        let name = self.placeholder(server, name);
        format!("{kind}{space}${{{name}}}")
    }

    /// A variable for a secret. Two servers may have different ones of the same name.
    fn placeholder(&mut self, server: &str, name: &str) -> String {
        let of = format!("`{}` of the server `{server}`", plain(name));
        let named = variable(name);
        let named = match self.secrets.get(&named) {
            Some(other) if *other != of => variable(&format!("{server}_{name}")),
            _ => named,
        };
        self.secrets.insert(named.clone(), of);
        named
    }

    /// Arguments; a word after `--api-key` or in `--api-key=…` is a secret, and so is what looks like one.
    fn arguments(&mut self, server: &str, arguments: &[String]) -> Vec<String> {
        let mut after = None;
        let mut written = Vec::new();
        for argument in arguments {
            let flag = argument.starts_with('-');
            let value = match (after.take(), argument.split_once('=')) {
                (Some(name), _) if !flag => self.secret(server, name, argument),
                (_, Some((name, value))) if is_secret_name(name) || looks_secret(value) => {
                    format!("{name}={}", self.secret(server, name, value))
                }
                _ if looks_secret(argument) => self.secret(server, "argument", argument),
                _ => self.references(server, argument),
            };
            if flag && !argument.contains('=') && is_secret_name(argument) {
                after = Some(argument.as_str());
            }
            written.push(quoted(&value));
        }
        written
    }

    /// An address, without what stands for a person in it.
    fn of_url(&mut self, server: &str, url: &str) -> String {
        let Some((before, query)) = url.split_once('?') else { return self.references(server, url) };
        let parts: Vec<String> = query
            .split('&')
            .map(|part| match part.split_once('=') {
                Some((name, value)) if is_secret_name(name) || looks_secret(value) => {
                    format!("{name}={}", self.secret(server, name, value))
                }
                _ => self.references(server, part),
            })
            .collect();
        format!("{}?{}", self.references(server, before), parts.join("&"))
    }

    /// `${env:NAME}`, `${NAME}` and `${input:id}` as drupe writes them. Any other `${` stands for itself.
    fn references(&mut self, server: &str, text: &str) -> String {
        let mut written = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            written += before;
            let Some((named, later)) = after.split_once('}') else {
                rest = after;
                written += "$${";
                continue;
            };
            let (kind, name) = named.split_once(':').unwrap_or(("", named));
            let plain =
                name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) && !name.is_empty();
            match kind {
                // Those with small letters are values that an editor knows, such as its folder.
                "" if plain && !name.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                    let name = self.placeholder(server, name);
                    let _ = write!(written, "${{{name}}}");
                }
                "env" | "input" if plain => {
                    let name = self.placeholder(server, name);
                    let _ = write!(written, "${{{name}}}");
                }
                _ => {
                    self.notes.push(format!(
                        "`${{{}}}` of `{server}` means nothing here",
                        crate::import::plain(named)
                    ));
                    let _ = write!(written, "$${{{named}}}");
                }
            }
            rest = later;
        }
        written + rest
    }

    fn hints(&mut self, server: &str, program: &str) {
        let file = program.rsplit('/').next().unwrap_or_default();
        match file {
            "npx" | "bunx" | "uvx" | "pipx" | "pnpm" => self.notes.push(format!(
                "`{server}` is fetched when it starts, which needs `network: true`; better install it and name its program"
            )),
            "docker" | "podman" => {
                self.notes.push(format!("`{server}` runs in a container, which a confined program cannot start"));
            }
            _ => {}
        }
    }
}

fn line(body: &mut String, key: &str, value: &str) {
    let _ = writeln!(body, "        {key}: {value}");
}

/// A text as YAML: a string of JSON is one of YAML as well.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn plain(text: &str) -> String {
    crate::definition::shown(text).chars().filter(|c| !c.is_control()).take(60).collect()
}

/// A name for a variable.
fn variable(name: &str) -> String {
    let usual = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = name.chars().map(usual).collect();
    let name = name.trim_matches('_').to_owned();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("MCP_{name}")
    } else {
        name
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_uppercase();
    SECRET.iter().any(|part| name.contains(part)) && !name.ends_with("PATH") && !name.ends_with("FILE")
}

/// Whether a value looks made by a machine: long, of letters and digits both, no path, no address and no words.
fn looks_secret(value: &str) -> bool {
    let usual = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.+=".contains(&byte));
    let (letters, digits) =
        (value.bytes().any(|b| b.is_ascii_alphabetic()), value.bytes().any(|b| b.is_ascii_digit()));
    let known = ["sk-", "ghp_", "github_pat_", "xoxb-", "xoxp-", "glpat-", "AKIA"];
    let with_password =
        value.contains("://") && value.split('/').nth(2).is_some_and(|host| host.contains('@'));
    known.iter().any(|start| value.starts_with(start)) && value.len() > 12
        || with_password
        || usual && letters && digits && value.len() >= 24 && !value.contains(".js") && !value.contains(".py")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: Value) -> Value {
        import(&given).expect("it is read")
    }

    #[test]
    fn what_most_assistants_have_becomes_a_text_without_a_secret_in_it() {
        let given = json!({"mcpServers": {
            "GitHub Server": {
                "command": "npx", "args": ["-y", "server-github", "--api-key", "hunter2", "--token=abc", "${workspaceFolder}"],
                "env": {"GITHUB_TOKEN": "ghp_abcdefghijklmnop", "LEVEL": "info", "HOST_URL": "postgres://u:pw@h/db"},
                "autoApprove": ["x"]},
            "web": {"type": "http", "url": "https://example.org/mcp?apiKey=q1w2&v=2",
                "headers": {"Authorization": "Bearer sk-123456789", "X-Team": "${env:TEAM}"}, "disabled": true},
        }});
        let read = read(given);
        let yaml = read["yaml"].as_str().expect("a text");
        let expected = r#"extensions:
  mcp:
    enabled: true
    servers:
      "GitHub_Server":
        command: "npx"
        args: ["-y", "server-github", "--api-key", "${API_KEY}", "--token=${TOKEN}", "$${workspaceFolder}"]
        env:
          "GITHUB_TOKEN": "${GITHUB_TOKEN}"
          "HOST_URL": "${HOST_URL}"
          "LEVEL": "info"
      "web":
        url: "https://example.org/mcp?apiKey=${APIKEY}&v=2"
        headers:
          "Authorization": "Bearer ${AUTHORIZATION}"
          "X-Team": "${TEAM}"
        enabled: false
"#;
        // The order of keys is that of the JSON library.
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(yaml), sorted(expected), "{yaml}");
        for secret in ["hunter2", "abc", "ghp_", "pw@h", "q1w2", "sk-1"] {
            assert!(!read.to_string().contains(secret), "{secret}");
        }
        let names: Vec<&str> =
            read["secrets"].as_array().expect("a list").iter().filter_map(|s| s["name"].as_str()).collect();
        assert_eq!(
            names,
            ["API_KEY", "APIKEY", "AUTHORIZATION", "GITHUB_TOKEN", "HOST_URL", "TEAM", "TOKEN"]
                .into_iter()
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
        let notes = read["notes"].to_string();
        for note in ["is named `GitHub_Server`", "`autoApprove`", "network: true", "workspaceFolder"] {
            assert!(notes.contains(note), "{note}: {notes}");
        }
    }

    #[test]
    fn the_other_shapes_are_read_as_well() {
        for given in [
            json!({"servers": {"a": {"type": "stdio", "command": "prog", "args": ["x"], "env": {"K": "v"}}}, "inputs": []}),
            json!({"context_servers": {"a": {"command": {"path": "prog", "args": ["x"], "env": {"K": "v"}}}}}),
            json!({"mcp": {"a": {"type": "local", "command": ["prog", "x"], "environment": {"K": "v"}}}}),
        ] {
            let yaml = read(given)["yaml"].to_string();
            for part in [r#"command: \"prog\""#, r#"args: [\"x\"]"#, r#"\"K\": \"v\""#] {
                assert!(yaml.contains(part), "{part}: {yaml}");
            }
        }
        let remote = read(json!({"mcpServers": {"a": {"serverUrl": "https://x.example/mcp"}}}));
        assert!(remote["yaml"].to_string().contains("url: \\\"https://x.example/mcp\\\""), "{remote}");
    }

    #[test]
    fn names_are_made_to_fit_and_stay_apart_and_nonsense_is_refused() {
        let two = read(
            json!({"mcpServers": {"a b": {"command": "x"}, "a_b": {"command": "y"}, "🙂": {"command": "z"}, "agent": {"command": "z"}}}),
        );
        let names: Vec<String> = serde_json::from_value(two["servers"].clone()).expect("a list");
        let unique: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!((names.len(), unique.len()), (4, 4), "{names:?}");
        for not in [json!({}), json!("{"), json!({"mcpServers": {}}), json!({"mcpServers": {"a": {}}})] {
            assert!(import(&not).is_err(), "{not}");
        }
        let same = read(
            json!({"mcpServers": {"a": {"command": "x", "env": {"KEY": "1"}}, "b": {"command": "x", "env": {"KEY": "2"}}}}),
        );
        assert_eq!(same["secrets"].as_array().map(Vec::len), Some(2), "{same}");
    }
}
