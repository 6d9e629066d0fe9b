//! What a client asks, in drupe's terms: the same [`Ask`] whichever format it came in.

use drupe_extension_api::{
    AgentId, Format, Message, ModelParameters, OutputSpec, SessionId, ToolCallRequest, ToolName, ToolSpec,
    ToolStatus, TurnId,
};
use serde_json::json;

use crate::{Rejection, fields::Node, rejection::clip};

/// The model that stands for the orchestrator; every other model is an agent of that id.
pub const ORCHESTRATOR: &str = "drupe";

/// Bytes that count as one token where nobody has counted: the same guess that the kernel begins with.
const BYTES_PER_TOKEN: usize = 3;

/// A call of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// As the client named it; answers repeat it.
    pub model: String,
    /// The agent that it names; none for the orchestrator. Nobody has looked yet whether there is one.
    pub agent: Option<AgentId>,
    /// The texts of all system and developer messages, in their order. Our transcripts have no such messages between others.
    pub instructions: String,
    /// The conversation. The last entry is a user's or a tool's: what is to be answered.
    pub messages: Vec<Message>,
    /// Tools that the client runs itself. Their annotations are the defaults, which assume the worst.
    pub tools: Vec<ToolSpec>,
    pub tool_choice: ToolChoice,
    /// Whether one answer may call several of the client's tools.
    pub parallel_calls: bool,
    /// The form of the answer; none leaves it to the agent. Where a certain tool must be called it is the form of its arguments:
    /// the [`Encoder`](crate::Encoder) makes the call of the answer, and the turn need not know the tool.
    pub output: Option<OutputSpec>,
    /// Bounds and sampling, as far as the client named any.
    pub parameters: ModelParameters,
    pub stream: bool,
    pub thread: Thread,
    /// Whether the answer is to be found later under its id.
    pub store: bool,
    /// Whether the client goes away at once and asks for the answer later.
    pub background: bool,
}

/// Which of its tools a client wants called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    Auto,
    None,
    /// At least one of them.
    Required,
    Named(ToolName),
}

/// What the conversation of an [`Ask`] stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thread {
    /// On itself: it carries its whole history.
    Stateless,
    /// On a session that lasts. Clients send the history with every call even so: [`Ask::news`] is what is new.
    Session(SessionId),
    /// On what an earlier answer said.
    After(TurnId),
}

impl Ask {
    /// Whether the answer is written whole. See the encoder.
    pub(crate) fn holds(&self) -> bool {
        !self.stream || self.output.as_ref().is_some_and(|output| output.format == Format::Json)
    }

    /// The one tool that must be called.
    pub fn forced(&self) -> Option<&ToolSpec> {
        match (&self.tool_choice, self.tools.as_slice()) {
            (ToolChoice::Named(name), tools) => tools.iter().find(|tool| tool.name == *name),
            (ToolChoice::Required, [only]) => Some(only),
            _ => None,
        }
    }

    /// With the form of the arguments of a tool that must be called.
    pub(crate) fn formed(mut self) -> Self {
        if let Some(schema) = self.forced().map(|tool| tool.input_schema.clone()) {
            self.output = Some(OutputSpec { format: Format::Json, schema: Some(schema) });
        }
        self
    }

    /// What came after the last answer: all that a session that lasts does not know yet.
    pub fn news(&self) -> &[Message] {
        let answer = self.messages.iter().rposition(|message| matches!(message, Message::Assistant { .. }));
        &self.messages[answer.map_or(0, |at| at + 1)..]
    }

