//! What of a request of Chat Completions is understood.

use drupe_extension_api::{
    Format, ModelParameters, OutputSpec, Reasoning, ToolCallRequest, ToolSpec, ToolStatus,
};

use crate::{
    Ask, Rejection, Thread, ToolChoice,
    ask::{self, Dialogue},
    chat::ChatRequest,
    fields::Node,
};

/// What cannot be done, and why; each is refused where it asks for something.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("audio", "answers are text"),
    ("logprobs", "agents do not tell how likely their words are"),
    ("top_logprobs", "agents do not tell how likely their words are"),
    ("logit_bias", "tokens belong to models, and an agent chooses its own"),
    ("frequency_penalty", "not every model that an agent may use knows it"),
    ("presence_penalty", "not every model that an agent may use knows it"),
    ("functions", "it was replaced by `tools`"),
    ("function_call", "it was replaced by `tool_choice`"),
    ("web_search_options", "an agent searches with tools of its own"),
    ("moderation", "nothing is moderated here"),
];

pub(super) fn read(root: &Node<'_>) -> Result<ChatRequest, Rejection> {
    let (model, agent) = ask::model(root)?;
    for (key, why) in UNSUPPORTED {
        if let Some(field) = root.asks(key) {
            return Err(field.unsupported(why));
        }
    }
    if let Some(n) = root.get("n")
        && n.count(1)? > 1
    {
        return Err(n.unsupported("a call has one answer"));
    }
    if let Some(modalities) = root.get("modalities") {
        for modality in modalities.items()? {
            if modality.text()? != "text" {
                return Err(modality.unsupported("answers are text"));
            }
        }
    }
    let thread = ask::session(root)?.map_or(Thread::Stateless, Thread::Session);
    let messages_at = root.need("messages")?;
    let mut dialogue = Dialogue::new(&thread);
    for message in messages_at.items()? {
        entry(&mut dialogue, &message)?;
    }
    let (instructions, messages) = dialogue.done(&messages_at)?;
    let (tools, tool_choice) = tools(root)?;
    let stream = root.get("stream").map(|stream| stream.flag()).transpose()?.unwrap_or(false);
    let usage = root.get("stream_options").and_then(|options| options.get("include_usage"));
    let bound = root.get("max_completion_tokens").or_else(|| root.get("max_tokens"));
    let ask = Ask {
        model,
        agent,
        instructions,
        messages,
        tools,
        tool_choice,
        parallel_calls: root.get("parallel_tool_calls").map(|flag| flag.flag()).transpose()?.unwrap_or(true),
        output: root
            .get("response_format")
            .map(|format| output(&format, "json_schema"))
            .transpose()?
            .flatten(),
        parameters: ModelParameters {
            max_output_tokens: bound.map(|bound| bound.count(1)).transpose()?,
            reasoning: root.get("reasoning_effort").map(|effort| reasoning(&effort)).transpose()?,
            seed: root.get("seed").map(|seed| self::seed(&seed)).transpose()?,
            stop: root.get("stop").map(|stop| texts(&stop)).transpose()?.unwrap_or_default(),
            ..sampling(root)?
        },
        stream,
        thread,
        store: false,
        background: false,
    };
    let include_usage = usage.map(|usage| usage.flag()).transpose()?.unwrap_or(false);
    Ok(ChatRequest { ask: ask.formed(), include_usage })
}

fn entry(dialogue: &mut Dialogue, at: &Node<'_>) -> Result<(), Rejection> {
    let role = at.need("role")?;
    match role.text()? {
        "system" | "developer" => dialogue.system(content(&at.need("content")?)?),
        "user" => dialogue.user(at, content(&at.need("content")?)?)?,
        "assistant" => {
            let calls = at.get("tool_calls").map(|calls| calls.items()).transpose()?.unwrap_or_default();
            let calls = calls.iter().map(call).collect::<Result<Vec<_>, _>>()?;
            let said = match at.get("content").or_else(|| at.get("refusal")) {
                Some(said) => content(&said)?,
                None if calls.is_empty() => return Err(at.wrong("it has neither a content nor tool calls")),
                None => String::new(),
            };
            dialogue.assistant(at, said, calls)?;
        }
        "tool" => {
            let id = at.need("tool_call_id")?;
            dialogue.result(&id, id.text()?, ToolStatus::Ok, content(&at.need("content")?)?)?;
        }
        "function" => return Err(role.unsupported("it was replaced by the role `tool`")),
        _ => return Err(role.wrong("a role is system, developer, user, assistant or tool")),
    }
    Ok(())
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
            "text" => part.need("text")?.text()?.to_owned(),
            "refusal" => part.need("refusal")?.text()?.to_owned(),
            "image_url" => return Err(kind.unsupported("agents read no images yet; describe it in words")),
            "input_audio" => return Err(kind.unsupported("agents hear nothing; send the words as text")),
            "file" => return Err(kind.unsupported("agents take no files in messages; send the text of it")),
            _ => return Err(kind.wrong("a part is `text`")),
        });
    }
    Ok(texts.join("\n"))
}

