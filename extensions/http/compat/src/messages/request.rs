//! What of a request of Messages is understood.

use drupe_extension_api::{Message, ModelParameters, Reasoning, ToolCallRequest, ToolSpec, ToolStatus};

use crate::{
    Ask, Rejection, Thread, ToolChoice,
    ask::{self, Dialogue},
    chat::request::{output, reasoning, texts},
    fields::Node,
    messages::ApiVersion,
    rejection::clip,
};

/// What cannot be done, and why; each is refused where it asks for something.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("container", "code runs in the agent's own tools"),
    ("mcp_servers", "an agent has the servers that its operator gave it"),
];

pub(super) fn read(root: &Node<'_>, version: ApiVersion) -> Result<Ask, Rejection> {
    let (model, agent) = ask::model(root)?;
    for (key, why) in UNSUPPORTED {
        if let Some(field) = root.asks(key) {
            return Err(field.unsupported(why));
        }
    }
    let parameters = parameters(root, version)?;
    let thread = ask::session(root)?.map_or(Thread::Stateless, Thread::Session);
    let (instructions, messages) = conversation(root, &thread, version)?;
    let tools = root.get("tools").map(|tools| tools.items()).transpose()?.unwrap_or_default();
    let tools = tools.iter().map(tool).collect::<Result<Vec<_>, _>>()?;
    let (tool_choice, parallel_calls) = choice(root)?;
    ask::check_tools(root, &tools, &tool_choice)?;
    let format = root.get("output_config").and_then(|config| config.get("format"));
    let ask = Ask {
        model,
        agent,
        instructions,
        messages,
        tools,
        tool_choice,
        parallel_calls,
        output: format.map(|format| output(&format, "")).transpose()?.flatten(),
        parameters,
        stream: root.get("stream").map(|stream| stream.flag()).transpose()?.unwrap_or(false),
        thread,
        store: false,
        background: false,
    };
    Ok(ask.formed())
}

fn parameters(root: &Node<'_>, version: ApiVersion) -> Result<ModelParameters, Rejection> {
    for key in ["temperature", "top_p", "top_k"] {
        if version == ApiVersion::V2026
            && let Some(field) = root.get(key)
        {
            let why = "the API has no such parameter since version 2026-10-21, whatever its value";
            return Err(field.unsupported(why));
        }
    }
    if let Some(field) = root.get("top_k") {
        return Err(field.unsupported("not every model that an agent may use knows it"));
    }
    let number = |key: &str| root.get(key).map(|number| number.number(0.0, 1.0)).transpose();
    let effort = root.get("output_config").and_then(|config| config.get("effort"));
    let thinking = root.get("thinking").and_then(|thinking| thinking.get("type"));
    let thoughtless = thinking.map(|kind| kind.text().map(|kind| kind == "disabled")).transpose()?;
    let effort = effort.map(|effort| reasoning(&effort)).transpose()?;
    Ok(ModelParameters {
        max_output_tokens: root.get("max_tokens").map(|bound| bound.count(1)).transpose()?,
        stop: root.get("stop_sequences").map(|stop| texts(&stop)).transpose()?.unwrap_or_default(),
        temperature: number("temperature")?,
        top_p: number("top_p")?,
        reasoning: effort.or_else(|| thoughtless?.then_some(Reasoning::None)),
        ..Default::default()
    })
}

fn conversation(
    root: &Node<'_>,
    thread: &Thread,
    version: ApiVersion,
) -> Result<(String, Vec<Message>), Rejection> {
    let messages = root.need("messages")?;
    let mut dialogue = Dialogue::new(thread);
    if let Some(system) = root.get("system") {
        dialogue.system(plain(&system)?);
    }
    for message in messages.items()? {
        let role = message.need("role")?;
        let content = message.need("content")?;
        match role.text()? {
            "user" => user(&mut dialogue, &content, version)?,
            "assistant" => assistant(&mut dialogue, &content)?,
            "system" => dialogue.system(plain(&content)?),
            _ => return Err(role.wrong("a role is user, assistant or system")),
        }
    }
    dialogue.done(&messages)
}