    /// All of it as one text, for a surface whose turns begin with a text. A single message is the text itself. What was said
    /// before stands as one JSON object a line, which no message can break out of.
    pub fn as_task(&self) -> String {
        let messages = if self.thread == Thread::Stateless { &self.messages } else { self.news() };
        let (last, before) = match messages.split_last() {
            Some((Message::User { content }, before)) => (content.as_str(), before),
            _ => ("Go on with the results of the tools.", messages),
        };
        let mut parts = Vec::new();
        if !self.instructions.is_empty() {
            parts.push(format!("Instructions for this conversation:\n{}", self.instructions));
        }
        if !before.is_empty() {
            let lines = before.iter().map(|message| json!(message).to_string());
            parts.push(format!(
                "What was said before, oldest first:\n{}",
                lines.collect::<Vec<_>>().join("\n")
            ));
        }
        if parts.is_empty() {
            return last.to_owned();
        }
        parts.push(format!("What to answer now:\n{last}"));
        parts.join("\n\n")
    }

    /// About how many tokens the request has. Nobody counts them exactly before a model is asked, and which one that is
    /// decides the agent; what the agent brings along is not part of it.
    pub fn estimated_tokens(&self) -> u64 {
        let message = |message: &Message| match message {
            Message::User { content } => content.len(),
            Message::Assistant { content, tool_calls, .. } => {
                let calls: usize = tool_calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
                content.len() + calls
            }
            Message::Tool { content, name, .. } => content.len() + name.len(),
        };
        let tool = |tool: &ToolSpec| {
            tool.name.as_str().len() + tool.description.len() + tool.input_schema.to_string().len()
        };
        let bytes: usize = self.instructions.len()
            + self.messages.iter().map(message).sum::<usize>()
            + self.tools.iter().map(tool).sum::<usize>();
        u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX).max(1)
    }
}

/// The field `model`, and whom it names.
pub(crate) fn model(root: &Node<'_>) -> Result<(String, Option<AgentId>), Rejection> {
    let model = root.need("model")?.text()?;
    let agent = match model {
        ORCHESTRATOR => None,
        name => Some(AgentId::new(name).map_err(|_| Rejection::no_such_model(name))?),
    };
    Ok((model.to_owned(), agent))
}

/// `metadata.session`: the session that a call joins. Every other key is the client's own.
pub(crate) fn session(root: &Node<'_>) -> Result<Option<SessionId>, Rejection> {
    let Some(session) = root.get("metadata").and_then(|metadata| metadata.get("session")) else {
        return Ok(None);
    };
    let id = SessionId::new(session.text()?);
    id.map(Some).map_err(|invalid| session.wrong(invalid.to_string()))
}

/// A tool of the client, whose definition stands at `at`.
pub(crate) fn tool(at: &Node<'_>, schema: &str) -> Result<ToolSpec, Rejection> {
    let name = at.need("name")?;
    let input_schema = match at.get(schema) {
        Some(schema) => schema.object().map(|_| schema.raw().clone())?,
        None => json!({"type": "object", "properties": {}}),
    };
    Ok(ToolSpec {
        name: tool_name(&name)?,
        description: at
            .get("description")
            .map(|text| text.text())
            .transpose()?
            .unwrap_or_default()
            .to_owned(),
        input_schema,
        instructions: None,
        annotations: Default::default(),
    })
}

pub(crate) fn tool_name(at: &Node<'_>) -> Result<ToolName, Rejection> {
    ToolName::new(at.text()?).map_err(|invalid| at.wrong(invalid.to_string()))
}

/// Refuses tools and a choice that contradict themselves.
pub(crate) fn check_tools(at: &Node<'_>, tools: &[ToolSpec], choice: &ToolChoice) -> Result<(), Rejection> {
    for (position, tool) in tools.iter().enumerate() {
        if tools[..position].iter().any(|other| other.name == tool.name) {
            let message = format!("two tools are named `{}`: give each a name of its own", tool.name);
            return Err(Rejection::invalid(Some("tools".into()), message).coded("invalid_value"));
        }
    }
    let choice_at = at.get("tool_choice").unwrap_or_else(|| at.clone());
    match choice {
        ToolChoice::Required if tools.is_empty() => {
            Err(choice_at.wrong("a call is required, and there is no tool that could be called"))
        }
        ToolChoice::Named(name) if !tools.iter().any(|tool| tool.name == *name) => {
            Err(choice_at.wrong(format!("there is no tool `{name}` among the tools of the request")))
        }
        _ => Ok(()),
    }
}