fn call(at: &Node<'_>) -> Result<ToolCallRequest, Rejection> {
    if let Some(kind) = at.get("type")
        && kind.text()? != "function"
    {
        return Err(kind.unsupported("calls are of functions"));
    }
    let function = at.need("function")?;
    Ok(ToolCallRequest {
        call_id: at.need("id")?.text()?.to_owned(),
        name: function.need("name")?.text()?.to_owned(),
        arguments: function.get("arguments").map(|text| text.text()).transpose()?.unwrap_or("{}").to_owned(),
    })
}

fn tools(root: &Node<'_>) -> Result<(Vec<ToolSpec>, ToolChoice), Rejection> {
    let mut tools = Vec::new();
    for at in root.get("tools").map(|tools| tools.items()).transpose()?.unwrap_or_default() {
        let kind = at.need("type")?;
        if kind.text()? != "function" {
            return Err(kind.unsupported("tools of a client are functions"));
        }
        tools.push(ask::tool(&at.need("function")?, "parameters")?);
    }
    let (choice, tools) = choice(root, tools, Some("function"))?;
    ask::check_tools(root, &tools, &choice)?;
    Ok((tools, choice))
}

/// `tool_choice` and the tools that it leaves. `within` is the field that holds the name of a function.
pub(crate) fn choice(
    root: &Node<'_>,
    mut tools: Vec<ToolSpec>,
    within: Option<&str>,
) -> Result<(ToolChoice, Vec<ToolSpec>), Rejection> {
    let Some(at) = root.get("tool_choice") else { return Ok((ToolChoice::Auto, tools)) };
    let mode = |at: &Node<'_>| match at.text()? {
        "none" => Ok(ToolChoice::None),
        "auto" => Ok(ToolChoice::Auto),
        "required" => Ok(ToolChoice::Required),
        _ => Err(at.wrong("a choice is none, auto, required or a function")),
    };
    let name = |at: &Node<'_>| match within {
        Some(key) => ask::tool_name(&at.need(key)?.need("name")?),
        None => ask::tool_name(&at.need("name")?),
    };
    if at.raw().is_string() {
        return Ok((mode(&at)?, tools));
    }
    let kind = at.need("type")?;
    match kind.text()? {
        "function" => Ok((ToolChoice::Named(name(&at)?), tools)),
        "allowed_tools" => {
            // Chat Completions puts the list one level deeper than Responses.
            let list = at.get("allowed_tools").unwrap_or(at);
            let mut allowed = Vec::new();
            for tool in list.need("tools")?.items()? {
                if tool.need("type")?.text()? == "function" {
                    allowed.push(name(&tool)?);
                }
            }
            tools.retain(|tool| allowed.contains(&tool.name));
            Ok((mode(&list.need("mode")?)?, tools))
        }
        _ => Err(kind.unsupported("the tools that can be chosen are functions")),
    }
}

/// `response_format`, whose schema stands in the field `within`, or beside the type.
pub(crate) fn output(at: &Node<'_>, within: &str) -> Result<Option<OutputSpec>, Rejection> {
    let kind = at.need("type")?;
    let schema = match kind.text()? {
        "text" => return Ok(None),
        "json_object" => None,
        "json_schema" => {
            let holder = if within.is_empty() { at.clone() } else { at.need(within)? };
            let schema = holder.need("schema")?;
            schema.object()?;
            Some(schema.raw().clone())
        }
        _ => return Err(kind.unsupported("an answer is text, json_object or json_schema")),
    };
    Ok(Some(OutputSpec { format: Format::Json, schema }))
}

pub(crate) fn sampling(root: &Node<'_>) -> Result<ModelParameters, Rejection> {
    let number = |key: &str, most| root.get(key).map(|number| number.number(0.0, most)).transpose();
    Ok(ModelParameters {
        temperature: number("temperature", 2.0)?,
        top_p: number("top_p", 1.0)?,
        ..Default::default()
    })
}

/// The vendors have more levels than our models: what lies between two of ours is the lower, the ends are the ends.
pub(crate) fn reasoning(at: &Node<'_>) -> Result<Reasoning, Rejection> {
    match at.text()? {
        "none" => Ok(Reasoning::None),
        "minimal" | "low" => Ok(Reasoning::Low),
        "medium" => Ok(Reasoning::Medium),
        "high" | "xhigh" | "max" => Ok(Reasoning::High),
        _ => Err(at.wrong("an effort is none, minimal, low, medium, high, xhigh or max")),
    }
}

fn seed(at: &Node<'_>) -> Result<u64, Rejection> {
    at.raw().as_u64().ok_or_else(|| at.expected("a whole number from 0 on"))
}

pub(crate) fn texts(at: &Node<'_>) -> Result<Vec<String>, Rejection> {
    if !at.is_array() {
        return at.text().map(|text| vec![text.to_owned()]);
    }
    at.items()?.iter().map(|text| text.text().map(str::to_owned)).collect()
}
