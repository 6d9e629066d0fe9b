//! Runs a service, which ends late or computes without end as the configuration says: for tests of what holds one.

use std::{hint::black_box, thread, time::Duration};

use drupe_extension_api::prelude::*;

struct Serving {
    host: Host,
    config: Config,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// How long the service goes on after it was told to end.
    linger_ms: u64,
    /// Threads that compute without end as soon as it runs.
    spinning: usize,
}

impl Extension for Serving {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Self { config: host.config()?, host })
    }
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

impl ToolProvider for Serving {
    fn tools(&self) -> Vec<Tool<Self>> {
        vec![
            Tool::new("serving_abort", "Ends its process.", Self::abort).once(),
            Tool::new("serving_hello", "Answers.", Self::hello).read_only(),
        ]
    }
}

export!(Serving: Tool, Service);

impl Serving {
    async fn abort(&self, _: NoInput, _: Call) -> Result<(), Fault> {
        std::process::abort()
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
