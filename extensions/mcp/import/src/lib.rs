//! Reads the list of MCP servers of another assistant. Changes nothing. Pure.
//!
//! The shapes, looked up on 2026-11-24 and 2026-11-27: `mcpServers` (most of them), `servers` with `inputs` (VS Code,
//! `mcp.json`), `mcp_servers` (Codex), `context_servers` (Zed), `mcp` with a `command` that is a list, and `environment`
//! (opencode), which the second version has one level deeper, under `mcp.servers`. Values that look secret are not taken
//! over: a `${NAME}` stands for each, and whoever asked is told which names to define.

mod names;
mod values;

use std::{collections::BTreeMap, fmt::Write};

use drupe_extension_api::Fault;
use serde_json::{Map, Value, json};

pub use names::{check_server, looks};

/// The keys under which lists of servers are found.
const LISTS: [&str; 5] = ["mcpServers", "servers", "mcp_servers", "context_servers", "mcp"];

/// Keys that are understood, of all shapes.
const KNOWN: [&str; 26] = [
    "type",
    "transport",
    "command",
    "args",
    "path",
    "env",
    "env_vars",
    "environment",
    "url",
    "serverUrl",
    "httpUrl",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "disabled",
    "enabled",
    "timeout",
    "tool_timeout_sec",
    "tools",
    "includeTools",
    "enabled_tools",
    "excludeTools",
    "disabled_tools",
    // What people call it, and words of theirs about it.
    "name",
    "description",
];

/// The most seconds of a call that drupe takes.
const LONGEST_CALL: u64 = 3600;

/// The servers of a list, and what is none.
#[derive(Debug, Default)]
pub struct ServerList {
    pub servers: Vec<TakenServer>,
    /// What of the list is no server, as sentences.
    pub notes: Vec<String>,
}

/// A server in the form of drupe.
#[derive(Debug, Default)]
pub struct TakenServer {
    /// What the other assistant calls it.
    pub given: String,
    /// A name that drupe takes, and that no other one of the list has.
    pub name: String,
    pub settings: Map<String, Value>,
    /// Names of variables that it needs, with what each is for.
    pub secrets: BTreeMap<String, String>,
    /// What of it is not taken over, and what is better known, as sentences.
    pub notes: Vec<String>,
}

/// The servers of a list of another assistant.
///
/// # Errors
/// There is no list.
pub fn read(given: &Value) -> Result<ServerList, Fault> {
    let list = LISTS.iter().find_map(|key| Some((*key, given.get(*key)?.as_object()?)));
    let (key, list) = list.ok_or_else(|| {
        Fault::invalid("no MCP servers are found")
            .help("it needs `mcpServers`, `servers`, `mcp_servers`, `context_servers` or `mcp`")
    })?;
    let both;
    let list = match key {
        "mcp" => {
            both = of_opencode(list);
            &both
        }
        _ => list,
    };
    let mut read = ServerList::default();
    for (given, server) in list {
        let Some(server) = server.as_object() else {
            read.notes.push(format!("`{}` is no server", plain(given)));
            continue;
        };
        let others: Vec<&str> = read.servers.iter().map(|other| other.name.as_str()).collect();
        let mut taken = TakenServer::named(given, &others);
        let elsewhere = |name: &str| read.servers.iter().any(|other| other.secrets.contains_key(name));
        if taken.take(server, &elsewhere) {
            read.servers.push(taken);
        } else {
            read.notes.append(&mut taken.notes);
        }
    }
    Ok(read)
}

/// Servers of both versions of opencode, which may stand in one file: the newer has them in `servers`, beside `timeout`.
fn of_opencode(list: &Map<String, Value>) -> Map<String, Value> {
    let is_server = |value: &Value| ["type", "command", "url"].iter().any(|key| value[*key].is_string());
    let (mut both, mut inner) = (Map::new(), Map::new());
    for (name, value) in list {
        match (name.as_str(), value.as_object()) {
            ("servers", Some(servers)) if !is_server(value) => inner = servers.clone(),
            ("timeout", _) if !is_server(value) => {}
            _ => drop(both.insert(name.clone(), value.clone())),
        }
    }
    both.extend(inner);
    both
}

