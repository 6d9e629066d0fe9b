//! Calls of tools as an editor shows them: a title, a kind for its icon, the files that it may follow.
//!
//! A tool declares no kind of ACP. What it is is read from the label that it declares and from the words of its name; a wrong
//! guess costs an icon.

use std::path::Path;

use drupe_extension_api::{ItemKind, ItemOutcome};
use serde_json::{Value, json};

use crate::updates::contents;

/// Characters of a title.
const TITLE: usize = 120;

/// Parameters that say most about a call, the best first.
const TELLING: [&str; 9] = ["path", "command", "task", "query", "pattern", "url", "key", "name", "text"];

/// Parameters that name a file.
const FILES: [&str; 3] = ["path", "file", "file_path"];

/// The beginning of a call. `of` is the sub-agent that makes it.
pub fn begun(id: &str, tool: &str, kind: ItemKind, input: &str, of: Option<&str>, workspace: &str) -> Value {
    let input: Option<Value> = serde_json::from_str(input).ok();
    let parameters = input.as_ref().unwrap_or(&Value::Null);
    let by = of.map(|agent| format!("{agent}: ")).unwrap_or_default();
    let mut call = json!({
        "sessionUpdate": "tool_call",
        "toolCallId": id,
        "title": format!("{by}{}", title(tool, parameters)),
        "name": tool,
        "kind": kind_of(tool, kind),
        "status": "in_progress",
        "locations": locations(parameters, workspace),
    });
    call["content"] = changes(tool, parameters, workspace);
    if let Some(input) = input {
        call["rawInput"] = input;
    }
    call
}

/// The parameters of a call whose beginning did not hold them whole.
pub fn input(id: &str, tool: &str, input: &str, workspace: &str) -> Value {
    let parameters: Value = serde_json::from_str(input).unwrap_or_else(|_| input.into());
    json!({
        "sessionUpdate": "tool_call_update",
        "toolCallId": id,
        "title": title(tool, &parameters),
        "locations": locations(&parameters, workspace),
        "content": changes(tool, &parameters, workspace),
        "rawInput": parameters,
    })
}

/// The end of a call.
pub fn ended(id: &str, outcome: ItemOutcome, output: &str) -> Value {
    let (status, what) = match outcome {
        ItemOutcome::Ok => ("completed", ""),
        ItemOutcome::Error => ("failed", ""),
        ItemOutcome::Refused => ("failed", "It did not run. "),
        ItemOutcome::Cancelled => ("failed", "It was stopped. "),
        ItemOutcome::Interrupted => ("failed", "It was interrupted. "),
        ItemOutcome::OutcomeUnknown => ("failed", "Nobody knows whether it happened. "),
    };
    let mut update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": status });
    let text = format!("{what}{output}");
    // Contents are replaced: where nothing is to be said, what the call showed so far stays.
    if !text.is_empty() {
        update["content"] = contents(&text);
        update["rawOutput"] = output.into();
    }
    update
}

pub fn title(tool: &str, parameters: &Value) -> String {
    let telling = TELLING.iter().find_map(|name| parameters[*name].as_str());
    let mut title = telling.map_or_else(|| tool.to_owned(), |value| format!("{tool} {value}"));
    title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    if title.chars().count() > TITLE {
        title = title.chars().take(TITLE - 1).chain(['…']).collect();
    }
    title
}

pub fn kind_of(tool: &str, kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::CommandExecution => return "execute",
        ItemKind::FileChange => return "edit",
        _ => {}
    }
    let words: Vec<&str> = tool.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let has = |any: &[&str]| words.iter().any(|word| any.contains(word));
    match () {
        () if has(&["delete", "remove"]) => "delete",
        () if has(&["move", "rename"]) => "move",
        () if has(&["write", "edit", "patch", "append"]) => "edit",
        () if has(&["search", "grep", "find", "query"]) => "search",
        () if has(&["fetch", "download", "http"]) => "fetch",
        () if has(&["read", "list", "get", "show", "cat"]) => "read",
        () if has(&["run", "exec", "shell", "command"]) => "execute",
        () if has(&["plan", "think"]) => "think",
        () => "other",
    }
}

fn absolute(path: &str, workspace: &str) -> String {
    Path::new(workspace).join(path).display().to_string()
}

fn locations(parameters: &Value, workspace: &str) -> Value {
    let path = FILES.iter().find_map(|name| parameters[*name].as_str());
    path.map_or(json!([]), |path| json!([{ "path": absolute(path, workspace) }]))
}

/// What a call replaces in a file, where its parameters say so as those of `files_edit` do: an editor shows it as a diff.
fn changes(tool: &str, parameters: &Value, workspace: &str) -> Value {
    let text = |name: &str| parameters[name].as_str();
    match (text("path"), text("old"), text("new")) {
        (Some(path), Some(old), Some(new)) if kind_of(tool, ItemKind::ToolCall) == "edit" => {
            json!([{ "type": "diff", "path": absolute(path, workspace), "oldText": old, "newText": new }])
        }
        _ => json!([]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_with_what_tells_most_of_it() {
        let input = r#"{"path": "src/main.rs", "old": "a", "new": "b"}"#;
        let call = begun("e1", "files_edit", ItemKind::FileChange, input, Some("haiku"), "/project");
        assert_eq!(call["title"], "haiku: files_edit src/main.rs");
        assert_eq!((&call["kind"], &call["status"]), (&json!("edit"), &json!("in_progress")));
        assert_eq!(call["locations"][0]["path"], "/project/src/main.rs");
        assert_eq!(call["content"][0]["oldText"], "a");
        assert_eq!(call["rawInput"]["new"], "b");
        let cut = begun("e1", "shell", ItemKind::CommandExecution, r#"{"comm"#, None, "/project");
        assert_eq!((&cut["title"], cut.get("rawInput")), (&json!("shell"), None));
        for (tool, kind) in [
            ("files_read", "read"),
            ("files_search", "search"),
            ("kv_delete", "delete"),
            ("web_fetch", "fetch"),
            ("forget", "other"),
        ] {
            assert_eq!(kind_of(tool, ItemKind::ToolCall), kind, "{tool}");
        }
        assert_eq!(title("t", &json!({ "task": "x".repeat(500) })).chars().count(), TITLE);
    }

    #[test]
    fn a_call_that_failed_says_how_and_one_without_output_keeps_what_it_showed() {
        assert_eq!(ended("e", ItemOutcome::Ok, "")["status"], "completed");
        assert!(ended("e", ItemOutcome::Ok, "").get("content").is_none());
        let unknown = ended("e", ItemOutcome::OutcomeUnknown, "cut off");
        assert_eq!(unknown["status"], "failed");
        let text = unknown["content"][0]["content"]["text"].as_str().expect("a text");
        assert!(text.contains("Nobody knows") && text.contains("cut off"), "{text}");
    }
}
