//! A memory in a test, and calls of it.

use drupe_extension_api::{
    Fault, ToolName, ToolResult,
    testing::{Harness, block_on},
    wire::{CallContext, ToolCall, op},
};
use serde_json::{Value, json, value::to_raw_value};

use crate::Memory;

pub struct Scene {
    pub memory: Harness<Memory>,
}

/// Who calls, and from where.
#[derive(Clone, Copy)]
pub struct By {
    pub agent: &'static str,
    pub session: &'static str,
    pub tainted: bool,
}

pub const MAIN: By = By { agent: "orchestrator", session: "main", tainted: false };

pub fn memory(config: Value) -> Scene {
    Scene { memory: block_on(Harness::setup().id("memory").config(config).start()).expect("it starts") }
}

pub fn memory_in(folder: &std::path::Path) -> Scene {
    let started = block_on(Harness::setup().id("memory").data_folder(folder).start());
    Scene { memory: started.expect("it starts") }
}

impl Scene {
    /// One call, with an effect of its own unless it is told.
    pub fn call(&self, by: By, effect: Option<&str>, tool: &str, params: Value) -> Result<ToolResult, Fault> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let context: CallContext = serde_json::from_value(json!({
            "session": by.session, "turn": "turn-1", "agent": by.agent, "base_folder": "", "correlation_id": "c",
            "effect_id": effect.map_or_else(|| format!("effect-{number}"), str::to_owned), "tainted": by.tainted,
        }))
        .expect("a context");
        let params = to_raw_value(&params).expect("JSON");
        let call = ToolCall { name: ToolName::new(tool).expect("a name"), params, context };
        block_on(self.memory.ask(op::TOOL_CALL, &call))
    }

    pub fn says(&self, tool: &str, params: Value) -> String {
        self.call(MAIN, None, tool, params).expect("it works").content
    }

    pub fn save(&self, text: &str) -> String {
        self.says("memory_save", json!({"text": text}))
    }

    pub fn search(&self, query: &str) -> String {
        self.says("memory_search", json!({"query": query}))
    }

    pub fn context(&self, message: &str) -> Option<String> {
        block_on(self.memory.context_for(message)).expect("it works").map(|text| text.text)
    }

    pub fn asks(&self, ask: &str, params: Value) -> Result<Value, Fault> {
        block_on(self.memory.operator_asks(ask, params))
    }

    /// The texts of all facts, the latest first.
    pub fn texts(&self) -> Vec<String> {
        let list = self.asks("list", json!({})).expect("a list");
        let text = |fact: &Value| fact["text"].as_str().expect("text").to_owned();
        list["facts"].as_array().expect("facts").iter().map(text).collect()
    }
}