/// Puts a conversation together, entry by entry, and sees that each result has its call.
#[derive(Debug, Default)]
pub(crate) struct Dialogue {
    instructions: Vec<String>,
    messages: Vec<Message>,
    /// Calls without a result so far: id and name.
    open: Vec<(String, String)>,
    /// Every id of a call that stands in the conversation.
    called: Vec<String>,
    /// Whether calls may stand in an earlier part that the request does not carry.
    continues: bool,
}

impl Dialogue {
    pub fn new(thread: &Thread) -> Self {
        Self { continues: *thread != Thread::Stateless, ..Self::default() }
    }

    pub fn system(&mut self, text: String) {
        if !text.is_empty() {
            self.instructions.push(text);
        }
    }

    pub fn user(&mut self, at: &Node<'_>, content: String) -> Result<(), Rejection> {
        self.answered(at)?;
        self.messages.push(Message::User { content });
        Ok(())
    }

    pub fn assistant(
        &mut self,
        at: &Node<'_>,
        content: String,
        calls: Vec<ToolCallRequest>,
    ) -> Result<(), Rejection> {
        self.answered(at)?;
        self.messages.push(Message::Assistant {
            content,
            reasoning: None,
            tool_calls: Vec::new(),
            provider_items: None,
        });
        calls.into_iter().try_for_each(|call| self.call(at, call))
    }

    /// One more call of the answer that was told last, or of one without a text.
    pub fn call(&mut self, at: &Node<'_>, call: ToolCallRequest) -> Result<(), Rejection> {
        if self.called.contains(&call.call_id) {
            return Err(at.wrong(format!("the id `{}` belongs to another call already", clip(&call.call_id))));
        }
        self.called.push(call.call_id.clone());
        self.open.push((call.call_id.clone(), call.name.clone()));
        match self.messages.last_mut() {
            Some(Message::Assistant { tool_calls, .. }) => tool_calls.push(call),
            _ => self.messages.push(Message::Assistant {
                content: String::new(),
                reasoning: None,
                tool_calls: vec![call],
                provider_items: None,
            }),
        }
        Ok(())
    }

    /// The result of a call. Its name is empty where the call stands in the part that the request does not carry.
    pub fn result(
        &mut self,
        at: &Node<'_>,
        call_id: &str,
        status: ToolStatus,
        content: String,
    ) -> Result<(), Rejection> {
        let name = match self.open.iter().position(|(id, _)| id == call_id) {
            Some(position) => self.open.remove(position).1,
            None if self.continues && !self.called.iter().any(|id| id == call_id) => String::new(),
            None => {
                return Err(
                    at.wrong(format!("no call `{}` waits for a result before this place", clip(call_id)))
                );
            }
        };
        self.messages.push(Message::Tool {
            call_id: call_id.to_owned(),
            name,
            status,
            content,
            images: Vec::new(),
        });
        Ok(())
    }

    fn answered(&self, at: &Node<'_>) -> Result<(), Rejection> {
        match self.open.first() {
            Some((id, _)) => {
                Err(at.wrong(format!("the call `{}` before this place has no result", clip(id))))
            }
            None => Ok(()),
        }
    }

    /// Instructions and messages. `at` is the field that held them.
    pub fn done(self, at: &Node<'_>) -> Result<(String, Vec<Message>), Rejection> {
        self.answered(at)?;
        match self.messages.last() {
            Some(Message::User { .. } | Message::Tool { .. }) => {
                Ok((self.instructions.join("\n\n"), self.messages))
            }
            Some(Message::Assistant { .. }) => Err(at.unsupported(
                "an answer that is begun by the client cannot be continued; end with a message of the user",
            )),
            None => Err(at.wrong("a message of the user is needed")),
        }
    }
}
