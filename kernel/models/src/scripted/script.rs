//! A script: its file, and which entry answers.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use drupe_agent::{ModelFault, ModelRequest, StopReason, Usage, prompt::task_of};
use drupe_extension_api::{AgentId, FailureClass, Message, ToolName};
use regex::Regex;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use crate::source;

/// Bytes of a script at most.
const MOST: u64 = 16 << 20;

/// How much of a text goes into a message.
const SHOWN: usize = 120;

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScriptError {
    #[error("script {file}: {source}")]
    Read { file: String, source: std::io::Error },
    #[error("script {file}: {text}")]
    Parse { file: String, text: String },
}

/// Entries in order, and which of them are used up.
pub(crate) struct Script {
    entries: Vec<Arc<Entry>>,
    used: Mutex<Vec<bool>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    #[serde(default)]
    expect: Expect,
    step: Option<usize>,
    #[serde(default)]
    repeat: bool,
    #[serde(default)]
    pub(super) delay_ms: u64,
    pub(super) reasoning: Option<String>,
    pub(super) text: Option<String>,
    pub(super) chunk: Option<usize>,
    #[serde(default)]
    pub(super) tool_calls: Vec<ScriptedCall>,
    usage: Option<ScriptedUsage>,
    stop: Option<ScriptedStop>,
    pub(super) fault: Option<ScriptedFault>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    agent: Option<AgentId>,
    contains: Option<String>,
    #[serde(default, deserialize_with = "expression")]
    tool_result: Option<Regex>,
    #[serde(default)]
    tools: Vec<ToolName>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedCall {
    pub(super) name: String,
    #[serde(default)]
    arguments: Value,
}

impl ScriptedCall {
    /// Text as it is, so that a script can write what is not JSON.
    pub(super) fn arguments(&self) -> String {
        match &self.arguments {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScriptedUsage {
    input_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    reasoning_tokens: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptedStop {
    End,
    ToolCalls,
    Length,
    Filter,
    Refusal,
}

impl Entry {
    /// Why the answer stops. What was cut off gives no calls out, as at every provider.
    pub(super) fn ends(&self) -> StopReason {
        let dropped_calls = u32::try_from(self.tool_calls.len()).unwrap_or(u32::MAX);
        match self.stop {
            Some(ScriptedStop::Length) => StopReason::Length { dropped_calls },
            Some(ScriptedStop::Filter) => StopReason::Filter { dropped_calls },
            Some(ScriptedStop::Refusal) => StopReason::Refusal { dropped_calls },
            Some(ScriptedStop::End | ScriptedStop::ToolCalls) | None if dropped_calls > 0 => {
                StopReason::ToolCalls
            }
            Some(ScriptedStop::ToolCalls) => StopReason::ToolCalls,
            Some(ScriptedStop::End) | None => StopReason::End,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedFault {
    class: FailureClass,
    message: String,
    #[serde(default)]
    retriable: bool,
    retry_after_ms: Option<u64>,
    #[serde(default)]
    pub(super) after_chunks: usize,
}

impl ScriptedFault {
    pub(super) fn model_fault(&self, model: &str) -> ModelFault {
        ModelFault {
            retry_after_ms: self.retry_after_ms,
            retriable: self.retriable,
            ..ModelFault::fatal(self.class, format!("`{model}`: {}", self.message))
        }
    }
}

fn expression<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Regex>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| Regex::new(&text).map_err(D::Error::custom)).transpose()
}

impl Entry {
    pub(super) fn usage(&self) -> Option<Usage> {
        self.usage.map(|u| Usage {
            input_tokens: u.input_tokens,
            cached_tokens: u.cached_tokens,
            output_tokens: u.output_tokens,
            reasoning_tokens: u.reasoning_tokens,
            ..Usage::default()
        })
    }

    /// Size of all that it gives.
    pub(super) fn bytes(&self) -> usize {
        let texts = [&self.text, &self.reasoning].into_iter().flatten().map(String::len);
        let calls = self.tool_calls.iter().map(|call| call.name.len() + call.arguments().len());
        texts.chain(calls).sum()
    }

    fn fits(&self, request: &ModelRequest) -> bool {
        let expect = &self.expect;
        self.step.is_none_or(|step| step == source::step(&request.messages))
            && expect.agent.as_ref().is_none_or(|agent| *agent == request.agent.id)
            && expect.contains.as_ref().is_none_or(|part| latest_task(request).contains(part.as_str()))
            && expect
                .tool_result
                .as_ref()
                .is_none_or(|regex| results(request).any(|text| regex.is_match(text)))
            && expect.tools.iter().all(|name| request.tools.iter().any(|tool| tool.name == *name))
    }

    /// What an entry waits for, for people.
    fn describe(&self) -> String {
        let expect = &self.expect;
        let parts = [
            self.step.map(|step| format!("step {step}")),
            expect.agent.as_ref().map(|agent| format!("agent `{agent}`")),
            expect.contains.as_ref().map(|part| format!("a task with {:?}", shown(part))),
            expect.tool_result.as_ref().map(|regex| format!("a result like {:?}", regex.as_str())),
            (!expect.tools.is_empty()).then(|| format!("the tools {:?}", expect.tools)),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "anything".to_owned() } else { parts.join(", ") }
    }
}

fn latest_task(request: &ModelRequest) -> &str {
    let user = request.messages.iter().rev().find_map(|m| match &**m {
        Message::User { content } => Some(task_of(content)),
        _ => None,
    });
    user.unwrap_or_default()
}

/// The results that came since the last answer.
fn results(request: &ModelRequest) -> impl Iterator<Item = &str> {
    request.messages.iter().rev().map_while(|m| match &**m {
        Message::Tool { content, .. } => Some(content.as_str()),
        _ => None,
    })
}

/// The text of a file. A pipe would be waited for, and a device may have no end.
fn text(path: &Path) -> io::Result<String> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut text = String::new();
    File::open(path)?.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::Error::other(format!("it is larger than {MOST} bytes")));
    }
    Ok(text)
}

impl Script {
    /// Reads a file. Blocks; scripts are small and read once.
    pub(crate) fn read(path: &Path) -> Result<Self, ScriptError> {
        let file = path.display().to_string();
        match text(path) {
            Ok(text) => Self::parse(&file, &text),
            Err(source) => Err(ScriptError::Read { file, source }),
        }
    }

    /// Takes a script's text. Errors name line and column.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, ScriptError> {
        let wrong = |text: String| ScriptError::Parse { file: file.to_owned(), text };
        let entries: Vec<Arc<Entry>> = serde_yaml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        for (n, entry) in entries.iter().enumerate() {
            if entry.fault.is_some() && !entry.tool_calls.is_empty() {
                return Err(wrong(format!(
                    "entry {} has tool_calls beside a fault: they would never be made",
                    n + 1
                )));
            }
            if entry.step == Some(0) || entry.chunk == Some(0) {
                return Err(wrong(format!("entry {}: step and chunk count from 1", n + 1)));
            }
        }
        let used = Mutex::new(vec![false; entries.len()]);
        Ok(Self { entries, used })
    }

    /// The entry that answers, used up if it can be; else what was asked and what is left.
    pub(super) fn take(&self, request: &ModelRequest) -> Result<Arc<Entry>, String> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let found =
            self.entries.iter().zip(used.iter_mut()).find(|(entry, used)| !**used && entry.fits(request));
        if let Some((entry, used)) = found {
            *used = !entry.repeat && entry.step.is_none();
            return Ok(Arc::clone(entry));
        }
        let left: Vec<String> = self
            .entries
            .iter()
            .enumerate()
            .filter(|(n, _)| !used[*n])
            .map(|(n, entry)| format!("{}. {}", n + 1, entry.describe()))
            .collect();
        let asked = format!(
            "no entry of the script answers step {} of agent `{}` on {:?}",
            source::step(&request.messages),
            request.agent.id,
            shown(latest_task(request)),
        );
        let result =
            results(request).next().map(|text| format!(" after {:?}", shown(text))).unwrap_or_default();
        let left = if left.is_empty() { "none".to_owned() } else { left.join("; ") };
        Err(format!("{asked}{result}; entries left: {left}"))
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
