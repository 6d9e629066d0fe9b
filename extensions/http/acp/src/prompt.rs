//! What an editor sends as a prompt, as the text of a message.

use drupe_extension_api::{AgentId, control::AgentStatus};
use serde::Deserialize;

use crate::rpc::RpcError;

/// A part of a prompt. What other parts there are is named in the refusal.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptBlock {
    Text {
        text: String,
    },
    ResourceLink {
        uri: String,
        name: String,
        #[serde(default)]
        title: Option<String>,
        #[serde(default)]
        description: Option<String>,
    },
    Resource {
        resource: Embedded,
    },
    Image {},
    Audio {},
}

/// What a prompt carries along.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Embedded {
    Text { uri: String, text: String },
    Blob { uri: String },
}

/// The text of a message, and the agent that a command at its beginning names.
pub fn message(
    blocks: Vec<PromptBlock>,
    agents: &[AgentStatus],
) -> Result<(Option<AgentId>, String), RpcError> {
    let mut text = String::new();
    for block in blocks {
        let part = part(block)?;
        // What is mentioned in a sentence stands in it, what is carried along stands by itself.
        if part.starts_with("<resource") && !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&part);
    }
    let (agent, text) = match command(&text, agents) {
        Some((agent, rest)) => (Some(agent), rest.to_owned()),
        None => (None, text),
    };
    if text.trim().is_empty() {
        return Err(RpcError::params("the prompt has no text"));
    }
    Ok((agent, text))
}

fn part(block: PromptBlock) -> Result<String, RpcError> {
    match block {
        PromptBlock::Text { text } => Ok(text),
        PromptBlock::ResourceLink { uri, name, title, description } => {
            let about = description.map(|about| format!(": {about}")).unwrap_or_default();
            Ok(format!("[{}{about}]({uri})", title.unwrap_or(name)))
        }
        PromptBlock::Resource { resource: Embedded::Text { uri, text } } => {
            Ok(format!("<resource uri={}>\n{text}\n</resource>\n", serde_json::Value::from(uri)))
        }
        PromptBlock::Resource { resource: Embedded::Blob { uri } } => Err(RpcError::params(format!(
            "`{uri}` is no text; only texts can be carried along with a prompt"
        ))),
        PromptBlock::Image {} => Err(unsupported("images")),
        PromptBlock::Audio {} => Err(unsupported("recordings")),
    }
}

fn unsupported(what: &str) -> RpcError {
    RpcError::params(format!("{what} are not taken in a prompt, as `promptCapabilities` says"))
}

/// The agent of `/id task`. Anything else that begins with a stroke is text.
fn command<'a>(text: &'a str, agents: &[AgentStatus]) -> Option<(AgentId, &'a str)> {
    let (name, rest) = text.strip_prefix('/')?.split_once(char::is_whitespace)?;
    let agent = agents.iter().find(|agent| agent.id.as_str() == name)?;
    Some((agent.id.clone(), rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(blocks: Value) -> Result<(Option<String>, String), String> {
        let agents = json!([{
            "id": "haiku", "name": "Haiku", "description": "Writes.", "mode": "tool", "model": null,
            "tools": [], "infer": true,
        }]);
        let agents: Vec<AgentStatus> = serde_json::from_value(agents).expect("agents");
        let blocks = serde_json::from_value(blocks).expect("blocks");
        let read = message(blocks, &agents).map_err(|error| error.message);
        read.map(|(agent, text)| (agent.map(|agent| agent.to_string()), text))
    }

    #[test]
    fn texts_links_and_what_is_carried_along_become_one_text() {
        let said = read(json!([
            { "type": "text", "text": "see " },
            { "type": "resource_link", "uri": "file:///a.rs", "name": "a.rs" },
            { "type": "text", "text": " please" },
            { "type": "resource", "resource": { "uri": "file:///b\"c", "mimeType": "text/plain", "text": "hello" } },
        ]));
        let text = "see [a.rs](file:///a.rs) please\n<resource uri=\"file:///b\\\"c\">\nhello\n</resource>\n";
        assert_eq!(said, Ok((None, text.to_owned())));
    }

    #[test]
    fn a_command_names_the_agent_where_there_is_one() {
        let text = |text: &str| read(json!([{ "type": "text", "text": text }]));
        assert_eq!(text("/haiku  about rust"), Ok((Some("haiku".into()), "about rust".into())));
        assert_eq!(text("/etc/hosts is odd"), Ok((None, "/etc/hosts is odd".into())));
        assert!(text("/haiku ").is_err() && text(" \n").is_err());
    }

    #[test]
    fn what_cannot_be_taken_is_refused_by_name() {
        for (block, named) in [
            (json!({ "type": "image", "data": "", "mimeType": "image/png" }), "images"),
            (json!({ "type": "audio", "data": "", "mimeType": "audio/wav" }), "recordings"),
            (json!({ "type": "resource", "resource": { "uri": "file:///x", "blob": "AA==" } }), "file:///x"),
        ] {
            let refused = read(json!([{ "type": "text", "text": "a" }, block])).expect_err(named);
            assert!(refused.contains(named), "{refused}");
        }
    }
}
