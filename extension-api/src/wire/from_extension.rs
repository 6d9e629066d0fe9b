//! Payloads of the operations that an extension calls on the kernel.

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

#[cfg(doc)]
use super::host;
use crate::{
    AgentId, AgentInvocationContext, Definition, Message, ModelParameters, SessionId, ToolName, TurnId,
    wire::{OutwardRequest, Sender},
};

/// Payload of [`host::LOG`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    pub message: String,
}

/// Payload of [`host::EMIT`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Emit {
    /// The topic; the kernel puts the extension's id before it: `<id>.<topic>`.
    pub topic: String,
    pub payload: Value,
}

/// Payload of [`host::TOOL_CALL`].
#[derive(Debug, Serialize, Deserialize)]
pub struct CallTool {
    /// One of the tools that `uses_tools` resolved to.
    pub name: ToolName,
    pub params: Box<RawValue>,
}

/// Payload of [`host::PROGRESS`]. Awaiting its answer is the backpressure: an extension that tells faster than it
/// is heard waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Progress {
    /// The call that goes on.
    pub effect_id: crate::EffectId,
    /// What there is to see: a part of its output.
    pub text: String,
}

/// Payload of [`host::AGENT_RUN`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunAgent {
    /// What runs; its id is the caller's own.
    pub definition: Definition,
    pub task: String,
    /// What it learns of the conversation.
    #[serde(default)]
    pub context: AgentInvocationContext,
    /// Those of the extension's own tools that the run may use.
    #[serde(default)]
    pub own_tools: Vec<ToolName>,
}

/// Payload of [`host::AGENT_INVOKE`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InvokeAgent {
    /// One of `uses_agents`.
    pub agent: AgentId,
    pub task: String,
    /// What it learns of the conversation.
    #[serde(default)]
    pub summary: Option<String>,
}

/// The most texts of one request for vectors.
pub const MOST_EMBEDDED: usize = 64;
/// The most bytes that these have together.
pub const LONGEST_EMBEDDED: usize = 256 << 10;

/// Payload of [`host::EMBED`], on behalf of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbedTexts {
    /// At most [`MOST_EMBEDDED`], of [`LONGEST_EMBEDDED`] bytes together. None is empty.
    pub texts: Vec<String>,
    /// Time for the answer, in milliseconds; what is above 30,000 counts as that.
    pub timeout_ms: u64,
}

/// What [`host::EMBED`] gives to whoever asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbeddedTexts {
    /// A vector of each text, in their order and of one length. They are not normalised.
    pub vectors: Vec<Vec<f32>>,
}

/// An inbound message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Submit {
    /// The channel; an extension can name only its own.
    #[serde(default)]
    pub channel: String,
    /// The channel's id of the message: the same message twice gives one turn.
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub external_id: String,
    /// The conversation; made where it does not exist.
    pub session: SessionId,
    /// Where in the channel the answer goes.
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    #[serde(default)]
    pub address: Option<String>,
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"\S")))]
    pub text: String,
    /// The agent that shall answer.
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// The model that the root of the turn uses in place of its own.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = crate::schema::MODEL)))]
    #[serde(default)]
    pub model: Option<String>,
    /// The form of the answer.
    #[serde(default)]
    pub output: Option<crate::OutputSpec>,
    /// Wall time of the turn, in milliseconds.
    #[serde(default)]
    pub time_budget_ms: Option<u64>,
    /// What becomes of it while another turn of the session runs; none takes `inbox.queue` of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueMode>,
    /// What its client brings along, for this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
    /// Who wrote it, where an extension hands it in that knows. It must, where its manifest has `senders: known`.
    #[cfg_attr(feature = "schema", schemars(skip))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
    /// Files that came with it; only an extension can name some. Each is in the workspace before the message is accepted, and the text
    /// says behind its own where each is, or why it is not.
    #[cfg_attr(feature = "schema", schemars(skip))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<InboundFile>,
}

/// The most files of one message.
pub const MOST_FILES: usize = 10;

/// A file that came with a message. One that is too long, and what is not there within a minute for all files of the message, is told in
/// words in place of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InboundFile {
    /// What whoever sent it calls it. It need not be fit to be a name of a file.
    pub name: String,
    #[serde(flatten)]
    pub source: FileSource,
}

