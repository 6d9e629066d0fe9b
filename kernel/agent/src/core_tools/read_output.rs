//! The tool by which a model reads the rest of a result that was too long to be shown whole.
//!
//! It reads what tool calls of the same session gave, and nothing else: a handle of another session is as unknown
//! as one that never was.

use std::{
    fmt::Write,
    sync::{Arc, LazyLock},
};

use drupe_extension_api::{EffectClass, EffectId, ToolAnnotations, ToolName, ToolSpec};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    registry::Registered,
    tool::{Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

/// The tool's name.
pub const NAME: &str = "read_output";

/// Bytes of a reply that are not the output's own: its first line.
const FRAME: usize = 160;

/// The least that one reply shows, however small the bound on results is.
const LEAST: usize = 256;

/// Bytes of one matching line that are shown; its offset lets the rest be read.
const LINE: usize = 400;

struct ReadOutput(Arc<ToolSpec>);

#[derive(Deserialize)]
struct Parameters {
    handle: EffectId,
    #[serde(default)]
    offset: usize,
    #[serde(default)]
    grep: Option<String>,
}

/// The one instance of it.
pub fn tool() -> Arc<Registered> {
    static TOOL: LazyLock<Arc<Registered>> = LazyLock::new(|| {
        let spec = ToolSpec {
            name: ToolName::new(NAME).expect("the name has the form of one"),
            description:
                "Reads on in a tool's output that was too long to be shown whole. Give the handle that \
                          stands at the end of what was shown."
                    .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "handle": {
                        "type": "string", "minLength": 1, "maxLength": 96, "pattern": "^[A-Za-z0-9_.:-]+$",
                        "description": "The output's handle.",
                    },
                    "offset": {"type": "integer", "minimum": 0, "description": "First byte to read; 0 where none is given."},
                    "grep": {"type": "string", "minLength": 1, "description": "Only lines that hold this text, as it stands."},
                },
                "required": ["handle"],
                "additionalProperties": false,
            }),
            instructions: None,
            annotations: ToolAnnotations {
                read_only: true,
                effect: EffectClass::Pure,
                ..ToolAnnotations::default()
            },
        };
        Registered::core(Arc::new(ReadOutput(Arc::new(spec)))).expect("the schema is valid")
    });
    Arc::clone(&TOOL)
}

impl Tool for ReadOutput {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let Parameters { handle, offset, grep } = serde_json::from_str(params.get())?;
            let scope = &context.run.scope;
            let output = scope.journal.output(scope.session.clone(), handle.clone()).await;
            let output = output.map_err(|fault| ToolError::failed(fault.to_string()))?.ok_or_else(|| {
                ToolError::failed(format!("no output of this session has the handle `{handle}`"))
            })?;
            let room = scope.tool_response_max_bytes.saturating_sub(FRAME).max(LEAST);
            Ok(ToolOutput::text(match grep.filter(|text| !text.is_empty()) {
                None => page(&output, offset, room),
                Some(text) => matches(&output, offset, &text, room),
            }))
        })
    }
}

/// The part of `output` from `offset` that `room` bytes hold, after a line that says where it goes on.
fn page(output: &str, offset: usize, room: usize) -> String {
    let start = output.floor_char_boundary(offset.min(output.len()));
    let end = output.floor_char_boundary(start.saturating_add(room));
    let next = if end < output.len() { format!("next offset: {end}") } else { "end of output".into() };
    format!("[bytes {start} to {end} of {}; {next}]\n{}", output.len(), &output[start..end])
}

/// The lines from `offset` that hold `text`, each after the offset at which it begins.
fn matches(output: &str, offset: usize, text: &str, room: usize) -> String {
    let start = output.floor_char_boundary(offset.min(output.len()));
    let (mut at, mut found, mut lines) = (start, 0u32, String::new());
    for line in output[start..].split_inclusive('\n') {
        if line.contains(text) {
            let whole = line.trim_end_matches(['\r', '\n']);
            let part = &whole[..whole.floor_char_boundary(LINE)];
            let cut = if part.len() < whole.len() { " […]" } else { "" };
            let shown = format!("{at}: {part}{cut}\n");
            if found > 0 && lines.len() + shown.len() > room {
                break;
            }
            found += 1;
            lines.push_str(&shown);
        }
        at += line.len();
    }
    let next = if at < output.len() { format!("next offset: {at}") } else { "end of output".into() };
    let mut reply = format!("[{found} matching lines in bytes {start} to {at} of {}; {next}]", output.len());
    let _ = write!(reply, "\n{lines}");
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages through `output` and puts it together again.
    fn read_whole(output: &str, room: usize) -> String {
        let (mut whole, mut offset) = (String::new(), 0);
        loop {
            let reply = page(output, offset, room);
            let (head, text) = reply.split_once('\n').expect("a first line");
            assert!(text.len() <= room);
            whole.push_str(text);
            match head.split_once("next offset: ") {
                Some((_, next)) => offset = next.trim_end_matches(']').parse().expect("a number"),
                None => return whole,
            }
        }
    }

    #[test]
    fn pages_put_together_are_the_output() {
        let output: String = (0..500).map(|n| format!("line {n} é🍑\n")).collect();
        for room in [4, 7, 100, 1 << 20] {
            assert_eq!(read_whole(&output, room), output, "{room}");
        }
        assert_eq!(read_whole("", 10), "");
        assert!(page("abc", 99, 10).starts_with("[bytes 3 to 3 of 3; end of output]"));
    }

    #[test]
    fn grep_shows_matching_lines_with_their_offsets_and_goes_on() {
        let output = "one\ntwo\nthree two\r\nfour";
        assert_eq!(
            matches(output, 0, "two", 1_000),
            "[2 matching lines in bytes 0 to 23 of 23; end of output]\n4: two\n8: three two\n"
        );
        let first = matches(output, 0, "two", 10);
        assert_eq!(first, "[1 matching lines in bytes 0 to 8 of 23; next offset: 8]\n4: two\n");
        assert!(matches(output, 8, "two", 10).ends_with("8: three two\n"));
        assert!(matches(output, 0, "absent", 10).starts_with("[0 matching lines"));
    }

    #[test]
    fn a_long_matching_line_is_cut() {
        let output = format!("needle{}", "é".repeat(1_000));
        let reply = matches(&output, 0, "needle", 1_000);
        assert!(reply.len() < LINE + FRAME && reply.ends_with(" […]\n"), "{reply}");
    }
}
