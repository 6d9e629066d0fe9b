//! One door for browsers and programs: the control API over HTTP, and what is made of it.
//!
//! It decides nothing about who may do what. Each request bears a token, which goes to the daemon with every call that the
//! request leads to; what its bearer may do is done. What is decided here is what a browser must not be led to: see
//! `origin`.

mod connections;
mod credentials;
#[cfg(test)]
mod document;
mod failure;
mod hooks;
mod origin;
mod routes;
mod server;
mod settings;
mod visitors;

use std::{net::TcpListener, sync::Arc};

use drupe_extension_api::prelude::*;

use self::{server::Server, settings::Settings};

/// The key of the configuration under which the daemon opens the socket.
const ADDRESS: &str = "address";

struct Http {
    server: Arc<Server>,
    socket: TcpListener,
}

impl Extension for Http {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let settings: Settings = host.config()?;
        let socket = host.listener(ADDRESS)?;
        let server = Server::new(host, settings, socket.local_addr()?)?;
        Ok(Self { server: Arc::new(server), socket })
    }

    async fn stop(&self) -> Result<(), Fault> {
        self.server.served().await;
        Ok(())
    }
}

impl Service for Http {
    async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
        connections::serve(Arc::clone(&self.server), self.socket.try_clone()?, shutdown).await
    }
}

export!(Http: Service);
