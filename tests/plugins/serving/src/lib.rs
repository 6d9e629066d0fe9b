//! Runs a service, which ends late or computes without end, and is a channel, which may take no message to its end, as the
//! configuration says: for tests of what holds others up.

use std::{
    fs::{self, OpenOptions},
    hint::black_box,
    io::Write as _,
    thread,
    time::Duration,
};

use drupe_extension_api::{prelude::*, wire::Carried};
use serde_json::{Value, json};

struct Serving {
    host: Host,
    config: Config,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Those who are known: the kernel reads it, not the channel.
    #[serde(rename = "allowed")]
    _allowed: Option<Vec<Value>>,
    /// How long the service goes on after it was told to end.
    linger_ms: u64,
    /// What the names of its tools begin with, in place of `serving`.
    prefix: Option<String>,
    /// Whether it shows answers while they are made.
    streams: bool,
    /// Whether it shows nothing of an answer before `go` lies in its data folder.
    dawdles: bool,
    /// Whether a message that it is given never arrives.
    holds: bool,
    /// Threads that compute without end as soon as it runs.
    spinning: usize,
}

impl Extension for Serving {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Self { config: host.config()?, host })
    }

    /// Somebody writes in the channel: a message of that id, in that conversation.
    async fn asked(&self, ask: String, params: Value) -> Result<Value, Fault> {
        match ask.as_str() {
            "hear" => self.hear(serde_json::from_value(params)?).await,
            "stop" => {
                let Heard { session, sender, .. } = serde_json::from_value(params)?;
                Ok(json!(self.host.stop_session(session, sender).await?))
            }
            _ => Err(Fault::unsupported(&ask)),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Heard {
    session: SessionId,
    #[serde(default)]
    id: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    untrusted: bool,
    #[serde(default)]
    sender: Option<Sender>,
}

impl Service for Serving {
    async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
        for _ in 0..self.config.spinning {
            thread::Builder::new().spawn(spin)?;
        }
        shutdown.await;
        self.host.sleep(Duration::from_millis(self.config.linger_ms)).await
    }
}

fn spin() {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

impl Channel for Serving {
    /// Writes the message into `asked` of its data folder, and into `sent` when it has arrived, where it is called like its
    /// text. All that arrived stand in `all`, as JSON, a line each.
    async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        let folder = self.host.data_folder();
        fs::write(folder.join("asked"), &message.text)?;
        if self.config.holds {
            std::future::pending::<()>().await;
        }
        fs::write(folder.join("sent"), &message.text)?;
        let mut all = OpenOptions::new().create(true).append(true).open(folder.join("all"))?;
        all.write_all(format!("{}\n", json!(message.text)).as_bytes())?;
        Ok(Delivery { remote_id: Some(message.text) })
    }

    /// Keeps in `shown` of its data folder what somebody saw who looked at the message: what was void is struck out.
    async fn stream(&self, ChannelStream { part, .. }: ChannelStream) -> Result<(), Fault> {
        if !self.config.streams {
            return Err(Fault::unsupported("channel.stream"));
        }
        let folder = self.host.data_folder();
        while self.config.dawdles && matches!(part, StreamPart::Delta { .. }) && !folder.join("go").exists() {
            self.host.sleep(Duration::from_millis(5)).await?;
        }
        let file = folder.join("shown");
        let shown = match part {
            StreamPart::Begin => String::new(),
            StreamPart::Delta { text } => fs::read_to_string(&file)? + &text,
            StreamPart::Reset => format!("~{}~", fs::read_to_string(&file)?),
            StreamPart::Status { .. } => return Ok(()),
            StreamPart::End => fs::read_to_string(&file)? + ".",
        };
        Ok(fs::write(file, shown)?)
    }
}

impl ToolProvider for Serving {
    fn tools(&self) -> Vec<Tool<Self>> {
        let prefix = self.config.prefix.as_deref().unwrap_or("serving");
        vec![
            Tool::new(format!("{prefix}_abort"), "Ends its process.", Self::abort).once(),
            Tool::new(format!("{prefix}_hello"), "Answers.", Self::hello).read_only(),
            Tool::new(format!("{prefix}_wonder"), "Asks a person for a color.", Self::wonder).once(),
        ]
    }
}

export!(Serving: Tool, Service, Channel);

impl Serving {
    /// Hands a message in; of somebody who is not known, what they are to be shown.
    async fn hear(&self, heard: Heard) -> Result<Value, Fault> {
        let Heard { session, id, text, untrusted, sender } = heard;
        let carried = untrusted.then(|| Carried { untrusted, ..Carried::default() });
        let message = Submit { carried, sender: sender.clone(), ..Submit::new(session, id, text) };
        match (self.host.submit(message).await, sender) {
            (Err(fault), Some(sender)) if fault.code == FaultCode::Unauthenticated => {
                Ok(json!(self.host.admit(&sender).await?))
            }
            (submitted, _) => Ok(json!(submitted?)),
        }
    }

    async fn abort(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        std::process::abort()
    }

    async fn wonder(&self, _: NoInput, call: Call) -> Result<String, Fault> {
        let schema = json!({"type": "object", "properties": {"color": {"type": "string"}}});
        Ok(json!(call.request_input("Which color?", &schema).await?).to_string())
    }

    async fn hello(&self, _: NoInput, _: Call) -> Result<&'static str, Fault> {
        Ok("hello")
    }
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::testing::{Harness, block_on};
    use serde_json::json;

    use super::*;

    #[test]
    fn it_serves_until_it_is_told_to_end() {
        let serving: Harness<Serving> = block_on(Harness::start(json!({}))).expect("it starts");
        assert_eq!(block_on(serving.call("serving_hello", json!({}))).as_deref(), Ok("hello"));
        assert!(block_on(serving.stop()).is_ok());
        assert!(block_on(serving.run_service()).is_ok());
    }
}
