//! What one call to an extension costs, in the same process and in one of its own: bytes over the frozen table or over
//! a socket, JSON on both sides.

use std::{collections::BTreeMap, path::Path, time::Instant};

use abi_stable::{
    sabi_trait::TD_Opaque,
    std_types::{RString, RVec},
};
use anyhow::{Result, anyhow, ensure};
use async_ffi::{FfiFuture, FutureExt};
use drupe_blame::Page;
use drupe_confine::Profile;
use drupe_extension_abi::{CallHeader, Host, Host_TO, Reply};
use drupe_extension_api::{
    AgentId, CorrelationId, EffectId, ExtensionId, Fault, SessionId, ToolName, ToolResult, TurnId,
    wire::{CallContext, Initialize, ToolCall, op},
};
use drupe_host::{Code, Header, HostProcess, Instance, Place};
use drupe_redact::Redactor;
use serde_json::{Map, Value, json, value::RawValue};

use crate::{
    process::{Cores, built},
    report::{Row, Unit, median, part},
};

/// Calls of one series; of the series' figures the median counts.
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
    // As in the kernel, where each entry into an extension's code is noted.
    drupe_blame::install(Page::create()?.fd().try_clone_to_owned()?)?;
    let mut rows = Vec::new();
    let places = [
        ("in process", true, Cores::Any, 5.0),
        ("to a process of its own", false, Cores::Any, 60.0),
        // Waking a process elsewhere takes longer than the call where cores sleep, as virtual ones do.
        ("to a process of its own, all on one core", false, Cores::Measured, 60.0),
    ];
    for (place, here, cores, target) in places {
        let _held = cores.hold()?;
        // As in the kernel: whoever calls runs on a worker, and so does what reads from a process.
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let folder = tempfile::tempdir()?;
        let path = folder.path().to_owned();
        let measured = runtime.spawn(async move { calls(&path, here).await });
        let [empty, texts, nested] = runtime.block_on(measured)??;
        let show = |value| Unit::Micros.show(value);
        let what = format!("boundary call {place}, 1 KiB of JSON each way, parsed");
        rows.push(Row::most(what, texts.median, Unit::Micros, target).beside(format!(
            "99 of 100 within {}; without parameters {}; as forty small nested fields {}",
            show(texts.p99),
            show(empty.median),
            show(nested.median)
        )));
    }
    Ok(rows)
}

/// Microseconds of the calls of some series.
struct Taken {
    median: f64,
    p99: f64,
}

/// Calls without parameters, with some texts, and with many small fields.
async fn calls(folder: &Path, here: bool) -> Result<[Taken; 3]> {
    let id = ExtensionId::new("faulty")?;
    let code = Code {
        id: id.clone(),
        file: built("libfaulty.so")?,
        hash: "0".repeat(64),
        listening: Vec::new(),
        redactor: Redactor::default(),
    };
    let host = Host_TO::from_value(Nothing, TD_Opaque);
    let place = if here { Place::Inproc } else { apart(&code, folder)? };
    let (instance, _) = drupe_host::open(code, place, host).await?;
    let path = folder.display().to_string();
    let initialize = Initialize {
        id,
        config: Map::new(),
        secrets: Map::new(),
        data_folder: path.clone(),
        folder: path.clone(),
        workspace: path.clone(),
        agent: None,
        resolved_tools: Vec::new(),
        program_folders: Vec::new(),
        embedding_model: None,
        listening: Vec::new(),
    };
    ask::<Value>(&instance, op::INITIALIZE, &initialize).await?;
    ask::<Value>(&instance, op::START, &()).await?;
    let taken = [
        series(&instance, &echo(json!({}), path.clone())?).await?,
        series(&instance, &echo(texts(), path.clone())?).await?,
        series(&instance, &echo(nested(), path)?).await?,
    ];
    instance.close().await;
    Ok(taken)
}

/// A process as the kernel starts one; what the machine cannot enforce is left out.
fn apart(code: &Code, folder: &Path) -> Result<Place> {
    let exe = built("drupe")?;
    let profile = Profile::program().read(&exe).read(&code.file).write(folder);
    Ok(Place::Process(HostProcess { exe, profile, env: BTreeMap::new(), directory: folder.to_owned() }))
}

/// The medians of the figures of some series.
async fn series(instance: &Instance, call: &ToolCall) -> Result<Taken> {
    let (mut medians, mut p99s) = (Vec::new(), Vec::new());
    for _ in 0..SERIES {
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let began = Instant::now();
            let result = instance.call::<ToolResult>(op::TOOL_CALL, call, header()).await;
            times.push(began.elapsed().as_secs_f64() * 1e6);
            let result = result.map_err(|fault| anyhow!("{fault}"))?;
            ensure!(result.content.len() == call.params.get().len(), "a bad echo: {}", result.content);
        }
        p99s.push(part(&mut times, 0.99));
        medians.push(median(times));
    }
    Ok(Taken { median: median(medians), p99: median(p99s) })
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
            on_behalf_of: Vec::new(),
            agent,
            base_folder: folder,
            deadline: None,
            remaining_tokens: Some(50_000),
            correlation_id: CorrelationId::new("correlation")?,
            effect_id: EffectId::new("effect")?,
            tainted: false,
            shown: None,
            given: None,
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
