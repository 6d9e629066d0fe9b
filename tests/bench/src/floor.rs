//! The floor: the same model calls, streamed with reqwest on one thread, JSON written and read, and nothing else.
//!
//! What a turn cannot do without. No journal, no events, no budget, no schema: the distance from here is what drupe
//! costs. Its requests bear one tool and a short prompt.

use std::{
    io::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use tokio::task::JoinSet;

use crate::{
    process::{Cores, Role, own_cpu_ms},
    report::part,
    turns::Work,
};

/// The argument that makes this program a floor.
pub const ROLE: &str = "--as-floor";

/// What a series of turns took.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Taken {
    /// Processor time a turn.
    pub cpu_ms: f64,
    /// Turns a second.
    pub a_second: f64,
    /// Wall time that half of the turns stay below.
    pub p50_ms: f64,
    /// Wall time that 99 of 100 turns stay below.
    pub p99_ms: f64,
    /// Wall time of the fastest.
    pub min_ms: f64,
}

impl Taken {
    /// From the processor and wall time of all turns and the time of each.
    #[expect(clippy::cast_precision_loss, reason = "thousands of turns")]
    pub fn new(cpu_ms: f64, wall: Duration, mut each_ms: Vec<f64>) -> Self {
        let turns = each_ms.len() as f64;
        Self {
            cpu_ms: cpu_ms / turns,
            a_second: turns / wall.as_secs_f64(),
            p50_ms: part(&mut each_ms, 0.5),
            p99_ms: part(&mut each_ms, 0.99),
            min_ms: part(&mut each_ms, 0.0),
        }
    }
}

/// Measures so many turns of one conversation after another, in a process of its own.
pub fn measure(address: &str, work: Work, turns: usize) -> Result<Taken> {
    run(&[ROLE, address, work.name(), "1", &turns.to_string()])
}

/// Measures many conversations at once, each for so many turns.
pub fn measure_at_once(address: &str, work: Work, sessions: usize, turns: usize) -> Result<Taken> {
    run(&[ROLE, address, work.name(), &sessions.to_string(), &turns.to_string()])
}

fn run(arguments: &[&str]) -> Result<Taken> {
    Ok(serde_json::from_str(&Role::start(Cores::Measured, arguments)?.line()?)?)
}

/// Runs the turns and prints what they took.
pub fn main(arguments: &[String]) -> Result<()> {
    let [address, work, sessions, turns] = arguments else { anyhow::bail!("four arguments are needed") };
    let work = Work::of(&format!("bench-{work}")).context("a kind of turn")?;
    let (sessions, turns) = (sessions.parse()?, turns.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let taken = runtime.block_on(async {
        let floor = Arc::new(Floor::new(address)?);
        conversations(&floor, work, sessions, turns / 10 + 1).await?;
        let (cpu, began) = (own_cpu_ms(), Instant::now());
        let each = conversations(&floor, work, sessions, turns).await?;
        anyhow::Ok(Taken::new(own_cpu_ms() - cpu, began.elapsed(), each))
    })?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&taken)?)?;
    Ok(())
}