/// Results of tools come before what the user says to them, in whatever order they stand.
fn user(dialogue: &mut Dialogue, content: &Node<'_>, version: ApiVersion) -> Result<(), Rejection> {
    if !content.is_array() {
        return dialogue.user(content, content.text()?.to_owned());
    }
    let mut said = Vec::new();
    let mut results = 0;
    for block in content.items()? {
        match block.need("type")?.text()? {
            "tool_result" => {
                let id = block.need("tool_use_id")?;
                let failed = block.get("is_error").map(|error| error.flag()).transpose()?.unwrap_or(false);
                let status = if failed { ToolStatus::Error } else { ToolStatus::Ok };
                let text = block.get("content").map(|content| plain(&content)).transpose()?;
                dialogue.result(&id, id.text()?, status, text.unwrap_or_default())?;
                results += 1;
            }
            "text" => {
                if version == ApiVersion::V2026
                    && let Some(citations) = block.asks("citations")
                {
                    return Err(
                        citations.unsupported("a user's text has no citations since version 2026-10-21")
                    );
                }
                said.push(block.need("text")?.text()?.to_owned());
            }
            "document" => said.push(document(&block)?),
            kind => return Err(unreadable(&block, kind)),
        }
    }
    match (said.is_empty(), results) {
        (true, 0) => Err(content.wrong("it is empty")),
        (true, _) => Ok(()),
        (false, _) => dialogue.user(content, said.join("\n")),
    }
}

fn assistant(dialogue: &mut Dialogue, content: &Node<'_>) -> Result<(), Rejection> {
    if !content.is_array() {
        return dialogue.assistant(content, content.text()?.to_owned(), Vec::new());
    }
    let (mut said, mut calls) = (Vec::new(), Vec::new());
    for block in content.items()? {
        match block.need("type")?.text()? {
            "text" => said.push(block.need("text")?.text()?),
            "tool_use" => {
                let input = block.need("input")?;
                input.object()?;
                calls.push(ToolCallRequest {
                    call_id: block.need("id")?.text()?.to_owned(),
                    name: block.need("name")?.text()?.to_owned(),
                    arguments: input.raw().to_string(),
                });
            }
            // Sealed for the model that thought it.
            "thinking" | "redacted_thinking" => {}
            kind => return Err(unreadable(&block, kind)),
        }
    }
    // Blocks that an answer came in are joined as clients show them.
    dialogue.assistant(content, said.concat(), calls)
}

/// A text, or blocks that are nothing else.
fn plain(at: &Node<'_>) -> Result<String, Rejection> {
    if !at.is_array() {
        return at.text().map(str::to_owned);
    }
    let mut texts = Vec::new();
    for block in at.items()? {
        match block.need("type")?.text()? {
            "text" => texts.push(block.need("text")?.text()?.to_owned()),
            "document" => texts.push(document(&block)?),
            kind => return Err(unreadable(&block, kind)),
        }
    }
    Ok(texts.join("\n"))
}

/// A document that is a text is as good as the text.
fn document(at: &Node<'_>) -> Result<String, Rejection> {
    let source = at.need("source")?;
    match source.need("type")?.text()? {
        "text" => source.need("data")?.text().map(str::to_owned),
        _ => Err(source.unsupported("agents take no files in messages; send the text of it")),
    }
}

fn unreadable(at: &Node<'_>, kind: &str) -> Rejection {
    match kind {
        "image" => at.unsupported("agents read no images yet; describe it in words"),
        _ => at.unsupported(format!("a block of type `{}` cannot stand here; send text", clip(kind))),
    }
}

fn tool(at: &Node<'_>) -> Result<ToolSpec, Rejection> {
    if let Some(kind) = at.get("type")
        && kind.text()? != "custom"
    {
        return Err(
            kind.unsupported("it belongs to Anthropic's models; define the tool with an `input_schema`")
        );
    }
    at.need("input_schema")?;
    ask::tool(at, "input_schema")
}

/// The choice, and whether one answer may have several calls.
fn choice(root: &Node<'_>) -> Result<(ToolChoice, bool), Rejection> {
    let Some(at) = root.get("tool_choice") else { return Ok((ToolChoice::Auto, true)) };
    let alone = at.get("disable_parallel_tool_use").map(|flag| flag.flag()).transpose()?.unwrap_or(false);
    let kind = at.need("type")?;
    let choice = match kind.text()? {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(ask::tool_name(&at.need("name")?)?),
        _ => return Err(kind.wrong("a choice is auto, any, tool or none")),
    };
    Ok((choice, !alone))
}
