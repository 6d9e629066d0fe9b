//! What one call to an extension in the same process costs: bytes over the frozen table, JSON on both sides.

use std::time::Instant;

use abi_stable::{
    sabi_trait::TD_Opaque,
    std_types::{RString, RVec},
};
use anyhow::{Result, anyhow, ensure};
use async_ffi::{FfiFuture, FutureExt};
use drupe_extension_abi::{CallHeader, Host, Host_TO, HostBox, Reply};
use drupe_extension_api::{
    AgentId, CorrelationId, EffectId, ExtensionId, Fault, SessionId, ToolName, ToolResult, TurnId,
    wire::{CallContext, Initialize, ToolCall, op},
};
use drupe_kernel::extension::{
    instance::{Header, Instance},
    library::PluginLibrary,
};
use serde_json::{Map, Value, json, value::RawValue};

use crate::{
    process::built,
    report::{Row, Unit, median},
};

/// Calls of one series; the median of the series' medians counts.
const CALLS: usize = 20_000;
const SERIES: usize = 5;

/// Length of the parameters and of the result.
const BYTES: usize = 1024;

/// A kernel that can do nothing: `faulty_echo` asks it for nothing.
#[derive(Clone)]
struct Nothing;

impl Host for Nothing {
    fn describe(&self) -> RVec<u8> {
        json!({"payload_version": 1, "release": env!("CARGO_PKG_VERSION")}).to_string().into_bytes().into()
    }

    fn call(&self, _: CallHeader, operation: RString, _: RVec<u8>) -> FfiFuture<Reply> {
        let fault = Fault::unsupported(operation.as_str());
        let body = serde_json::to_vec(&fault).unwrap_or_default().into();
        std::future::ready(Reply { status: Reply::FAULT, body }).into_ffi()
    }

    fn close(&self) {}
}

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let host: HostBox = Host_TO::from_value(Nothing, TD_Opaque);
    let table = PluginLibrary::open(&built("libfaulty.so")?)?.instance(host);
    let instance = Instance::new(ExtensionId::new("faulty")?, table);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let folder = tempfile::tempdir()?;
        let path = folder.path().display().to_string();
        let initialize = Initialize {
            id: ExtensionId::new("faulty")?,
            config: Map::new(),
            secrets: Map::new(),
            data_folder: path.clone(),
            folder: path.clone(),
            workspace: path.clone(),
            agent: None,
            resolved_tools: Vec::new(),
        };
        ask::<Value>(&instance, op::INITIALIZE, &initialize).await?;
        ask::<Value>(&instance, op::START, &()).await?;
        let mut medians = Vec::new();
        for params in [json!({}), texts(), nested()] {
            medians.push(series(&instance, &echo(params, path.clone())?).await?);
        }
        let show = |value| Unit::Micros.show(value);
        let [empty, texts, nested] = medians[..] else { return Ok(Vec::new()) };
        Ok(vec![
            Row::most("boundary call in process, 1 KiB of JSON each way, parsed", texts, Unit::Micros, 5.0)
                .beside(format!(
                    "without parameters {}; as forty small nested fields {}",
                    show(empty),
                    show(nested)
                )),
        ])
    })
}

/// The median of the medians of some series.
async fn series(instance: &Instance, call: &ToolCall) -> Result<f64> {
    let mut medians = Vec::new();
    for _ in 0..SERIES {
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let began = Instant::now();
            let result = instance.call::<ToolResult>(op::TOOL_CALL, call, header()).await;
            times.push(began.elapsed().as_secs_f64() * 1e6);
            let result = result.map_err(|fault| anyhow!("{fault}"))?;
            ensure!(result.content.len() == call.params.get().len(), "a bad echo: {}", result.content);
        }
        medians.push(median(times));
    }
    Ok(median(medians))
}

/// As most tools are called: some texts.
fn texts() -> Value {
    let text = "a text of some length ".repeat(BYTES / 64);
    let fields =
        ["path", "title", "body", "note"].map(|name| (name.to_owned(), Value::from(&text[..BYTES / 4 - 12])));
    Value::Object(fields.into_iter().collect())
}

/// As much in small pieces, the worst for a reader of JSON.
fn nested() -> Value {
    let pieces = (0..BYTES / 25).map(|at| (format!("field_{at:02}"), json!({"x": at % 10, "on": 1})));
    Value::Object(pieces.collect())
}

async fn ask<R: serde::de::DeserializeOwned>(
    instance: &Instance,
    operation: &'static str,
    payload: &impl serde::Serialize,
) -> Result<R> {
    instance
        .call(operation, payload, Header::default())
        .await
        .map_err(|fault| anyhow!("{operation}: {fault}"))
}

fn header() -> Header<'static> {
    Header { token: "0123456789abcdef0123456789abcdef", trace: "0123456789abcdef", timeout: None }
}

/// A call as the kernel makes it.
fn echo(params: Value, folder: String) -> Result<ToolCall> {
    let agent = AgentId::new("orchestrator")?;
    Ok(ToolCall {
        name: ToolName::new("faulty_echo")?,
        params: RawValue::from_string(params.to_string())?,
        context: CallContext {
            session: SessionId::new("session")?,
            turn: TurnId::new("turn")?,
            call_path: vec![agent.clone()],
            agent,
            base_folder: folder,
            deadline: None,
            remaining_tokens: Some(50_000),
            correlation_id: CorrelationId::new("correlation")?,
            effect_id: EffectId::new("effect")?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_parameters_have_about_the_length_that_they_stand_for() {
        for params in [texts(), nested()] {
            let length = params.to_string().len();
            assert!(length.abs_diff(BYTES) < BYTES / 10, "{length}: {params}");
        }
    }
}
