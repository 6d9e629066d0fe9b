//! `drupe session export`: everything about a session, for programs or for people.
//!
//! What was said comes in one piece; traces and events, which are much more, are asked for one after the other and
//! written as they come.

mod file;
mod markdown;

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use drupe_extension_api::{
    Event, SessionId,
    control::{SessionDetail, TraceArgument, method},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{
    Context,
    client::Daemon,
    failure::{Failure, UNKNOWN_FORM, status},
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
    /// Replace the file where it exists; a pipe or a device is written to, a symbolic link followed
    #[arg(long, requires = "output")]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shape {
    Json,
    Jsonl,
    Markdown,
}

/// Where traces and events come from, as the daemon says them: a field that this release does not know is kept.
trait Source {
    /// What a turn set off; none where nothing of it is kept.
    fn trace(&self, turn: &str) -> Result<Option<Value>, Failure>;

    /// Gives each event, up to the first that is not taken.
    fn events(&self, take: &mut dyn FnMut(Event) -> Result<(), Failure>) -> Result<(), Failure>;
}

struct Asked<'a> {
    daemon: Daemon<'a>,
    session: &'a SessionId,
}

impl Source for Asked<'_> {
    fn trace(&self, turn: &str) -> Result<Option<Value>, Failure> {
        let argument = TraceArgument { id: turn.to_owned(), turn: None };
        let traces: Vec<Value> = self.daemon.call(method::TRACE_SHOW, &argument)?;
        Ok(traces.into_iter().next())
    }

    fn events(&self, take: &mut dyn FnMut(Event) -> Result<(), Failure>) -> Result<(), Failure> {
        self.daemon.each_event(self.session, take)
    }
}

impl Export {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let output = self.output.as_ref().map(|file| context.here.join(file));
        if let Some(file) = output.as_ref().filter(|_| !self.force) {
            // Asked before the work; what holds is asked again when the file is made.
            file::refuse_existing(file)?;
        }
        let source = Asked { daemon: context.daemon(), session: &self.id };
        // Before there is a file: a session that is not there leaves none.
        let session = super::whole(&source.daemon, self.id.as_str(), false)?;
        match output {
            None => {
                let mut out = BufWriter::new(io::stdout().lock());
                write(&mut out, self.format, session, &source)?;
                out.flush()?;
            }
            Some(file) => {
                let fill = |out: &mut dyn Write| write(out, self.format, session, &source);
                let size = count(file::write(&file, self.force, fill)?);
                context.console.remark(&format!("{size} bytes are in `{}`", file.display()));
            }
        }
        Ok(0)
    }
}

fn write(out: &mut dyn Write, shape: Shape, session: Value, source: &dyn Source) -> Result<(), Failure> {
    match shape {
        Shape::Json => object(out, &session, source),
        Shape::Jsonl => lines(out, session, source),
        Shape::Markdown => {
            let detail: SessionDetail = serde_json::from_value(session)?;
            markdown::write(out, &detail, |turn| {
                Ok(source.trace(turn)?.map(serde_json::from_value).transpose()?)
            })
        }
    }
}

/// One object, laid out for people who look into it.
fn object(out: &mut dyn Write, session: &Value, source: &dyn Source) -> Result<(), Failure> {
    write!(out, "{{\n  \"session\": {},\n  \"traces\": ", laid_out(session, 2)?)?;
    let mut traces = List { out: &mut *out, empty: true };
    for turn in turns(session)? {
        if let Some(trace) = source.trace(id(turn)?)? {
            traces.add(&trace)?;
        }
    }
    traces.end()?;
    write!(out, ",\n  \"events\": ")?;
    let mut events = List { out: &mut *out, empty: true };
    source.events(&mut |event| events.add(&event))?;
    events.end()?;
    Ok(out.write_all(b"\n}\n")?)
}

/// A list whose elements come one by one, as a value of an object.
struct List<'a> {
    out: &'a mut dyn Write,
    empty: bool,
}

impl List<'_> {
    fn add(&mut self, element: &impl Serialize) -> Result<(), Failure> {
        let before = if std::mem::take(&mut self.empty) { "[" } else { "," };
        Ok(write!(self.out, "{before}\n    {}", laid_out(element, 4)?)?)
    }

    fn end(self) -> io::Result<()> {
        self.out.write_all(if self.empty { b"[]" } else { b"\n  ]" })
    }
}

/// JSON over lines that begin with so many blanks, but for the first.
fn laid_out(value: &impl Serialize, indent: usize) -> Result<String, Failure> {
    // No string of JSON holds a line's end.
    Ok(serde_json::to_string_pretty(value)?.replace('\n', &format!("\n{}", " ".repeat(indent))))
}

/// The session without its turns, then the turns, traces and events, each with a `type`.
fn lines(out: &mut dyn Write, mut session: Value, source: &dyn Source) -> Result<(), Failure> {
    let turns = match session.as_object_mut().and_then(|session| session.remove("turns")) {
        Some(Value::Array(turns)) => turns,
        _ => return Err(unknown("a session without turns")),
    };
    let ids = turns.iter().map(|turn| id(turn).map(str::to_owned)).collect::<Result<Vec<_>, _>>()?;
    writeln!(out, "{}", typed("session", session))?;
    for turn in turns {
        writeln!(out, "{}", typed("turn", turn))?;
    }
    for turn in ids {
        if let Some(trace) = source.trace(&turn)? {
            writeln!(out, "{}", typed("trace", trace))?;
        }
    }
    source.events(&mut |event| Ok(writeln!(out, "{}", typed("event", serde_json::to_value(event)?))?))
}

fn turns(session: &Value) -> Result<&Vec<Value>, Failure> {
    session["turns"].as_array().ok_or_else(|| unknown("a session without turns"))
}

fn id(turn: &Value) -> Result<&str, Failure> {
    turn["turn"].as_str().ok_or_else(|| unknown("a turn without its id"))
}

fn unknown(what: &str) -> Failure {
    Failure::new(status::SOFTWARE, format!("the daemon's answer has an unknown form: {what}"))
        .help(UNKNOWN_FORM)
}

fn typed(kind: &str, mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert("type".into(), json!(kind));
    }
    value
}

#[cfg(test)]
mod tests;
