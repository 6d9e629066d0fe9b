//! What of a request of Responses is understood.

use drupe_extension_api::{
    Message, ModelParameters, SessionId, ToolCallRequest, ToolSpec, ToolStatus, TurnId,
};
use serde_json::{Map, Value, json};

use crate::{
    Ask, Rejection, RejectionKind, Thread, ToolChoice,
    ask::{self, Dialogue},
    chat::request::{choice, output, reasoning, sampling},
    fields::Node,
    rejection::clip,
    responses::{ResponsesRequest, turn_of, turn_of_item},
};

/// What cannot be done, and why; each is refused where it asks for something.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("top_logprobs", "agents do not tell how likely their words are"),
    ("prompt", "templates of prompts are kept by OpenAI; send the text as `instructions`"),
    ("moderation", "nothing is moderated here"),
];

/// What an answer repeats where the request has it, and what stands there where it has not.
fn echo(root: &Node<'_>, ask: &Ask) -> Map<String, Value> {
    let plain =
        |key: &str, default: Value| (key.to_owned(), root.get(key).map_or(default, |at| at.raw().clone()));
    let tool = |tool: &ToolSpec| {
        json!({"type": "function", "name": tool.name, "description": tool.description,
            "parameters": tool.input_schema, "strict": false})
    };
    let conversation = match &ask.thread {
        Thread::Session(session) if root.get("conversation").is_some() => json!({"id": session}),
        _ => Value::Null,
    };
    Map::from_iter([
        plain("instructions", Value::Null),
        plain("metadata", json!({})),
        plain("max_output_tokens", Value::Null),
        plain("previous_response_id", Value::Null),
        plain("reasoning", json!({"effort": null, "summary": null})),
        plain("temperature", Value::Null),
        plain("text", json!({"format": {"type": "text"}})),
        plain("tool_choice", json!("auto")),
        plain("top_p", Value::Null),
        plain("truncation", json!("disabled")),
        ("model".into(), json!(ask.model)),
        ("parallel_tool_calls".into(), json!(ask.parallel_calls)),
        ("tools".into(), ask.tools.iter().map(tool).collect()),
        ("background".into(), json!(ask.background)),
        ("store".into(), json!(ask.store)),
        ("conversation".into(), conversation),
    ])
}

pub(super) fn read(root: &Node<'_>) -> Result<ResponsesRequest, Rejection> {
    let (model, agent) = ask::model(root)?;
    for (key, why) in UNSUPPORTED {
        if let Some(field) = root.asks(key) {
            return Err(field.unsupported(why));
        }
    }
    for field in root.get("include").map(|include| include.items()).transpose()?.unwrap_or_default() {
        if field.text()? == "message.output_text.logprobs" {
            return Err(field.unsupported("agents do not tell how likely their words are"));
        }
    }
    let flag = |key: &str| root.get(key).map(|flag| flag.flag()).transpose();
    let (store, background) = (flag("store")?.unwrap_or(true), flag("background")?.unwrap_or(false));
    if background && !store {
        return Err(root
            .need("background")?
            .wrong("an answer that comes later must be stored: leave `store` out"));
    }
    let input = Input::read(root)?;
    let thread = input.thread(thread(root)?);
    let (instructions, messages) = conversation(root, &input, &thread)?;
    let (tools, tool_choice) = tools(root)?;
    let effort = root.get("reasoning").and_then(|reasoning| reasoning.get("effort"));
    let format = root.get("text").and_then(|text| text.get("format"));
    let ask = Ask {
        model,
        agent,
        instructions,
        messages,
        tools,
        tool_choice,
        parallel_calls: flag("parallel_tool_calls")?.unwrap_or(true),
        output: format.map(|format| output(&format, "")).transpose()?.flatten(),
        parameters: ModelParameters {
            max_output_tokens: root.get("max_output_tokens").map(|bound| bound.count(1)).transpose()?,
            reasoning: effort.map(|effort| reasoning(&effort)).transpose()?,
            ..sampling(root)?
        },
        stream: flag("stream")?.unwrap_or(false),
        thread,
        store,
        background,
    };
    let echo = echo(root, &ask);
    Ok(ResponsesRequest { ask: ask.formed(), echo })
}

/// An earlier answer, a conversation, or a session: at most one of them.
fn thread(root: &Node<'_>) -> Result<Thread, Rejection> {
    let session = ask::session(root)?;
    let conversation = root.get("conversation");
    if let Some(previous) = root.get("previous_response_id") {
        if conversation.is_some() || session.is_some() {
            return Err(previous.wrong("it names a conversation already: leave the other one out"));
        }
        let id = previous.text()?;
        return turn_of(id).map(Thread::After).ok_or_else(|| {
            let missing = format!("there is no response `{}`", clip(id));
            let missing = Rejection::new(RejectionKind::NotFound, missing);
            let param = Some("previous_response_id".to_owned());
            Rejection { param, ..missing.coded("previous_response_not_found") }
        });
    }
    let Some(at) = conversation else { return Ok(session.map_or(Thread::Stateless, Thread::Session)) };
    let at = if at.raw().is_string() { at } else { at.need("id")? };
    let id = SessionId::new(at.text()?).map_err(|invalid| at.wrong(invalid.to_string()))?;
    match session {
        Some(other) if other != id => Err(at.wrong("`metadata.session` names another one")),
        _ => Ok(Thread::Session(id)),
    }
}