/// The time of each turn, in milliseconds.
async fn conversations(floor: &Arc<Floor>, work: Work, sessions: usize, turns: usize) -> Result<Vec<f64>> {
    let mut all = JoinSet::new();
    for _ in 0..sessions {
        let floor = Arc::clone(floor);
        all.spawn(async move {
            let mut each = Vec::with_capacity(turns);
            for _ in 0..turns {
                let began = Instant::now();
                let answer = floor.agent(work.text().to_owned()).await?;
                ensure!(!answer.is_empty(), "an empty answer");
                each.push(began.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(each)
        });
    }
    let mut each = Vec::new();
    while let Some(one) = all.join_next().await {
        each.extend(one??);
    }
    Ok(each)
}

struct Floor {
    client: reqwest::Client,
    url: String,
    tools: Box<RawValue>,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'static str,
    stream: bool,
    tools: &'a RawValue,
    messages: &'a [Message],
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

#[derive(Serialize)]
struct Call {
    id: String,
    r#type: &'static str,
    function: Function,
}

#[derive(Serialize, Default)]
struct Function {
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<CallDelta>,
}

#[derive(Deserialize)]
struct CallDelta {
    index: usize,
    #[serde(default)]
    id: Option<String>,
    function: FunctionDelta,
}

#[derive(Deserialize)]
struct FunctionDelta {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: String,
}

fn message(role: &'static str, content: String) -> Message {
    Message { role, content, tool_calls: Vec::new(), tool_call_id: None }
}

impl Floor {
    fn new(address: &str) -> Result<Self> {
        // Whoever was first decides for the process; there is only this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client =
            reqwest::Client::builder().tcp_nodelay(true).no_proxy().tls_certs_only(Vec::new()).build()?;
        let schema =
            json!({"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]});
        let tool = json!([{"type": "function", "function": {
            "name": "kv_get", "description": "Gets the value under a key.", "parameters": schema,
        }}]);
        let url = format!("http://{address}/v1/chat/completions");
        Ok(Self { client, url, tools: RawValue::from_string(tool.to_string())? })
    }

    /// One conversation to its end: the last text.
    fn agent(&self, task: String) -> BoxFuture<'_, Result<String>> {
        let system = "You are an assistant. Answer briefly.".to_owned();
        let mut messages = vec![message("system", system), message("user", task)];
        async move {
            loop {
                let answer = self.ask(&messages).await?;
                if answer.tool_calls.is_empty() {
                    return Ok(answer.content);
                }
                let mut results = Vec::new();
                for call in &answer.tool_calls {
                    let content = self.call(&call.function).await?;
                    results.push(Message { tool_call_id: Some(call.id.clone()), ..message("tool", content) });
                }
                messages.push(answer);
                messages.extend(results);
            }
        }
        .boxed()
    }

    async fn call(&self, function: &Function) -> Result<String> {
        #[derive(Deserialize)]
        struct Task {
            task: String,
        }
        if function.name.starts_with("agent_") {
            return self.agent(serde_json::from_str::<Task>(&function.arguments)?.task).await;
        }
        let _: serde_json::Value = serde_json::from_str(&function.arguments)?;
        Ok("42".to_owned())
    }

    async fn ask(&self, messages: &[Message]) -> Result<Message> {
        let body = Request { model: "bench", stream: true, tools: &self.tools, messages };
        let body = serde_json::to_vec(&body)?;
        let request = self.client.post(&self.url).header("content-type", "application/json");
        let response = request.bearer_auth("none").body(body).send().await?.error_for_status()?;
        let mut stream = response.bytes_stream();
        let (mut buffer, mut answer) = (Vec::new(), message("assistant", String::new()));
        while let Some(bytes) = stream.next().await {
            buffer.extend_from_slice(&bytes?);
            let mut read = 0;
            while let Some(length) = buffer[read..].iter().position(|byte| *byte == b'\n') {
                let line = &buffer[read..read + length];
                read += length + 1;
                match line.strip_prefix(b"data: ") {
                    Some(data) if data != b"[DONE]" => take(&mut answer, serde_json::from_slice(data)?)?,
                    _ => {}
                }
            }
            buffer.drain(..read);
        }
        Ok(answer)
    }
}

/// Adds one chunk to the answer.
fn take(answer: &mut Message, chunk: Chunk) -> Result<()> {
    for Choice { delta } in chunk.choices {
        answer.content.push_str(delta.content.as_deref().unwrap_or_default());
        for part in delta.tool_calls {
            if let Some(id) = part.id {
                answer.tool_calls.push(Call { id, r#type: "function", function: Function::default() });
            }
            let call = answer.tool_calls.get_mut(part.index).context("a call that did not begin")?;
            call.function.name.push_str(part.function.name.as_deref().unwrap_or_default());
            call.function.arguments.push_str(&part.function.arguments);
        }
    }
    Ok(())
}