/// The text for `drupe.yaml`, the names of secrets to define, and what could not be taken over. `given` is the text of a file,
/// or what is in it.
///
/// # Errors
/// There is no list, or nothing of it can be taken over.
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
    let ServerList { servers, mut notes } = read(given)?;
    notes.extend(servers.iter().flat_map(|server| server.notes.clone()));
    if servers.is_empty() {
        return Err(Fault::invalid("none of the servers can be taken over").help(notes.join("; ")));
    }
    let mut yaml = "extensions:\n  mcp:\n    enabled: true\n    servers:\n".to_owned();
    servers.iter().for_each(|server| yaml += &server.yaml(6));
    let secrets: BTreeMap<&String, &String> = servers.iter().flat_map(|server| &server.secrets).collect();
    let secrets: Vec<Value> =
        secrets.into_iter().map(|(name, of)| json!({"name": name, "for": of})).collect();
    let names: Vec<&String> = servers.iter().map(|server| &server.name).collect();
    Ok(json!({"yaml": yaml, "secrets": secrets, "servers": names, "notes": notes}))
}

impl TakenServer {
    /// With a name that drupe takes, and that none of the others has.
    fn named(given: &str, others: &[&str]) -> Self {
        let usual = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let mut name: String = given.chars().map(usual).take(32).collect();
        while name.contains("__") {
            name = name.replace("__", "_");
        }
        let mut name = name.trim_matches(['_', '-']).to_owned();
        if check_server(&name).is_err() {
            name = format!("server-{}", others.len() + 1);
        }
        let stem: String = name.chars().take(28).collect();
        let mut number = 2;
        while others.contains(&name.as_str()) {
            name = format!("{stem}-{number}");
            number += 1;
        }
        let mut taken = Self { given: given.to_owned(), name, ..Self::default() };
        if taken.name != given {
            taken.notes.push(format!("`{}` is named `{}`", plain(given), taken.name));
        }
        taken
    }

