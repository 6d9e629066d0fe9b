//! Fails in every way that an extension can, as the caller asks: for tests of whoever holds one.
//!
//! Tools named `panic_…`, `hang` and so on fail when they are called; the configuration makes a stage of its
//! life fail. What it does well (`echo`, `sleep50`, `slow`, `big`) is there to be measured and cancelled.

mod effect;
mod leak;
mod more;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::{ScopeKind, prelude::*};
use serde_json::Value;

struct Faulty {
    host: Host,
    config: Config,
    healthy: AtomicBool,
    more: Mutex<Vec<more::More>>,
}

/// Nothing fails without configuration.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// `initialize` ends with a fault.
    fail_initialize: bool,
    /// `initialize` panics.
    panic_initialize: bool,
    /// `initialize` never ends.
    hang_initialize: bool,
    /// `start` ends with a fault.
    fail_start: bool,
    /// Naming the tools panics.
    panic_describe_tools: bool,
    /// `stop` never ends.
    hang_stop: bool,
    /// Health begins as bad.
    unhealthy: bool,
    /// What the names of its tools begin with, in place of `faulty`.
    prefix: Option<String>,
    /// The tool that appends needs approval.
    careful: bool,
    /// What `echo` and `effect_append` say of themselves.
    labels: BTreeMap<String, Vec<String>>,
    /// Further tools.
    tools: Vec<more::More>,
}

impl Extension for Faulty {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let config: Config = host.config()?;
        if config.fail_initialize {
            return Err(Fault::new(FaultCode::NotConfigured, "the configuration says `fail_initialize`"));
        }
        assert!(!config.panic_initialize, "the configuration says `panic_initialize`");
        if config.hang_initialize {
            std::future::pending::<()>().await;
        }
        let more = Mutex::new(config.tools.clone());
        Ok(Faulty { healthy: AtomicBool::new(!config.unhealthy), more, host, config })
    }

    async fn start(&self) -> Result<(), Fault> {
        match self.config.fail_start {
            true => Err(Fault::new(FaultCode::Other, "the configuration says `fail_start`")),
            false => Ok(()),
        }
    }

    async fn stop(&self) -> Result<(), Fault> {
        if self.config.hang_stop {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn health(&self) -> Result<(), Fault> {
        match self.healthy.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Fault::new(FaultCode::Unavailable, "it was told to be unhealthy")),
        }
    }
}

impl ToolProvider for Faulty {
    fn tools(&self) -> Vec<Tool<Self>> {
        assert!(!self.config.panic_describe_tools, "the configuration says `panic_describe_tools`");
        let prefix = self.config.prefix.as_deref().unwrap_or("faulty");
        let name = |what: &str| format!("{prefix}_{what}");
        let mut tools = vec![
            self.labelled(
                "echo",
                Tool::new(name("echo"), "Gives back its parameters.", Faulty::echo).read_only(),
            ),
            Tool::new(name("sleep50"), "Takes 50 ms.", Faulty::sleep50).read_only(),
            Tool::new(name("slow"), "Takes some time.", Faulty::slow).read_only(),
            Tool::new(name("big"), "Gives a long text.", Faulty::big).read_only(),
            Tool::new(name("error"), "Ends with a fault.", Faulty::error),
            Tool::new(name("hang"), "Never ends; can be cancelled.", Faulty::hang),
            Tool::new(name("panic"), "Panics at once.", Faulty::panic),
            Tool::new(name("panic_later"), "Panics after it has waited.", Faulty::panic_later),
            Tool::new(name("panic_task"), "Panics in a task of its own.", Faulty::panic_task),
            Tool::new(name("panic_drop"), "Hangs, and panics when it is cancelled.", Faulty::panic_drop),
            Tool::new(name("block"), "Blocks the thread that polls it.", Faulty::block),
            Tool::new(name("abort"), "Ends the process by a signal.", Faulty::abort),
            Tool::new(name("restart"), "Asks for a restart, not on behalf of the call.", Faulty::restart),
            Tool::new(name("progress"), "Tells three parts of its output.", Faulty::progress).read_only(),
            Tool::new(name("set_health"), "Sets what health says.", Faulty::set_health).idempotent(),
            match self.config.careful {
                true => self.append(name("effect_append")).needs_approval(),
                false => self.labelled("effect_append", self.append(name("effect_append"))),
            },
            Tool::new(name("leak"), "Tells a text, by one way or another.", Faulty::leak),
            Tool::new(name("send"), "Has a request sent.", Faulty::send).outward(),
            Tool::new(name("embed"), "Has vectors made of texts.", Faulty::embed).read_only(),
            Tool::new(name("announce"), "Has other tools from now on.", Faulty::announce),
        ];
        let more = self.more();
        tools.extend(more.iter().filter_map(|one| Some(Tool::dynamic(one.spec().ok()?, Faulty::answer))));
        tools
    }
}

