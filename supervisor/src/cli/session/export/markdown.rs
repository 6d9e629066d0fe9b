//! A session as a text for people: what was said, what agents and tools did, and a trace of each turn.

use std::io::Write;

use drupe_extension_api::{
    Message, ResponseStatus,
    control::{SessionDetail, TranscriptEntry, TurnResult, TurnTrace},
};

use crate::cli::{
    console::plain,
    failure::Failure,
    figures::spent,
    session::{answered_by, gone, let_go},
    trace,
};

/// Writes the whole text; `traced` gives the trace of a turn, if there is one.
pub fn write(
    out: &mut dyn Write,
    detail: &SessionDetail,
    traced: impl Fn(&str) -> Result<Option<TurnTrace>, Failure>,
) -> Result<(), Failure> {
    out.write_all(head(detail).as_bytes())?;
    for (number, turn) in (let_go(detail) + 1..).zip(&detail.turns) {
        write!(out, "\n## Turn {number}\n\n{}", quoted(&turn.input))?;
        for entry in &turn.transcript {
            out.write_all(said(turn, entry).as_bytes())?;
        }
        write!(out, "\n{}\n", ending(turn))?;
        if let Some(trace) = traced(turn.turn.as_str())? {
            write!(out, "\n### Trace\n\n{}", fenced("", &trace::render(&[trace], false, None)))?;
        }
    }
    Ok(())
}

fn head(detail: &SessionDetail) -> String {
    let status = &detail.status;
    let mut text = format!("# Session {}\n\n", status.id);
    text.push_str(&format!("From {} to {}", status.created, status.updated));
    if let Some(agent) = answered_by(status) {
        text.push_str(&format!(", answered by @{agent}"));
    }
    text.push_str(".\n");
    if let Some(gone) = gone(detail) {
        text.push_str(&format!("\nOf this session, {gone}.\n"));
    }
    if let Some(summary) = &detail.summary {
        text.push_str(&format!("\nOf its older turns the orchestrator is told this:\n\n{}", quoted(summary)));
    }
    text
}

/// One entry. The user's message of the root stands above all of them.
fn said(turn: &TurnResult, entry: &TranscriptEntry) -> String {
    let run = turn.invocations.iter().find(|run| run.id == entry.invocation);
    let root = run.is_some_and(|run| run.depth == 0);
    let agent = &entry.agent;
    match &entry.message {
        Message::User { content } if root && *content == turn.input => String::new(),
        Message::User { content } => format!("\n**Task of @{agent}**\n\n{}", quoted(content)),
        Message::Assistant { content, reasoning, tool_calls, .. } => {
            let mut text = String::new();
            if let Some(reasoning) = reasoning.as_ref().filter(|reasoning| !reasoning.trim().is_empty()) {
                text.push_str(&format!("\n**@{agent} reasons**\n\n{}", quoted(reasoning)));
            }
            if !content.trim().is_empty() {
                text.push_str(&format!("\n**@{agent}**\n\n{}\n", plain(content).trim_end()));
            }
            for call in tool_calls {
                let name = plain(&call.name);
                text.push_str(&format!(
                    "\n**@{agent} calls `{name}`**\n\n{}",
                    fenced("json", &call.arguments)
                ));
            }
            text
        }
        Message::Tool { name, content, images, .. } => {
            let mut text = format!("\n**Result of `{}`**\n\n{}", plain(name), fenced("", content));
            for image in images {
                text.push_str(&format!("\n*A picture: {image}, SHA-256 {}*\n", plain(&image.hash)));
            }
            text
        }
    }
}

fn ending(turn: &TurnResult) -> String {
    let spent = spent(&turn.spend);
    match turn.status {
        None => "*It runs, or waits.*".into(),
        Some(ResponseStatus::Success) => format!("*{spent}*"),
        Some(_) => {
            let error = turn.error.as_deref().unwrap_or("failed");
            format!("*It ended without an answer: {} ({spent})*", plain(error).replace('\n', " "))
        }
    }
}

fn quoted(text: &str) -> String {
    plain(text).lines().map(|line| format!("> {line}").trim_end().to_owned() + "\n").collect()
}

/// A block whose fence is longer than any within it.
fn fenced(language: &str, text: &str) -> String {
    let text = plain(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    format!("{fence}{language}\n{}\n{fence}\n", text.trim_end())
}
