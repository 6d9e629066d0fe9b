//! Holds streams open: events of sessions, and the pipes of programs. For tests of whoever serves them.
//!
//! Its tools begin with the `prefix` of its configuration, so that two of it can stand in one home.

use std::sync::{Mutex, PoisonError};

use drupe_extension_api::{
    control::{EventsSubscribe, method},
    prelude::*,
};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

struct Streams {
    host: Host,
    prefix: String,
    /// What is left open until this instance ends.
    left: Mutex<Vec<Process>>,
}

#[derive(Deserialize)]
struct Config {
    prefix: String,
}

impl Extension for Streams {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let Config { prefix } = host.config()?;
        Ok(Self { host, prefix, left: Mutex::default() })
    }
}

impl ToolProvider for Streams {
    fn tools(&self) -> Vec<Tool<Self>> {
        let name = |name: &str| format!("{}_{name}", self.prefix);
        vec![
            Tool::new(name("events"), "Gives events of a session.", Self::events),
            Tool::new(name("call"), "Asks for a stream as if it had one answer.", Self::call),
            Tool::new(name("many"), "Reads many streams side by side.", Self::many),
            Tool::new(name("fill"), "Opens streams until it may not.", Self::fill),
            Tool::new(name("run"), "Runs a shell and feeds it.", Self::run),
            Tool::new(name("leave"), "Leaves a shell running.", Self::leave),
        ]
    }
}

export!(Streams: Tool);

#[derive(Deserialize, JsonSchema)]
struct Ask {
    /// The session.
    session: String,
    /// How many events are read, of each stream.
    #[serde(default)]
    events: usize,
    /// How many streams there are.
    #[serde(default)]
    streams: usize,
}

#[derive(Deserialize, JsonSchema)]
struct Script {
    /// What the shell runs.
    script: String,
    /// What it is given to read.
    #[serde(default)]
    input: String,
    /// Bytes that are read before it is left alone for a while.
    #[serde(default)]
    first: usize,
    /// Whether it may use the network.
    #[serde(default)]
    network: bool,
    /// Folders that it is to change.
    #[serde(default)]
    folders: Vec<String>,
    /// What else it is to read.
    #[serde(default)]
    read: Vec<String>,
}

impl Streams {
    async fn follow<T: serde::de::DeserializeOwned>(&self, session: &str) -> Result<Items<T>, Fault> {
        let ask = EventsSubscribe { session: SessionId::new(session)?, after: 0, follow: true };
        self.host.open(method::EVENTS_SUBSCRIBE, ask).await
    }

    async fn events(&self, input: Ask, _: Call) -> Result<Vec<Value>, Fault> {
        take(&mut self.follow(&input.session).await?, input.events).await
    }

    async fn call(&self, input: Ask, _: Call) -> Result<Value, Fault> {
        self.host.control(method::EVENTS_SUBSCRIBE, json!({"session": input.session})).await
    }

    /// The first of many is read when all others have come to their end.
    async fn many(&self, input: Ask, _: Call) -> Result<Value, Fault> {
        let opening = (0..input.streams).map(|_| self.follow::<Value>(&input.session));
        let mut streams = try_join_all(opening).await?;
        let mut slow = streams.remove(0);
        let read = try_join_all(streams.iter_mut().map(|stream| numbers(stream, input.events))).await?;
        let slow = take(&mut slow, input.events).await?;
        let expected: Vec<u64> = slow.iter().filter_map(number).collect();
        let same = read.iter().all(|numbers| *numbers == expected);
        Ok(json!({"streams": read.len() + 1, "same": same, "events": slow}))
    }

    async fn fill(&self, input: Ask, _: Call) -> Result<String, Fault> {
        let mut streams = Vec::new();
        loop {
            match self.follow::<Value>(&input.session).await {
                Ok(stream) => streams.push(stream),
                Err(fault) => return Ok(format!("{} streams, then: {fault}", streams.len())),
            }
        }
    }

    fn shell(&self, input: &Script) -> ProcessSpec {
        ProcessSpec {
            args: vec!["-c".into(), input.script.clone()],
            folders: input.folders.clone(),
            read: input.read.clone(),
            network: input.network,
            ..ProcessSpec::new("sh", self.host.data_folder())
        }
    }

    async fn run(&self, input: Script, _: Call) -> Result<Value, Fault> {
        let mut shell = self.host.open_process(&self.shell(&input)).await?;
        if !input.input.is_empty() {
            shell.write(input.input.as_bytes()).await?;
        }
        shell.stdin = None;
        let mut out = Vec::new();
        while out.len() < input.first {
            out.extend(shell.read().await?.unwrap_or_default());
        }
        if input.first > 0 {
            self.host.sleep(std::time::Duration::from_millis(100)).await?;
        }
        out.extend(shell.stdout.read_all(64 << 20).await?);
        let err = shell.stderr.read_all(1 << 20).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(1000)]).into_owned();
        let exit = shell.wait().await?;
        Ok(json!({"bytes": out.len(), "out": text(&out), "err": text(&err), "exit": exit}))
    }

    async fn leave(&self, input: Script, _: Call) -> Result<String, Fault> {
        let mut shell = self.host.open_process(&self.shell(&input)).await?;
        let said = shell.read().await?.unwrap_or_default();
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(shell);
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    }
}

async fn take(stream: &mut Items<Value>, count: usize) -> Result<Vec<Value>, Fault> {
    let mut taken = Vec::new();
    while taken.len() < count
        && let Some(event) = stream.next().await?
    {
        taken.extend(number(&event).is_some().then_some(event));
    }
    Ok(taken)
}

/// The numbers alone: whoever reads a thousand streams keeps no event of them.
async fn numbers(stream: &mut Items<Value>, count: usize) -> Result<Vec<u64>, Fault> {
    let mut taken = Vec::new();
    while taken.len() < count
        && let Some(event) = stream.next().await?
    {
        taken.extend(number(&event));
    }
    Ok(taken)
}

/// The number of a kept event; live ones come to those who are there.
fn number(event: &Value) -> Option<u64> {
    event["seq"].as_u64().filter(|seq| *seq != 0)
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::testing::{FakeProcess, Harness, block_on};

    use super::*;

    #[test]
    fn it_reads_events_and_feeds_programs() {
        let streams = block_on(Harness::<Streams>::start(json!({"prefix": "streams"}))).expect("it starts");
        let host = streams.host();
        let call = |tool, params| block_on(streams.call(tool, params)).expect("it works");
        host.answer_open(
            "events.subscribe",
            Ok(vec![json!({"seq": 1}), json!({"seq": 0}), json!({"seq": 2})]),
        );
        let read = call("streams_events", json!({"session": "s", "events": 9}));
        assert_eq!(read, r#"[{"seq":1},{"seq":2}]"#);
        assert_eq!(host.control_calls()[0].1["follow"], true);
        host.answer_open_process("sh", Ok(FakeProcess::ending(3).stderr(b"no").answers(<[u8]>::to_vec)));
        let ran = call("streams_run", json!({"script": "cat", "input": "abc"}));
        assert!(ran.contains(r#""out":"abc""#) && ran.contains(r#""status":3"#), "{ran}");
        assert_eq!((host.opened_processes()[0].args.len(), host.open_handles()), (2, 0));
        host.answer_open_process("sh", Ok(FakeProcess::ending(0).stdout(b"7\n")));
        assert_eq!(call("streams_leave", json!({"script": "x"})), "7");
        assert_eq!(host.open_handles(), 4, "it stays");
    }
}