impl Faulty {
    /// A tool that says of itself what the configuration lists for it.
    fn labelled(&self, what: &str, tool: Tool<Self>) -> Tool<Self> {
        let labels = self.config.labels.get(what).map(Vec::as_slice).unwrap_or_default();
        labels.iter().fold(tool, |tool, label| match label.as_str() {
            "outward" => tool.outward(),
            "reads_untrusted" => tool.reads_untrusted(),
            "destructive" => tool.destructive(),
            "folder" => tool.approval_scope("path", ScopeKind::Folder, &[]),
            other => panic!("the configuration says `{other}` of a tool"),
        })
    }
}

export!(Faulty: Tool);

#[derive(Deserialize, JsonSchema)]
struct Milliseconds {
    /// How long.
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Bytes {
    /// How many.
    bytes: usize,
}

#[derive(Deserialize, JsonSchema)]
struct Sent {
    method: String,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Option<String>,
    timeout_ms: u64,
    /// Whether the query and the body are filled.
    #[serde(default)]
    fill: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Texts {
    texts: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Healthy {
    /// Whether it is well.
    ok: bool,
}

/// Any object.
#[derive(Deserialize, Serialize, JsonSchema)]
struct Anything {
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("it was dropped");
    }
}

impl Faulty {
    fn append(&self, name: String) -> Tool<Self> {
        Tool::new(name, "Appends a line to a file, then waits for another file.", effect::append).once()
    }

    fn more(&self) -> MutexGuard<'_, Vec<more::More>> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn echo(&self, input: Anything, _: Call) -> Result<Anything, Fault> {
        Ok(input)
    }

    async fn sleep50(&self, _: NoInput, _: Call) -> Result<&'static str, Fault> {
        self.host.sleep(Duration::from_millis(50)).await?;
        Ok("slept")
    }

    async fn slow(&self, input: Milliseconds, _: Call) -> Result<&'static str, Fault> {
        self.host.sleep(Duration::from_millis(input.ms)).await?;
        Ok("slept")
    }

    async fn big(&self, input: Bytes, _: Call) -> Result<String, Fault> {
        Ok("x".repeat(input.bytes))
    }

    async fn send(&self, input: Sent, _: Call) -> Result<String, Fault> {
        let Sent { method, url, headers, body, timeout_ms, fill } = input;
        let headers = headers.into_iter().collect();
        let (fill_query, fill_body) = (fill, fill);
        let form = Vec::new();
        let request = OutwardRequest {
            method,
            url,
            headers,
            body,
            form,
            timeout_ms,
            fill_path: fill,
            fill_query,
            fill_body,
        };
        let answer = self.host.send(&request).await?;
        let told = format!("{:?} {}", answer.headers, answer.body);
        // Backwards as well, in which nobody on its way finds a secret that this code was given.
        let backwards: String = told.chars().rev().collect();
        Ok(format!("{} {told} {backwards}", answer.status))
    }

    async fn embed(&self, input: Texts, call: Call) -> Result<String, Fault> {
        let vectors = call.embed(input.texts, 60_000).await?;
        Ok(format!("{} of {} numbers", vectors.len(), vectors.first().map_or(0, Vec::len)))
    }

    async fn error(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        Err(Fault::new(FaultCode::Other, "it was told to fail").help("do not call it"))
    }

    async fn hang(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        std::future::pending().await
    }

    async fn panic(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        panic!("it was told to panic")
    }

    async fn panic_later(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        self.host.sleep(Duration::from_millis(1)).await?;
        panic!("it was told to panic later")
    }

    async fn panic_task(&self, _: NoInput, _: Call) -> Result<&'static str, Fault> {
        self.host.spawn(async { panic!("a task was told to panic") })?;
        Ok("spawned")
    }

    async fn panic_drop(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        let _held = PanicsInDrop;
        std::future::pending().await
    }

    #[expect(clippy::unused_async, reason = "it is the point: it blocks where it should wait")]
    async fn block(&self, input: Milliseconds, _: Call) -> Result<&'static str, Fault> {
        std::thread::sleep(Duration::from_millis(input.ms));
        Ok("blocked")
    }

    async fn abort(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        std::process::abort()
    }

    async fn restart(&self, _: NoInput, _: Call) -> Result<&'static str, Fault> {
        self.host.request_restart("it felt like it").await?;
        Ok("asked")
    }

    async fn progress(&self, _: NoInput, call: Call) -> Result<&'static str, Fault> {
        for part in ["one", "two", "three"] {
            call.progress(part).await?;
        }
        Ok("one two three")
    }

    async fn set_health(&self, input: Healthy, _: Call) -> Result<(), Fault> {
        self.healthy.store(input.ok, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
