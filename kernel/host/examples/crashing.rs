//! An extension that ends its process in every way that `tests/plugins/faulty` does not, and calls the kernel back.

use std::{hint::black_box, time::Duration};

use drupe_extension_api::prelude::*;

struct Crashing {
    host: Host,
}

impl Extension for Crashing {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Self { host })
    }

    async fn stop(&self) -> Result<(), Fault> {
        Ok(())
    }
}

impl ToolProvider for Crashing {
    fn tools(&self) -> Vec<Tool<Self>> {
        let tool = |name: &str| format!("crashing_{name}");
        vec![
            Tool::new(tool("segfault"), "Reads where nothing is.", Crashing::segfault),
            Tool::new(tool("exit"), "Exits with a status.", Crashing::exit),
            Tool::new(tool("overflow"), "Calls itself for ever.", Crashing::overflow),
            Tool::new(tool("eat"), "Takes memory.", Crashing::eat),
            Tool::new(tool("thread"), "Crashes on a thread of its own, after the call.", Crashing::thread),
            Tool::new(tool("spin"), "Never gives its thread back.", Crashing::spin),
            Tool::new(tool("ask"), "Calls a tool of somebody else.", Crashing::ask),
            Tool::new(tool("wait"), "Calls a tool of somebody else that does not answer.", Crashing::wait),
            Tool::new(tool("emit"), "Tells the kernel something of a size.", Crashing::emit),
            Tool::new(tool("burst"), "Calls the kernel many times at once.", Crashing::burst),
            Tool::new(tool("gather"), "Calls a tool with a long answer many times.", Crashing::gather),
            Tool::new(tool("chatter"), "Logs lines.", Crashing::chatter),
            Tool::new(tool("complain"), "Writes lines to the standard error stream.", Crashing::complain),
        ]
    }
}

impl Service for Crashing {
    async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
        shutdown.await;
        Ok(())
    }
}

export!(Crashing: Tool, Service);

#[derive(Deserialize, JsonSchema)]
struct Number {
    /// How many, or which.
    number: usize,
}

fn deeper(depth: u64) -> u64 {
    let room = black_box([depth; 512]);
    if depth == u64::MAX { 0 } else { deeper(depth + 1) + room[(depth % 512) as usize] }
}

#[derive(Deserialize, JsonSchema)]
struct Burst {
    /// How many.
    number: usize,
    /// How long each takes.
    ms: u64,
}

impl Crashing {
    async fn segfault(&self, _: NoInput, _: Call) -> Result<u8, Fault> {
        crash();
        Ok(0)
    }

    async fn exit(&self, input: Number, _: Call) -> Result<(), Fault> {
        std::process::exit(i32::try_from(input.number).unwrap_or(1))
    }

    async fn overflow(&self, _: NoInput, _: Call) -> Result<u64, Fault> {
        Ok(deeper(0))
    }

    async fn eat(&self, input: Number, _: Call) -> Result<usize, Fault> {
        Ok(black_box(vec![1_u8; input.number]).len())
    }

    async fn thread(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            crash();
        });
        Ok(())
    }

    async fn spin(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        loop {
            std::hint::spin_loop();
        }
    }

    async fn ask(&self, _: NoInput, call: Call) -> Result<String, Fault> {
        Ok(call.call_tool("other", &serde_json::json!({"a": 1})).await?.content)
    }

    async fn wait(&self, _: NoInput, call: Call) -> Result<String, Fault> {
        Ok(call.call_tool("never", &serde_json::json!({})).await?.content)
    }

    async fn emit(&self, input: Number, _: Call) -> Result<(), Fault> {
        self.host.emit("size", &"x".repeat(input.number)).await
    }

    async fn burst(&self, input: Burst, _: Call) -> Result<usize, Fault> {
        let calls: Vec<_> =
            (0..input.number).map(|_| self.host.sleep(Duration::from_millis(input.ms))).collect();
        let results = futures_util::future::join_all(calls).await;
        Ok(results.into_iter().filter(Result::is_ok).count())
    }

    async fn gather(&self, input: Number, call: Call) -> Result<String, Fault> {
        let nothing = serde_json::json!({});
        let calls = (0..input.number).map(|_| call.call_tool("long", &nothing));
        let results = futures_util::future::join_all(calls).await;
        let busy = results.iter().filter(|r| r.as_ref().is_err_and(|fault| fault.code == FaultCode::Busy));
        Ok(format!("{} {}", results.iter().filter(|r| r.is_ok()).count(), busy.count()))
    }

    async fn chatter(&self, input: Number, _: Call) -> Result<(), Fault> {
        for number in 0..input.number {
            self.host.info(number);
        }
        Ok(())
    }

    async fn complain(&self, input: Number, _: Call) -> Result<(), Fault> {
        use std::io::Write as _;
        for number in 0..input.number {
            writeln!(std::io::stderr(), "complaint {number}")?;
        }
        Ok(())
    }
}

/// Reads where nothing is.
fn crash() {
    let nowhere = black_box(std::ptr::without_provenance::<u8>(8));
    // SAFETY: none: this is what it is for. The address is never mapped, so that the process ends here.
    black_box(unsafe { nowhere.read_volatile() });
}