/// The field `input`. A client may refer to an item of an earlier answer in place of sending it: what stands before the last
/// such item is what that answer was given to, so the turn knows it, and the call stands on that turn.
struct Input<'a> {
    at: Node<'a>,
    items: Vec<Node<'a>>,
    /// The place after the last reference, and the turn that it names.
    known: Option<(usize, TurnId)>,
}

impl<'a> Input<'a> {
    fn read(root: &Node<'a>) -> Result<Self, Rejection> {
        let at = root.need("input")?;
        let items = if at.is_array() { at.items()? } else { Vec::new() };
        let reference = |item: &Node<'_>| item.get("type").is_some_and(|kind| kind.raw() == "item_reference");
        let known = match items.iter().rposition(reference) {
            Some(last) => {
                let id = items[last].need("id")?;
                let turn = turn_of_item(id.text()?);
                Some((last + 1, turn.ok_or_else(|| id.wrong("no answer has an item of this id"))?))
            }
            None => None,
        };
        Ok(Self { at, items, known })
    }

    fn thread(&self, named: Thread) -> Thread {
        match (&self.known, named) {
            (Some((_, turn)), Thread::Stateless) => Thread::After(turn.clone()),
            (_, named) => named,
        }
    }
}

fn conversation(
    root: &Node<'_>,
    input: &Input<'_>,
    thread: &Thread,
) -> Result<(String, Vec<Message>), Rejection> {
    let mut dialogue = Dialogue::new(thread);
    if let Some(instructions) = root.get("instructions") {
        dialogue.system(instructions.text()?.to_owned());
    }
    if !input.at.is_array() {
        dialogue.user(&input.at, input.at.text()?.to_owned())?;
    }
    let (known, new) = input.items.split_at(input.known.as_ref().map_or(0, |(place, _)| *place));
    // Instructions are the call's own, wherever they stand.
    for item in known.iter().filter(|item| speaker(item).is_some_and(is_system)).chain(new) {
        entry(&mut dialogue, item)?;
    }
    dialogue.done(&input.at)
}

fn speaker<'a>(item: &Node<'a>) -> Option<&'a str> {
    item.raw().get("role").and_then(Value::as_str)
}

fn is_system(role: &str) -> bool {
    matches!(role, "system" | "developer")
}

fn entry(dialogue: &mut Dialogue, at: &Node<'_>) -> Result<(), Rejection> {
    at.object()?;
    let kind = at.get("type");
    match kind.as_ref().map(|kind| kind.text()).transpose()?.unwrap_or("message") {
        "message" => {
            let role = at.need("role")?;
            let said = content(&at.need("content")?)?;
            match role.text()? {
                role if is_system(role) => dialogue.system(said),
                "user" => dialogue.user(at, said)?,
                "assistant" => dialogue.assistant(at, said, Vec::new())?,
                _ => return Err(role.wrong("a role is system, developer, user or assistant")),
            }
            Ok(())
        }
        "function_call" => {
            let call = ToolCallRequest {
                call_id: at.need("call_id")?.text()?.to_owned(),
                name: at.need("name")?.text()?.to_owned(),
                arguments: at.need("arguments")?.text()?.to_owned(),
            };
            dialogue.call(at, call)
        }
        "function_call_output" => {
            let id = at.need("call_id")?;
            dialogue.result(&id, id.text()?, ToolStatus::Ok, content(&at.need("output")?)?)
        }
        // Sealed for the model that wrote it.
        "reasoning" => Ok(()),
        kind => {
            let why = format!("an item of type `{}` belongs to a tool that only OpenAI has", clip(kind));
            Err(at.unsupported(why))
        }
    }
}

/// A text, or its parts joined.
fn content(at: &Node<'_>) -> Result<String, Rejection> {
    if !at.is_array() {
        return at.text().map(str::to_owned);
    }
    let mut texts = Vec::new();
    for part in at.items()? {
        let kind = part.need("type")?;
        texts.push(match kind.text()? {
            "input_text" | "output_text" | "text" => part.need("text")?.text()?,
            "refusal" => part.need("refusal")?.text()?,
            "input_image" => return Err(kind.unsupported("agents read no images yet; describe it in words")),
            "input_audio" => return Err(kind.unsupported("agents hear nothing; send the words as text")),
            "input_file" => {
                return Err(kind.unsupported("agents take no files in messages; send the text of it"));
            }
            _ => return Err(kind.wrong("a part is `input_text` or `output_text`")),
        });
    }
    Ok(texts.join("\n"))
}

fn tools(root: &Node<'_>) -> Result<(Vec<ToolSpec>, ToolChoice), Rejection> {
    let mut tools = Vec::new();
    for at in root.get("tools").map(|tools| tools.items()).transpose()?.unwrap_or_default() {
        if at.need("type")?.text()? == "function" {
            tools.push(ask::tool(&at, "parameters")?);
        }
    }
    let (choice, tools) = choice(root, tools, None)?;
    ask::check_tools(root, &tools, &choice)?;
    Ok((tools, choice))
}
