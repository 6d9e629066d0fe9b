//! What a server gives, as text for a model. Pure.

use drupe_extension_api::{Fault, FaultCode, ImageData};
use rmcp::model::{
    CallToolResult, ContentBlock, GetPromptResult, ReadResourceResult, Resource, ResourceContents, Role,
};
use serde_json::Value;

/// Bytes of what a server says of a failure.
const ERROR: usize = 8 * 1024;

/// The most bytes of all pictures of a result, in base64: as much as one request shows.
const PICTURES: usize = 16 << 20;

/// Takes out of a text what nobody may read, before any of it is cut off.
pub type Hidden<'a> = &'a dyn Fn(String) -> String;

/// The result of a tool. What the server marks as an error is one.
pub fn of_call(result: CallToolResult, most: usize, hidden: Hidden<'_>) -> Result<String, Fault> {
    let mut parts: Vec<String> = result.content.iter().map(block).collect();
    if let Some(value) = &result.structured_content
        && !is_told(value, &parts)
    {
        parts.push(value.to_string());
    }
    let text = hidden(parts.join("\n\n"));
    match result.is_error {
        Some(true) if text.trim().is_empty() => {
            Err(Fault::new(FaultCode::Other, "the server says that the call failed, and nothing more"))
        }
        Some(true) => Err(Fault::new(FaultCode::Other, cut(text, ERROR))),
        _ if text.is_empty() => Ok("The call gave nothing.".to_owned()),
        _ => Ok(cut(text, most)),
    }
}

/// The pictures of a result, as they came: whether a model can be shown one, the kernel says. What is beyond [`PICTURES`] is
/// left out, and the text says that there was one.
pub fn pictures(result: &CallToolResult) -> impl Iterator<Item = ImageData> {
    let data = result.content.iter().filter_map(|block| match block {
        ContentBlock::Image(image) => Some(&image.data),
        _ => None,
    });
    let mut left = PICTURES;
    let fits = data.take_while(move |data| {
        let fits = data.len() <= left;
        left = left.saturating_sub(data.len());
        fits
    });
    fits.map(|data| ImageData { data: data.clone() })
}

/// Whether texts say a value already: servers give the same as text for clients that know no other, as JSON, or as the only
/// text in it (`{"result": "…"}`).
fn is_told(value: &Value, texts: &[String]) -> bool {
    let only = value
        .as_object()
        .filter(|fields| fields.len() == 1)
        .and_then(|fields| fields.values().next()?.as_str());
    only.is_some_and(|only| only == texts.join("\n\n"))
        || texts.iter().any(|text| serde_json::from_str::<Value>(text).is_ok_and(|told| told == *value))
}

/// What a resource holds, each of its parts with its address.
pub fn of_resource(result: &ReadResourceResult, most: usize, hidden: Hidden<'_>) -> String {
    let parts: Vec<String> = result.contents.iter().map(contents).collect();
    cut(hidden(parts.join("\n\n")), most)
}

/// The messages of a prompt.
pub fn of_prompt(result: &GetPromptResult, most: usize, hidden: Hidden<'_>) -> String {
    let message = |role: &Role, content: &ContentBlock| {
        let role = if matches!(role, Role::Assistant) { "assistant" } else { "user" };
        format!("{role}: {}", block(content))
    };
    let messages = result.messages.iter().map(|one| message(&one.role, &one.content));
    let parts: Vec<String> = result.description.iter().cloned().chain(messages).collect();
    cut(hidden(parts.join("\n\n")), most)
}

/// A text with its end cut off where it is too long, which is said.
pub fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let whole = text.len();
        text.truncate(text.floor_char_boundary(most));
        text += &format!("\n[{} of {whole} bytes are cut off here]", whole - text.len());
    }
    text
}

fn block(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[{}]", sized("picture", &image.mime_type, &image.data)),
        ContentBlock::Audio(audio) => binary("sound", &audio.mime_type, &audio.data),
        ContentBlock::Resource(resource) => contents(&resource.resource),
        ContentBlock::ResourceLink(link) => format!("[the resource {}]", line(link)),
        _ => "[content of a kind that is not known here]".to_owned(),
    }
}

fn contents(contents: &ResourceContents) -> String {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => format!("{uri}:\n{text}"),
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            let kind = mime_type.as_deref().unwrap_or("application/octet-stream");
            format!("{uri}: {}", binary("file", kind, blob))
        }
        _ => "[a resource of a kind that is not known here]".to_owned(),
    }
}

/// One resource of a list.
pub fn line(resource: &Resource) -> String {
    let mut text = resource.uri.clone();
    if resource.name != resource.uri {
        text += &format!(" ({})", resource.name);
    }
    text.extend(resource.mime_type.iter().map(|kind| format!(", {kind}")));
    text.extend(resource.size.iter().map(|size| format!(", {size} bytes")));
    text.extend(resource.description.iter().map(|what| format!(": {what}")));
    text
}

/// What models here cannot read is described. Four characters of Base64 are three bytes.
fn binary(what: &str, kind: &str, data: &str) -> String {
    format!("[{}, which is not shown]", sized(what, kind, data))
}

fn sized(what: &str, kind: &str, data: &str) -> String {
    let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
    let bytes = (data.len() / 4 * 3).saturating_sub(padding);
    format!("a {what} of type {kind}, {bytes} bytes")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(result: Value, most: usize) -> Result<String, String> {
        let result = serde_json::from_value(result).expect("a result");
        of_call(result, most, &|text| text).map_err(|fault| fault.message)
    }

    #[test]
    fn texts_are_joined_and_the_rest_is_told_in_words() {
        let given = read(
            json!({"content": [
                {"type": "text", "text": "one"},
                {"type": "image", "mimeType": "image/png", "data": "AAAAAA=="},
                {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
                {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
                {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA"}},
                {"type": "resource_link", "uri": "file:///c", "name": "c", "size": 7},
            ], "structuredContent": {"a": 1}}),
            10_000,
        );
        let expected = "one\n\n[a picture of type image/png, 4 bytes]\n\n\
                        [a sound of type audio/wav, 3 bytes, which is not shown]\n\nfile:///a:\ninside\n\n\
                        file:///b: [a file of type application/octet-stream, 3 bytes, which is not shown]\n\n\
                        [the resource file:///c (c), 7 bytes]\n\n{\"a\":1}";
        assert_eq!(given.as_deref(), Ok(expected));
    }

    #[test]
    fn what_is_told_twice_is_given_once_and_an_error_is_an_error() {
        let twice =
            json!({"content": [{"type": "text", "text": "{\"a\": 1}"}], "structuredContent": {"a": 1}});
        assert_eq!(read(twice, 100).as_deref(), Ok("{\"a\": 1}"));
        let wrapped = json!({"content": [{"type": "text", "text": "a list"}], "structuredContent": {"content": "a list"}});
        assert_eq!(read(wrapped, 100).as_deref(), Ok("a list"));
        assert_eq!(read(json!({"content": []}), 100).as_deref(), Ok("The call gave nothing."));
        let failed = json!({"content": [{"type": "text", "text": "no such file"}], "isError": true});
        assert_eq!(read(failed, 100), Err("no such file".to_owned()));
        assert!(read(json!({"content": [], "isError": true}), 100).is_err());
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters_and_says_so() {
        let long = json!({"content": [{"type": "text", "text": "ä".repeat(100)}]});
        assert_eq!(read(long, 11).as_deref(), Ok("äääää\n[190 of 200 bytes are cut off here]"));
    }
}