    /// Takes over what there is; whether it is a server. Another server may need a variable of the same name for something
    /// else: `elsewhere` knows.
    fn take(&mut self, server: &Map<String, Value>, elsewhere: &dyn Fn(&str) -> bool) -> bool {
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
            self.notes.push(format!("`{}` is spoken to by the older transport `sse`, which is not supported: try its address for streamable HTTP", self.name));
        }
        match (url, words.split_first()) {
            (Some(url), _) => {
                let url = self.of_url(url, elsewhere);
                self.settings.insert("url".into(), url.into());
                self.take_headers(server, elsewhere);
            }
            (None, Some((program, arguments))) => {
                let command = self.references(program, elsewhere);
                self.settings.insert("command".into(), command.into());
                if !arguments.is_empty() {
                    let arguments = self.arguments(arguments, elsewhere);
                    self.settings.insert("args".into(), arguments.into());
                }
                let env = within
                    .and_then(|within| within.get("env"))
                    .or(server.get("env"))
                    .or(server.get("environment"));
                let mut env = self.map(env.and_then(Value::as_object), false, elsewhere);
                for one in server.get("env_vars").and_then(Value::as_array).into_iter().flatten() {
                    if let Some(name) = one.as_str().or(one["name"].as_str()) {
                        let value = format!("${{{}}}", self.placeholder(name, elsewhere));
                        env.insert(name.to_owned(), value.into());
                    }
                }
                self.insert_map("env", env);
                self.hints(program);
            }
            (None, None) => {
                self.notes
                    .push(format!("`{}` has neither a command nor an address and is left out", self.name));
                return false;
            }
        }
        self.take_tools(server);
        self.take_time(server);
        let off = server.get("disabled") == Some(&Value::Bool(true))
            || server.get("enabled") == Some(&Value::Bool(false));
        if off {
            self.settings.insert("enabled".into(), false.into());
        }
        let unknown: Vec<String> = server
            .keys()
            .filter(|key| !KNOWN.contains(&key.as_str()))
            .map(|key| format!("`{}`", plain(key)))
            .collect();
        if !unknown.is_empty() {
            self.notes.push(format!("of `{}` is not taken over: {}", self.name, unknown.join(", ")));
        }
        true
    }

    fn take_headers(&mut self, server: &Map<String, Value>, elsewhere: &dyn Fn(&str) -> bool) {
        let given = server.get("headers").or(server.get("http_headers"));
        // What a header carries is mostly who one is.
        let mut headers = self.map(given.and_then(Value::as_object), true, elsewhere);
        for (header, variable) in
            server.get("env_http_headers").and_then(Value::as_object).into_iter().flatten()
        {
            if let Some(variable) = variable.as_str() {
                let value = format!("${{{}}}", self.placeholder(variable, elsewhere));
                headers.insert(header.clone(), value.into());
            }
        }
        if let Some(variable) = server.get("bearer_token_env_var").and_then(Value::as_str) {
            let value = format!("Bearer ${{{}}}", self.placeholder(variable, elsewhere));
            headers.insert("Authorization".into(), value.into());
        }
        self.insert_map("headers", headers);
    }

    fn insert_map(&mut self, key: &str, map: Map<String, Value>) {
        if !map.is_empty() {
            self.settings.insert(key.to_owned(), map.into());
        }
    }

    /// Which of its tools there are. A list with `*` is of all of them.
    fn take_tools(&mut self, server: &Map<String, Value>) {
        let mut tools = Map::new();
        for (ours, theirs) in [
            ("allow", &["tools", "includeTools", "enabled_tools"][..]),
            ("deny", &["excludeTools", "disabled_tools"]),
        ] {
            let given = theirs.iter().find_map(|key| Some((*key, server.get(*key)?)));
            match given {
                Some((_, Value::Array(list))) if list.iter().all(Value::is_string) => {
                    let all = ours == "allow" && list.contains(&"*".into());
                    tools.extend((!all).then(|| (ours.to_owned(), list.clone().into())));
                }
                Some((key, _)) => {
                    self.notes
                        .push(format!("`{key}` of `{}` is no list of names, and is left out", self.name));
                }
                None => {}
            }
        }
        self.insert_map("tools", tools);
    }

    /// Seconds of a call. Most say milliseconds, some seconds, and nobody waits for less than one.
    fn take_time(&mut self, server: &Map<String, Value>) {
        let seconds = match (server.get("tool_timeout_sec"), server.get("timeout")) {
            (Some(seconds), _) => seconds.as_f64().filter(|seconds| *seconds >= 0.0),
            (None, Some(given)) => {
                given.as_f64().filter(|given| *given >= 1000.0).map(|given| given / 1000.0)
            }
            (None, None) => return,
        };
        match seconds {
            Some(seconds) => {
                // A bound on both sides, so that the cast loses nothing.
                let seconds = seconds.ceil().clamp(1.0, LONGEST_CALL as f64) as u64;
                self.settings.insert("timeout_s".into(), seconds.into());
            }
            None => self
                .notes
                .push(format!("the time of a call of `{}` is not clear, and is left out", self.name)),
        }
    }

    fn hints(&mut self, program: &str) {
        let file = program.rsplit('/').next().unwrap_or_default();
        let name = &self.name;
        match file {
            "npx" | "bunx" | "uvx" | "pipx" | "pnpm" => self.notes.push(format!(
                "`{name}` is fetched when it starts, which needs `network: true`; better install it and name its program"
            )),
            "docker" | "podman" => {
                self.notes.push(format!("`{name}` runs in a container, which a confined program cannot start"));
            }
            _ => {}
        }
    }

    /// The lines of it below `servers`, so many spaces from the margin.
    #[must_use]
    pub fn yaml(&self, margin: usize) -> String {
        let mut yaml = format!("{:margin$}{}:\n", "", quoted(&self.name));
        for (key, value) in &self.settings {
            let indent = margin + 2;
            match value {
                Value::Object(map) => {
                    // Writing to a text cannot fail.
                    let _ = writeln!(yaml, "{:indent$}{key}:", "");
                    for (key, value) in map {
                        let key = if key.bytes().all(|byte| byte.is_ascii_lowercase()) {
                            key
                        } else {
                            &quoted(key)
                        };
                        let _ = writeln!(yaml, "{:indent$}  {key}: {}", "", flow(value));
                    }
                }
                value => {
                    let _ = writeln!(yaml, "{:indent$}{key}: {}", "", flow(value));
                }
            }
        }
        yaml
    }
}

/// A value in one line: JSON, with spaces in lists.
fn flow(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("[{}]", list.iter().map(flow).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}

/// A text as YAML: a string of JSON is one of YAML as well.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn plain(text: &str) -> String {
    shown(text).chars().filter(|c| !c.is_control()).take(60).collect()
}

/// A text of strangers without characters that act on whoever looks at it: control characters, those of direction and those
/// without width, in which words hide from people that models read.
#[must_use]
pub fn shown(text: &str) -> String {
    let acts = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
                | '\u{e0000}'..='\u{e007f}' | '\u{ad}' | '\u{61c}' | '\u{180e}')
    };
    text.chars().filter(|c| !acts(*c)).collect()
}

#[cfg(test)]
mod tests;
