//! `drupe session export`: everything about a session, for programs or for people.

mod file;
mod markdown;

use std::path::PathBuf;

use drupe_extension_api::{
    Event, SessionId,
    control::{Named, SessionDetail, TraceArgument, TurnTrace, method},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{
    Context,
    failure::{Failure, status},
    figures::count,
};

/// Arguments of `drupe session export`.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// The session
    id: SessionId,
    /// One JSON object, a JSON object a line, or a text for people
    #[arg(long, value_enum, default_value = "json")]
    format: Shape,
    /// Write to this file, which its owner alone may read; by default to the standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file where it exists
    #[arg(long, requires = "output")]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shape {
    Json,
    Jsonl,
    Markdown,
}

/// Everything that is known of a session, as the daemon said it: a field that this release does not know is kept.
#[derive(Debug, Serialize)]
struct Whole {
    session: Value,
    traces: Vec<Value>,
    events: Vec<Event>,
}

impl Export {
    /// Does it.
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let output = self.output.as_ref().map(|file| context.here.join(file));
        if let Some(file) = output.as_ref().filter(|_| !self.force) {
            // Asked before the work; what holds is asked again when the file is made.
            file::refuse_existing(file)?;
        }
        let text = self.whole(context)?.render(self.format)?;
        match output {
            None => context.console.print(&text)?,
            Some(file) => {
                file::write(&file, text.as_bytes(), self.force)?;
                let size = count(text.len() as u64);
                context.console.remark(&format!("{size} bytes are in `{}`", file.display()));
            }
        }
        Ok(0)
    }

    fn whole(&self, context: &Context) -> Result<Whole, Failure> {
        let daemon = context.daemon();
        let id = self.id.to_string();
        let session = daemon.call(method::SESSIONS_SHOW, &Named { id: id.clone() })?;
        let traces = daemon.call(method::TRACE_SHOW, &TraceArgument { id, turn: None })?;
        let events = daemon.events(&self.id)?;
        Ok(Whole { session, traces, events })
    }
}

impl Whole {
    fn render(&self, shape: Shape) -> Result<String, Failure> {
        match shape {
            Shape::Json => Ok(serde_json::to_string_pretty(self)? + "\n"),
            Shape::Jsonl => self.lines(),
            Shape::Markdown => {
                let detail: SessionDetail = serde_json::from_value(self.session.clone())?;
                let traces: Vec<TurnTrace> = serde_json::from_value(Value::Array(self.traces.clone()))?;
                Ok(markdown::render(&detail, &traces))
            }
        }
    }

    /// The session without its turns, then the turns, traces and events, each with a `type`.
    fn lines(&self) -> Result<String, Failure> {
        let mut session = self.session.clone();
        let turns = session.as_object_mut().and_then(|session| session.remove("turns"));
        let Some(Value::Array(turns)) = turns else {
            let message = "the daemon's answer has an unknown form: a session without turns";
            return Err(Failure::new(status::SOFTWARE, message));
        };
        let mut lines = vec![typed("session", session)];
        lines.extend(turns.into_iter().map(|turn| typed("turn", turn)));
        lines.extend(self.traces.iter().map(|trace| typed("trace", trace.clone())));
        for event in &self.events {
            lines.push(typed("event", serde_json::to_value(event)?));
        }
        Ok(lines.iter().map(|line| format!("{line}\n")).collect())
    }
}

fn typed(kind: &str, mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert("type".into(), json!(kind));
    }
    value
}

#[cfg(test)]
mod tests;
