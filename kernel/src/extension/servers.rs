//! The MCP servers of agents: the extension that speaks with servers is told of those that the manifests of working agents
//! name. What an agent may be offered of them is decided where everything is wired.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use drupe_config::Secret;
use drupe_extension_api::{
    AgentId,
    wire::{AgentServers, op},
};
use drupe_host::{Header, Instance};
use drupe_wiring::MCP;
use serde_json::Value;
use tokio::sync::Mutex;

use super::{Roster, state::State};

/// How long it may take to note them. It does not wait for the servers.
const NOTE: Duration = Duration::from_secs(30);

/// What was told last, and to which instance.
#[derive(Default)]
pub struct ToldServers(Mutex<Option<(Weak<Instance>, AgentServers)>>);

/// Tells it, where it works and was told something else. Nobody waits for that.
pub fn tell(roster: &Arc<Roster>) {
    let Some(Some(instance)) = roster.working(MCP) else { return };
    let roster = Arc::clone(roster);
    roster.clone().life.tasks.spawn(async move {
        // One after another, each with what holds by then.
        let mut told = roster.servers.0.lock().await;
        let now = AgentServers { agents: served(&roster) };
        let same = |(to, what): &(Weak<Instance>, AgentServers)| {
            to.upgrade().is_some_and(|to| Arc::ptr_eq(&to, &instance)) && *what == now
        };
        // A new instance knows of none.
        if told.as_ref().is_some_and(same) || told.is_none() && now.agents.is_empty() {
            return;
        }
        let header = Header { timeout: Some(NOTE), ..Header::default() };
        match instance.call::<Value>(op::AGENT_SERVERS, &now, header).await {
            Ok(_) => *told = Some((Arc::downgrade(&instance), now)),
            Err(fault) => {
                *told = None;
                tracing::error!(%fault, "the MCP servers of agents are not known to `{MCP}`");
            }
        }
    });
}

/// The servers of the agents that work.
fn served(roster: &Roster) -> BTreeMap<AgentId, BTreeMap<String, Value>> {
    let working = |r: &super::Record| {
        let manifest = r.manifest.as_ref().filter(|_| r.state == State::Active)?;
        (!manifest.mcp_servers.is_empty()).then(|| Arc::clone(manifest))
    };
    let manifests = roster.extensions.read(working).into_iter().flatten();
    let config = &roster.base.config;
    let resolved = manifests.filter_map(|manifest| {
        if let Ok(secrets) = manifest.resolve_secrets(&config.overlay) {
            roster.base.redactor.learn(secrets.values().map(Secret::expose));
        }
        match manifest.effective_servers(config) {
            Ok(servers) => {
                servers
                    .values()
                    .filter_map(Value::as_object)
                    .for_each(|server| roster.base.redactor.learn_named(server));
                Some((manifest.id.clone().into(), servers))
            }
            Err(faults) => {
                tracing::error!(extension = %manifest.id, "{}", faults.render(false).trim_end());
                None
            }
        }
    });
    resolved.collect()
}
