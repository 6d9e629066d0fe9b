//! Tools to be measured: `slow` takes 50 ms, and as many others as the configuration says stand in a request.
//!
//! It does nothing else, so that what is measured is the way to a tool and not the tool.

use std::time::Duration;

use drupe_extension_api::prelude::*;

/// What `slow` waits.
const SLOW: Duration = Duration::from_millis(50);

struct BenchTools {
    host: Host,
    config: Config,
}

/// Only `slow` without configuration.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// How many tools there are beside `slow`.
    records: usize,
}

impl Extension for BenchTools {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        Ok(Self { config: host.config()?, host })
    }
}

impl ToolProvider for BenchTools {
    fn tools(&self) -> Vec<Tool<Self>> {
        let record = |at| {
            let what = format!("Looks up record number {at} of the table and gives its fields as text.");
            Tool::new(format!("record_{at}"), what, Self::record).read_only()
        };
        let slow = Tool::new("slow", "Does slow work number i.", Self::slow).read_only();
        std::iter::once(slow).chain((0..self.config.records).map(record)).collect()
    }
}

export!(BenchTools: Tool);

#[derive(Deserialize, JsonSchema)]
struct Number {
    i: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Record {
    key: String,
    limit: u64,
}

impl BenchTools {
    async fn slow(&self, input: Number, _: Call) -> Result<String, Fault> {
        self.host.sleep(SLOW).await?;
        Ok(input.i.to_string())
    }

    async fn record(&self, input: Record, _: Call) -> Result<String, Fault> {
        Ok(format!("{} of {}", input.limit, input.key))
    }
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::testing::{Harness, block_on};
    use serde_json::json;

    use super::*;

    #[test]
    fn there_are_as_many_records_as_the_configuration_says() {
        let bench = block_on(Harness::<BenchTools>::start(json!({"records": 2}))).expect("it starts");
        let call = |tool, params| block_on(bench.call(tool, params)).ok();
        assert_eq!(call("slow", json!({"i": 7})), Some("7".to_owned()));
        assert_eq!(call("record_1", json!({"key": "a", "limit": 3})), Some("3 of a".to_owned()));
        assert_eq!(call("record_2", json!({"key": "a", "limit": 3})), None);
    }
}
