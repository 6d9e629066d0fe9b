//! `mcp_servers`: servers whose tools an agent has, and nobody else.
//!
//! What they are is agreed to by the operator, so that all of it must be short enough to be read. The extension `mcp` speaks
//! with them; whether it works is not known here.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Manifest,
    read::{Form, Reader},
};
use crate::{
    Config, Diagnostics,
    declare::keys,
    fields::Field,
    forms,
    shape::{EMPTY, Shape, each_its_own},
    tree,
};

/// The most servers of one agent.
pub(super) const MAX_SERVERS: usize = 16;

const MAX_ARGS: usize = 32;

/// Patterns of one list.
const MAX_PATTERNS: usize = 64;

/// Bytes of all that a person is asked about one server.
const LONGEST: usize = 600;

const PATTERNS: Shape = Shape::AtMost(MAX_PATTERNS, &Shape::List(&Shape::Text(&forms::PATTERN)));

keys! {
    /// A server of an agent.
    #[derive(PartialEq)]
    pub struct AgentMcpServer in MCP_SERVER("the server") {
        /// The program of a server that is spoken to over its standard streams.
        command (skip_serializing_if = "Option::is_none"): Option<String> => Shape::Text(&forms::NON_EMPTY);
        /// Its arguments.
        args: Vec<String> = EMPTY => Shape::AtMost(MAX_ARGS, &Shape::List(&Shape::Text(&forms::ANY)));
        /// Its variables; `${NAME}` stands for a secret that the manifest lists.
        env: BTreeMap<String, String> = each_its_own() =>
            Shape::Map { key: &forms::VARIABLE, value: &Shape::Text(&forms::ANY) };
        /// Whether the program may use TCP.
        network: bool = false => Shape::Bool;
        /// Whether the program may read and change the workspace.
        workspace: bool = false => Shape::Bool;
        /// The address of a server that is spoken to by HTTP, in place of `command`.
        url (skip_serializing_if = "Option::is_none"): Option<String> => Shape::Text(&forms::NON_EMPTY);
        /// Headers of each request to it; `${NAME}` stands for a secret that the manifest lists.
        headers: BTreeMap<String, String> = each_its_own() =>
            Shape::Map { key: &forms::HEADER, value: &Shape::Text(&forms::ANY) };
        /// Which of its tools the agent has.
        tools: McpServerTools = each_its_own() => Shape::Record(&MCP_SERVER_TOOLS);
        /// Seconds that one call may take.
        timeout_s: u64 = 60 => Shape::Integer { min: 1, max: 3600 };
    }
}

keys! {
    /// Patterns of the names that a server gives its tools.
    #[derive(PartialEq)]
    pub struct McpServerTools in MCP_SERVER_TOOLS("the tools of the server") {
        /// Only these are offered; absent: all of them.
        allow (skip_serializing_if = "Option::is_none"): Option<Vec<String>> => PATTERNS;
        /// These are not offered, whatever `allow` says.
        deny: Vec<String> = EMPTY => PATTERNS;
        /// These change nothing, so that nobody is asked about them.
        read_only: Vec<String> = EMPTY => PATTERNS;
    }
}

impl AgentMcpServer {
    /// What the operator is asked: everything that it is started or reached with, without the values of variables.
    pub fn told(&self) -> String {
        let names = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<Vec<_>>().join(", ");
        let mut told = match (&self.command, &self.url) {
            (Some(command), _) => {
                let words = std::iter::once(command).chain(&self.args);
                let words: Vec<String> = words.map(|word| Value::from(word.as_str()).to_string()).collect();
                format!("the program {}", words.join(" "))
            }
            (None, url) => format!("the address {}", Value::from(url.as_deref().unwrap_or_default())),
        };
        if !self.env.is_empty() {
            told += &format!(", with the variables {}", names(&self.env));
        }
        if !self.headers.is_empty() {
            told += &format!(", with the headers {}", names(&self.headers));
        }
        if self.network {
            told += ", with the network";
        }
        if self.workspace {
            told += ", with the workspace, which it may change";
        }
        if !self.tools.read_only.is_empty() {
            told += &format!(", whose tools {} nobody is asked about", self.tools.read_only.join(", "));
        }
        told
    }
}

impl Manifest {
    /// Its servers as they are started or reached: with the secrets that it lists in place of their names.
    ///
    /// # Errors
    /// Every placeholder without a value.
    pub fn effective_servers(&self, config: &Config) -> Result<BTreeMap<String, Value>, Diagnostics> {
        let Some(node) = &self.located.servers else { return Ok(BTreeMap::new()) };
        let mut faults = Diagnostics::default();
        let resolved = self.resolve(node, "mcp_servers", &config.overlay, &mut faults);
        let all: Map<String, Value> = resolved.to_json_map();
        if faults.has_errors() { Err(faults.sorted()) } else { Ok(all.into_iter().collect()) }
    }
}

impl Reader<'_> {
    pub(super) fn check_servers(&mut self, manifest: &Field<'_>, servers: &BTreeMap<String, AgentMcpServer>) {
        let Some(all) = manifest.get("mcp_servers") else { return };
        if matches!(self.form, Form::Folder) && manifest.get("agent").is_none() {
            let message = "`mcp_servers` are of an agent, and there is no `agent`";
            self.faults.error("servers_without_agent", &all.node.at, "mcp_servers", message).help(
                "add an `agent` section, or name the servers under `extensions.mcp.servers` in drupe.yaml",
            );
        }
        if servers.len() > MAX_SERVERS {
            let message = format!("an agent has at most {MAX_SERVERS} servers");
            self.faults
                .error("too_many_servers", &all.node.at, "mcp_servers", message)
                .help("name the others under `extensions.mcp.servers` in drupe.yaml");
        }
        for entry in all.node.entries() {
            let Some(server) = servers.get(&entry.key) else { continue };
            let path = tree::join("mcp_servers", &entry.key);
            let is_program =
                !server.args.is_empty() || !server.env.is_empty() || server.network || server.workspace;
            let wrong = match (&server.command, &server.url) {
                (None, None) => Some(("it names neither `command` nor `url`", "a server needs one of them")),
                (Some(_), Some(_)) => Some(("it names both `command` and `url`", "leave one of them out")),
                (Some(_), None) if !server.headers.is_empty() => Some((
                    "it has `headers` and a `command`",
                    "headers go with `url`, variables in `env` with `command`",
                )),
                (None, Some(_)) if is_program => Some((
                    "it has a `url` and keys of a program",
                    "`args`, `env`, `network` and `workspace` go with `command`",
                )),
                (None, Some(url)) if !url.starts_with("https://") && !url.starts_with("http://") => {
                    Some(("its `url` is no address of `https` or `http`", "write the whole address"))
                }
                _ if server.told().len() > LONGEST => Some((
                    "there is more of it than somebody reads who is asked about it",
                    "write a program that does it, and name that",
                )),
                _ => None,
            };
            if let Some((why, help)) = wrong {
                let message = format!("`{path}` cannot be used: {why}");
                self.faults.error("invalid_server", &entry.key_at, &path, message).help(help);
            }
        }
        let declared = self.declared(manifest);
        self.check_placeholders(&all.node.clone(), "mcp_servers", &declared);
    }

    fn declared(&self, manifest: &Field<'_>) -> Vec<String> {
        manifest.items("secrets").iter().filter_map(|field| field.node.text().map(str::to_owned)).collect()
    }
}
