//! The door for browsers and programs: who is let in, what they reach, and what a browser cannot be led to.

mod access;
pub mod client;
mod client_tools;
pub mod embeds;
mod events;
mod gates;
pub mod hooks;
mod leaving;
mod mcp;
mod mcp_connections;
mod rest;
mod sockets;
mod stdio;
mod vendors;

use serde_json::json;

use self::client::Door;
use crate::harness::{Daemon, model_server::ModelServer, until};

/// A daemon with an agent, whose door is open.
fn daemon(more: &str) -> (ModelServer, Daemon) {
    let server = ModelServer::obedient();
    let daemon = daemon_with(&server, &[], more);
    (server, daemon)
}

/// The same with another model, and with variables.
fn daemon_with(server: &ModelServer, variables: &[(&str, &str)], more: &str) -> Daemon {
    let mut daemon = Daemon::home(&format!("{}{more}", server.config()));
    variables.iter().for_each(|(name, value)| daemon.variable(name, value));
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ENABLED", "true");
    daemon.variable("DRUPE_EXTENSIONS__HTTP__ADDRESS", "127.0.0.1:0");
    for id in ["haiku", "other"] {
        let manifest = format!(
            "id: {id}\nname: Agent\ndescription: Answers.\nagent: {{model: default, instructions: \"Answer.\"}}\n"
        );
        daemon.write(&format!("extensions/{id}/manifest.yaml"), &manifest);
    }
    daemon.run();
    daemon
}

/// The door of a daemon.
pub fn door(daemon: &Daemon) -> Door {
    let listening = || {
        let shown = daemon.client().ask("extensions.show", json!({"id": "http"})).ok()?;
        shown["listening"][0].as_str()?.parse().ok()
    };
    Door::at(until("the door is open", listening).unwrap_or_else(|| panic!("{}", daemon.log())))
}

/// A token made with the command line.
fn token(daemon: &Daemon, args: &[&str]) -> String {
    daemon.says(&[&["token", "new"], args].concat()).trim().to_owned()
}
