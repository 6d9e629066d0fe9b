//! What stands in a measured home's `drupe.yaml`, and how its daemon is started.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::{Value, json};

use crate::process::Cores;

/// Tokens of the model's window and of a run: a thousand agents or messages fit.
const WINDOW: u32 = 10_000_000;

/// What stands in a home's `drupe.yaml`, and how its daemon is started.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `journal.durability`.
    pub durability: &'static str,
    /// Which of the shipped extensions are on.
    pub shipped: Shipped,
    /// What the model is called.
    pub model: &'static str,
    /// What `extensions` says of single ones beside that.
    pub extensions: Vec<(&'static str, Value)>,
    /// `orchestrator.uses_tools`; none: every tool.
    pub tools: Option<Vec<String>>,
    /// The program; none: what was built beside this one.
    pub drupe: Option<PathBuf>,
    /// Where it runs.
    pub cores: Cores,
}

/// Which shipped extensions are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shipped {
    /// All of them, those as well that are off by default. Nobody listens where their services are.
    Everything,
    /// Those that are on by default.
    All,
    Kv,
    None,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            durability: "full",
            shipped: Shipped::All,
            extensions: Vec::new(),
            model: "bench",
            tools: None,
            drupe: None,
            cores: Cores::Any,
        }
    }
}

impl Settings {
    /// With everything that ships, on the core for what is measured.
    pub fn measured(durability: &'static str) -> Self {
        Self { durability, cores: Cores::Measured, ..Self::default() }
    }

    /// The file, for a model that listens at this host and port.
    ///
    /// Nothing that is there to protect people may stand in the way of a measurement: extensions need no agreement,
    /// and sessions wait for the daemon, not for a number.
    pub fn config(&self, address: &str) -> Result<Value> {
        let mut config = json!({
            "approvals": {"preauthorized": "all"},
            "journal": {"durability": self.durability},
            "limits": unlimited(),
            "models": {
                "aliases": {"default": format!("bench/{}", self.model)},
                "profiles": {format!("bench/{}", self.model): {"context_window": WINDOW}},
                "providers": {"bench": {
                    "kind": "openai_chat",
                    "base_url": format!("http://{address}/v1"),
                    "api_key": "none",
                    "concurrency": 1024,
                }},
            },
        });
        config["orchestrator"] = json!({"limits": {"max_tokens_per_invocation": WINDOW}});
        if let Some(tools) = &self.tools {
            config["orchestrator"]["uses_tools"] = json!(tools);
        }
        let on = |id: &str| match self.shipped {
            Shipped::Everything | Shipped::All => true,
            Shipped::Kv => id == "kv",
            Shipped::None => false,
        };
        let off = shipped()?.into_iter().filter(|id| !on(id)).map(|id| (id, json!({"enabled": false})));
        config["extensions"] = Value::Object(off.collect());
        if on("http") {
            // Several daemons are measured side by side.
            config["extensions"]["http"] = json!({"address": "127.0.0.1:0"});
        }
        if self.shipped == Shipped::Everything {
            let nobody = nobody()?;
            for id in shipped()? {
                config["extensions"][&id]["enabled"] = json!(true);
                for (key, value) in service(&id, nobody) {
                    config["extensions"][&id][key] = json!(value);
                }
            }
        }
        for (id, said) in &self.extensions {
            config["extensions"][id] = said.clone();
        }
        Ok(config)
    }
}

/// What an extension with a service elsewhere is told of where that is.
fn service(id: &str, at: SocketAddr) -> Vec<(&'static str, String)> {
    let http = format!("http://{at}");
    match id {
        "telegram" | "slack" => vec![("api", http)],
        "otel" => vec![("endpoint", http)],
        "notify" => vec![("server", http)],
        "email" => vec![
            ("address", "nobody@example.org".into()),
            ("imap", format!("imap+plain://{at}")),
            ("smtp", format!("smtp+plain://{at}")),
            ("authserv_id", "example.org".into()),
        ],
        _ => Vec::new(),
    }
}

/// A host and port at which nobody listens.
fn nobody() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// More than any measurement uses.
fn unlimited() -> Value {
    let much = json!({"max_tokens": 1_000_000_000_000_u64, "max_invocations": 1_000_000_000});
    let at_once = json!({"turns": 10_000, "runs_of_one_agent": 10_000});
    json!({"day": much, "session": much, "agent": much, "concurrency": at_once})
}

/// The ids of the extensions that ship.
fn shipped() -> Result<Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../extensions");
    let names = fs::read_dir(folder)?.flatten().filter(|entry| entry.path().is_dir());
    Ok(names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_and_what_the_orchestrator_has_stand_in_the_file() {
        let config = |shipped, tools| {
            let settings = Settings { shipped, tools, ..Settings::default() };
            settings.config("host:1").expect("a file")
        };
        let kv = config(Shipped::Kv, Some(vec!["kv/kv_get".to_owned()]));
        assert_eq!(kv["extensions"].get("kv"), None);
        assert_eq!(kv["extensions"]["files"]["enabled"], false);
        assert_eq!(kv["orchestrator"]["uses_tools"], json!(["kv/kv_get"]));
        assert_eq!(config(Shipped::All, None)["extensions"], json!({"http": {"address": "127.0.0.1:0"}}));
        assert_eq!(config(Shipped::None, None)["extensions"]["kv"]["enabled"], false);
        let everything = config(Shipped::Everything, None);
        assert_eq!(everything["extensions"]["kv"], json!({"enabled": true}));
        assert_eq!(everything["extensions"]["http"], json!({"address": "127.0.0.1:0", "enabled": true}));
        let api = everything["extensions"]["telegram"]["api"].as_str().expect("an address");
        assert!(api.starts_with("http://127.0.0.1:"), "{api}");
    }
}
