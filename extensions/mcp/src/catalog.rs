//! Which tools are offered, under which names, and as what. Pure.
//!
//! What a server says of the behaviour of its tools decides nothing: each is taken for one that reads what strangers wrote,
//! reaches out, must not run twice and is asked about, unless the operator says that it only reads.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use drupe_extension_api::{EffectClass, ToolAnnotations, prelude::*};
use serde_json::{Value, json};

use crate::{
    config::{McpSettings, ServerSettings},
    definition::ToolText,
    names,
    pins::{KnownServer, KnownServers},
    skills,
};

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTool {
    pub server: String,
    pub tool: String,
}

/// What can be called at the moment, by the names under which it is offered.
#[derive(Debug, Default)]
pub struct Catalog {
    pub tools: BTreeMap<String, ServerTool>,
    /// Servers whose skills can be loaded, by the name of the tool that does it.
    pub skills: BTreeMap<String, String>,
    /// Tools whose name looks like that of another one, with that name.
    pub clashes: Vec<(ServerTool, String)>,
    /// Servers that have resources, and that have prompts.
    pub resources: Vec<String>,
    pub prompts: Vec<String>,
}

/// Whether a server is used: the operator wants it, and it is the one that was agreed to.
pub fn is_used(server: &ServerSettings, known: &KnownServer) -> bool {
    server.enabled && known.definition == server.definition()
}

/// Whether a server is the operator's, and no agent's own.
pub fn is_shared(settings: &McpSettings, name: &str) -> bool {
    settings.servers.get(name).is_some_and(|server| server.only_for.is_none())
}

impl Catalog {
    pub fn new(settings: &McpSettings, state: &KnownServers) -> Self {
        let mut catalog = Self::default();
        let mut taken = BTreeMap::<String, String>::new();
        // Those of the operator take their names first.
        let (own, of_agents): (Vec<_>, Vec<_>) =
            settings.servers.iter().partition(|(_, server)| server.only_for.is_none());
        for (name, server) in own.into_iter().chain(of_agents) {
            let Some(known) = state.servers.get(name).filter(|known| is_used(server, known)) else {
                continue;
            };
            let shared = server.only_for.is_none();
            if known.resources && shared {
                catalog.resources.push(name.clone());
            }
            if known.prompts && shared {
                catalog.prompts.push(name.clone());
            }
            // Before its own tools, so that what somebody allows of this one is never one of those.
            if server.skills && known.skills.declared {
                let offered = names::offered(name, names::LOAD_SKILL);
                if let Entry::Vacant(free) = taken.entry(names::looks(&offered)) {
                    free.insert(offered.clone());
                    if !state.refused.contains_key(&offered) {
                        catalog.skills.insert(offered, name.clone());
                    }
                }
            }
            for tool in known.agreed.keys().filter(|tool| known.stands(tool) && server.tools.admits(tool)) {
                let target = ServerTool { server: name.clone(), tool: tool.clone() };
                let offered = names::offered(name, tool);
                match taken.entry(names::looks(&offered)) {
                    Entry::Occupied(other) => catalog.clashes.push((target, other.get().clone())),
                    Entry::Vacant(free) => {
                        free.insert(offered.clone());
                        if !state.refused.contains_key(&offered) {
                            catalog.tools.insert(offered, target);
                        }
                    }
                }
            }
        }
        catalog
    }

    /// Whether there are so many tools that they are searched for.
    pub fn is_searched(&self, settings: &McpSettings) -> bool {
        self.shared(settings).count() > settings.search_above
    }

    /// The tools that are of no agent's servers.
    pub fn shared<'a>(
        &'a self,
        settings: &'a McpSettings,
    ) -> impl Iterator<Item = (&'a String, &'a ServerTool)> {
        self.tools.iter().filter(|(_, target)| is_shared(settings, &target.server))
    }

    /// The tools as they are offered one by one.
    pub fn specs(&self, settings: &McpSettings, state: &KnownServers) -> Vec<ToolSpec> {
        let spec = |(offered, target): (&String, &ServerTool)| {
            let server = settings.servers.get(&target.server)?;
            let known = state.servers.get(&target.server)?;
            let definition = known.agreed.get(&target.tool)?;
            Some(ToolSpec {
                name: ToolName::new(offered).ok()?,
                description: described(target, definition),
                input_schema: definition.schema.clone(),
                instructions: None,
                annotations: ToolAnnotations {
                    only_for: server.only_for.clone(),
                    described_by_strangers: known.unread.contains(&target.tool),
                    ..annotations(settings, server, &target.tool)
                },
            })
        };
        let skills = |(offered, name): (&String, &String)| {
            let server = settings.servers.get(name)?;
            let known = &state.servers.get(name)?.skills;
            Some(ToolSpec {
                name: ToolName::new(offered).ok()?,
                description: skills::described(name, known),
                input_schema: schema_of_skills(),
                instructions: None,
                annotations: ToolAnnotations {
                    only_for: server.only_for.clone(),
                    described_by_strangers: known.unread().next().is_some(),
                    // By the protocol nothing changes where something is read.
                    read_only: true,
                    effect: EffectClass::Pure,
                    outward: server.reaches_out(),
                    reads_untrusted: true,
                    item: ItemKind::McpToolCall,
                    // What is asked of the server before and after the file is read.
                    timeout_ms: Some(longest(settings, server) + 4 * milliseconds(server.timeout())),
                    ..ToolAnnotations::default()
                },
            })
        };
        self.skills.iter().filter_map(skills).chain(self.tools.iter().filter_map(spec)).collect()
    }
}

fn schema_of_skills() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The skill, by its name or its whole address."},
            "file": {"type": "string", "description": "The path of a file of the skill."},
        },
        "additionalProperties": false,
    })
}

/// Whose words a description is has to be seen by whoever reads it.
fn described(target: &ServerTool, definition: &ToolText) -> String {
    let ServerTool { server, tool } = target;
    match definition.description.trim() {
        "" => format!("The tool `{tool}` of the MCP server `{server}`, which says nothing of it."),
        text => format!("From the MCP server `{server}`: {text}"),
    }
}

fn annotations(settings: &McpSettings, server: &ServerSettings, tool: &str) -> ToolAnnotations {
    let usual = ToolAnnotations {
        reads_untrusted: true,
        item: ItemKind::McpToolCall,
        timeout_ms: Some(longest(settings, server)),
        ..ToolAnnotations::default()
    };
    match server.tools.read_only(tool) {
        // A program without the network cannot carry anything away by being asked.
        true => ToolAnnotations {
            read_only: true,
            effect: EffectClass::Pure,
            outward: server.reaches_out(),
            ..usual
        },
        false => ToolAnnotations { outward: true, needs_approval: true, effect: EffectClass::Once, ..usual },
    }
}

/// Milliseconds of a call with a start before it, by the one way and by the other, so that a fault says which it was.
pub fn longest(settings: &McpSettings, server: &ServerSettings) -> u64 {
    milliseconds(server.timeout() + settings.start() * 3 + Duration::from_secs(10))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