/// How the kernel gets a file that came with a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSource {
    /// It is the answer to this request, sent as [`host::HTTP_SEND`] sends others, so that the extension need not have it. An answer with a
    /// status of 300 to 499 is told in words; what may pass, such as a status above that, 408, 425 or 429, is a fault of the whole message.
    Fetch(OutwardRequest),
    /// The extension has it, as the file of this path in its folder of data. It is copied before [`host::SUBMIT`] returns, and removed by
    /// the extension behind that. What is no file, and what is behind a link, is told in words; where there is nothing, that is a fault of the
    /// whole message.
    DataFile(String),
}

/// What a client brings along that keeps its conversation itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Carried {
    /// Earlier messages of users and of the assistant, in place of what the session has. None of them calls a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<Message>>,
    /// How the model of the root is asked, over what its agent says; nothing that a provider would be given as it is.
    pub parameters: ModelParameters,
    /// Tools that the client runs itself, offered to the root beside its own; at most 128, of 256 KiB together. The turn ends
    /// with the calls of them ([`TurnResult::client_calls`](crate::control::TurnResult::client_calls)).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ClientTool>,
    /// Whether strangers wrote the message: what it then sets off is looked at more closely, for the rest of its session.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
}

/// A tool that a client runs itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClientTool {
    pub name: ToolName,
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its parameters.
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::JsonSchemaText"))]
    pub input_schema: Value,
}

impl Submit {
    /// A message of a conversation. The same `external_id` twice gives one turn. Everything else is as it is for messages
    /// that say nothing of it, and can be set.
    pub fn new(session: SessionId, external_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            channel: String::new(),
            external_id: external_id.into(),
            session,
            address: None,
            text: text.into(),
            agent: None,
            model: None,
            output: None,
            time_budget_ms: None,
            queue: None,
            carried: None,
            sender: None,
            files: Vec::new(),
        }
    }
}

/// What becomes of a message that arrives while another turn of its session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// It is answered when its turn comes.
    #[default]
    Followup,
    /// The running turn takes it in at its next step; it gets no answer of its own. Where no turn runs, or the running
    /// one ends first, it is answered like any other.
    Steer,
    /// The running turn is stopped, and the message is answered when its turn comes.
    Interrupt,
}

/// An inbound message was accepted: it will be answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Submitted {
    /// The turn that answers it.
    pub turn: TurnId,
    /// Whether the message had been accepted before.
    #[serde(default)]
    pub duplicate: bool,
}

/// The longest text beside a file, in bytes. What some services take is longer, and no shorter.
pub const LONGEST_CAPTION: usize = 1024;

/// Payload of [`host::SEND_FILE`]: a file of the workspace goes to whoever wrote in the conversation of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendFile {
    /// The call that sends it: the same one twice sends it once.
    pub effect_id: crate::EffectId,
    /// Where it is, relative to the workspace.
    pub path: String,
    /// What stands beside it, in at most [`LONGEST_CAPTION`] bytes.
    #[serde(default)]
    pub text: String,
    /// SHA-256 of what it must hold, in hex; none where it may hold anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What became of a [`SendFile`], as far as it is known at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum FileSent {
    /// It is sent as a file, as its channel takes it. What changes in the workspace from now on changes nothing of it.
    OnItsWay { channel: String },
    /// The conversation has no channel that takes files: whoever reads it was told where the file is.
    Told,
}

/// Payload of [`host::NOTIFY`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NotifyUser {
    pub text: String,
    /// The conversation to show it in; none means the user's latest.
    #[serde(default)]
    pub session: Option<SessionId>,
}

/// Payload of [`host::RESTART`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RestartRequest {
    /// For the operator and for the session that asked.
    pub reason: String,
}

/// Payload of [`host::CONTROL`] and [`host::CONTROL_OPEN`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ControlCall {
    /// A method of the control API.
    pub method: String,
    #[serde(default)]
    pub params: Box<RawValue>,
    /// The named token of whoever the extension asks for; what both may do is done. Without it the extension asks for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_is_named_as_it_always_was_or_by_where_it_lies() {
        let request = OutwardRequest::new("GET", "https://example.org/a");
        let fetched = json!({"name": "a.pdf", "fetch": request});
        let lies = json!({"name": "a.pdf", "data_file": "in/0"});
        for (written, source) in
            [(fetched, FileSource::Fetch(request)), (lies, FileSource::DataFile("in/0".to_owned()))]
        {
            let file = InboundFile { name: "a.pdf".to_owned(), source };
            assert_eq!(serde_json::to_value(&file).ok(), Some(written.clone()));
            assert_eq!(serde_json::from_str(&written.to_string()).ok(), Some(file));
        }
        assert!(serde_json::from_value::<InboundFile>(json!({"name": "a.pdf"})).is_err());
    }
}
