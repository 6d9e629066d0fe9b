//! What a tool says of itself, and what it gives back.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{AgentId, ImageData, ToolName};

/// What a model and the kernel need to know of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Unique among all that one agent can see.
    pub name: ToolName,
    /// For the model: what it does and when to use it.
    pub description: String,
    /// JSON Schema of the parameters; the kernel validates every call against it.
    pub input_schema: Value,
    /// Text added to the instructions of an agent that has this tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// How the kernel may run it.
    #[serde(default)]
    pub annotations: ToolAnnotations,
}

/// How a tool behaves; the defaults assume the worst.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolAnnotations {
    pub read_only: bool,
    /// Whether a call whose outcome is unknown may run again.
    pub effect: EffectClass,
    /// May destroy what cannot be restored.
    pub destructive: bool,
    /// Reaches beyond this machine.
    pub outward: bool,
    /// Its results may hold text written by strangers.
    pub reads_untrusted: bool,
    /// Runs alone within its step.
    pub exclusive: bool,
    /// How much of the session's gate of 16 a running call takes; 1 to 16.
    pub weight: u32,
    /// How a call is shown in events.
    pub item: ItemKind,
    /// The operator must agree to every call.
    pub needs_approval: bool,
    /// What a call keeps is given to models in other conversations.
    pub remembers: bool,
    /// It can say what a call would change, without changing anything.
    #[serde(skip_serializing_if = "is_false")]
    pub previews: bool,
    /// A person must fill in something before a call runs: what, its preview says ([`ToolPreview::input`]). No rule and no
    /// mode lets such a call run without its question.
    #[serde(skip_serializing_if = "is_false")]
    pub needs_input: bool,
    /// Strangers wrote what this says of the tool, and nobody has looked at it.
    #[serde(skip_serializing_if = "is_false")]
    pub described_by_strangers: bool,
    /// The agent for whose servers this speaks. It is offered to that one alone, and without being listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_for: Option<AgentId>,
    /// The system confines each call that leaves these parameters out, or false: it changes nothing but the workspace, and has
    /// no network. The mode `on-failure` lets such calls run without asking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confined_without: Option<Vec<String>>,
    /// What an agreement for the rest of a conversation is about, beside the tool: none where it is about all of its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_scope: Option<ApprovalScope>,
    /// Deadline of one call in milliseconds; none takes the agent's `tool_timeout_ms`.
    pub timeout_ms: Option<u64>,
}

/// The parameter that says what a call reaches, and how much like it an agreement is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalScope {
    /// The name of the parameter, at the top of the tool's input.
    pub param: String,
    /// How its text is read for that.
    pub kind: ScopeKind,
    /// Parameters that must be the same as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same: Vec<String>,
}

/// How a parameter is read for what an agreement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeKind {
    /// A path: all in its folder.
    Folder,
    /// An address: all of its scheme, host and port.
    Host,
    /// A command line: the same program with the same sub-command, and where that is not plain the same command line.
    Command,
    /// Any text: calls with the very same one.
    Exact,
}

impl Default for ToolAnnotations {
    fn default() -> Self {
        Self {
            read_only: false,
            effect: EffectClass::Once,
            destructive: false,
            outward: false,
            reads_untrusted: false,
            exclusive: false,
            weight: 1,
            item: ItemKind::ToolCall,
            needs_approval: false,
            remembers: false,
            previews: false,
            needs_input: false,
            described_by_strangers: false,
            only_for: None,
            confined_without: None,
            approval_scope: None,
            timeout_ms: None,
        }
    }
}

/// What may happen to a call that was interrupted before its result was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// No effect: runs again.
    Pure,
    /// Running twice is the same as once: runs again, with the same effect id.
    Idempotent,
    /// Never silently run twice: `lookup` is asked, else the outcome is recorded as unknown.
    #[default]
    Once,
}

/// How a tool call appears among the items of an event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// The final or intermediate text of an agent.
    AgentMessage,
    Reasoning,
    CommandExecution,
    FileChange,
    #[default]
    ToolCall,
    /// A tool of an MCP server.
    McpToolCall,
    TodoList,
    /// A failure that belongs to no other item.
    Error,
}

/// What a tool call gave: text for the model, and pictures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolResult {
    /// Text, or JSON as text.
    pub content: String,
    /// It holds text of strangers, although the tool's results need not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub untrusted: bool,
    /// Pictures that the model is shown with the text: at most [`IMAGES_PER_RESULT`](crate::IMAGES_PER_RESULT). In place of one
    /// that cannot be taken ([`look_at_image`](crate::look_at_image)) the text says why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageData>,
}

/// What a tool says that a call would change: text for the person who is asked whether it may run. The tool may have changed
/// nothing by it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolPreview {
    /// What would change, such as a unified diff; of a longer one the first [`ToolPreview::MAX`] bytes are shown.
    pub text: String,
    /// Stands for what `text` says. The call gets it back ([`CallContext::shown`](crate::wire::CallContext::shown)), and must not
    /// change anything where it would be another one by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// What the person shall fill in, where an agreement alone is not enough: a JSON Schema of one flat object, whose
    /// properties are texts, numbers, truth values, or choices among texts. One with `writeOnly: true` is a secret: its name is
    /// that of the variable as which it is kept, and the call learns only that it is. What is filled in comes to the call as
    /// [`CallContext::given`](crate::wire::CallContext::given).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

impl ToolPreview {
    /// Bytes of a text that are shown: some hundred lines, which somebody can still read before they answer.
    pub const MAX: usize = 32 << 10;
    /// The longest seal that is kept, in bytes: enough for a hash with what it is of.
    pub const LONGEST_SEAL: usize = 256;
}

fn is_false(value: &bool) -> bool {
    !value
}
