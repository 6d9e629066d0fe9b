//! A client of the Model Context Protocol. Provides the tools of the servers that the operator names, `mcp_resources` and
//! `mcp_prompts` where a server has any, and `mcp_find` with `mcp_call` where there are too many tools to offer each.
//!
//! A server is not trusted: what it says of its tools is text for a model and decides nothing, a description that changes is
//! not offered before the operator has seen it, and what it gives was written by strangers. Programs are started by the kernel,
//! confined. This asks models and people for nothing on behalf of a server.

mod asking;
mod asks;
mod backoff;
mod begin;
mod catalog;
mod client;
mod config;
mod connection;
mod content;
mod definition;
mod instances;
mod load_skill;
mod names;
mod oauth;
mod offer;
mod pins;
mod process;
mod search;
mod servers;
mod skills;
mod tail;
mod tools;

use std::sync::Arc;

use config::McpSettings;
use drupe_extension_api::{prelude::*, wire::AgentServers};
use serde_json::Value;
use servers::Servers;

struct Mcp {
    servers: Arc<Servers>,
}

impl Extension for Mcp {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let settings = McpSettings::read(&host)?;
        Ok(Mcp { servers: Servers::new(host, settings)? })
    }

    /// Nothing is waited for: servers may take their time, and the daemon begins without them.
    async fn start(&self) -> Result<(), Fault> {
        self.servers.begin()
    }

    async fn stop(&self) -> Result<(), Fault> {
        self.servers.instances.clear();
        Ok(())
    }

    /// Nothing is waited for here either.
    async fn agent_servers(&self, given: AgentServers) -> Result<(), Fault> {
        self.servers.serve(&given)
    }

    async fn asked(&self, ask: String, params: Value) -> Result<Value, Fault> {
        asks::answer(&self.servers, &ask, params).await
    }
}

export!(Mcp: Tool);

#[cfg(test)]
mod tests;
