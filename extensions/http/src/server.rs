//! What all requests share.

use std::net::SocketAddr;

use drupe_extension_api::{
    Event, Fault, FaultCode,
    control::{
        AgentStatus, EventsSubscribe,
        method::{self, TURN_SUBMIT},
    },
    sdk::{Host, Items},
};
use drupe_http_mcp::McpServer;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::watch;

use crate::{credentials::Bearer, hooks::Webhooks, origin::Known, settings::Settings, visitors::Embeds};

pub struct Server {
    pub host: Host,
    pub settings: Settings,
    pub known: Known,
    pub embeds: Embeds,
    pub hooks: Webhooks,
    pub mcp: McpServer,
    closing: watch::Sender<bool>,
    serving: watch::Sender<bool>,
}

/// That connections are served; over when it is dropped.
pub struct Serving<'a>(&'a Server);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.serving.send_replace(false);
    }
}

impl Server {
    /// A server at an address, if it may be one there.
    pub fn new(host: Host, settings: Settings, address: SocketAddr) -> Result<Self, Fault> {
        if !address.ip().is_loopback() && !settings.behind_proxy {
            let message =
                format!("it would listen on {address} without TLS, where others could read the tokens");
            return Err(Fault::new(FaultCode::NotConfigured, message).help(
                "listen on 127.0.0.1, or put a proxy with TLS before it and set `behind_proxy: true` under `extensions.http`",
            ));
        }
        let known = Known::new(address, &settings.hosts, &settings.origins)?;
        let embeds = Embeds::new(&settings.embeds)?;
        let hooks = Webhooks::new(&settings.hooks)?;
        let mcp = McpServer::new(&host, settings.max_body_kb * 1024);
        Ok(Self {
            host,
            settings,
            known,
            embeds,
            hooks,
            mcp,
            closing: watch::Sender::new(false),
            serving: watch::Sender::new(false),
        })
    }

    /// Begins to serve.
    pub fn serve(&self) -> Serving<'_> {
        self.serving.send_replace(true);
        Serving(self)
    }

    /// Tells of hooks whose agent is not there. They are answered all the same: it may come.
    pub async fn look_at_hooks(&self) {
        if self.hooks.is_empty() {
            return;
        }
        let agents: Result<Vec<AgentStatus>, _> = self.host.control(method::AGENTS_LIST, ()).await;
        let Ok(agents) = agents else { return };
        let known: Vec<_> = agents.into_iter().map(|agent| agent.id).collect();
        for (name, agent) in self.hooks.without_agent(&known) {
            self.host.warn(format!(
                "hook `{name}` is for agent `{agent}`, which is not there: its deliveries are refused"
            ));
        }
    }

    /// Resolves when nobody is served any more. What runs would be cut off otherwise: the daemon waits for nothing else.
    pub async fn served(&self) {
        let _ = self.serving.subscribe().wait_for(|serving| !serving).await;
    }

    /// Lets go of whoever waits: the server stops.
    pub fn close(&self) {
        self.closing.send_replace(true);
        self.mcp.close();
    }

    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Resolves when the server stops.
    pub async fn closing(&self) {
        // The sender lives as long as this does.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Calls a method of the control API for whoever asks.
    pub async fn control<R: DeserializeOwned>(
        &self,
        bearer: &Bearer,
        method: &str,
        params: impl Serialize + Send,
    ) -> Result<R, Fault> {
        if let Some(visitor) = bearer.visitor.as_ref().filter(|_| method == TURN_SUBMIT) {
            visitor.writes()?;
        }
        self.host.control_for(Some(&bearer.token), method, params).await
    }

    /// The events of a session, for whoever asks.
    pub async fn events(&self, bearer: &Bearer, ask: EventsSubscribe) -> Result<Items<Event>, Fault> {
        self.host.open_for(Some(&bearer.token), method::EVENTS_SUBSCRIBE, ask).await
    }
}
