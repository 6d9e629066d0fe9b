//! How much a model is told.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    daemon::Daemon,
    model::Model,
    report::{Row, Unit},
    settings::{Settings, Shipped},
    turns::{TOOLS, Work},
};

/// Extensions that are added to see what a tool adds: with the tools of one, all are still shown whole.
const NATIVE: usize = 1;

/// Tools of one extension; the last two numbers are past what is shown whole, where a tool should add a line.
const COUNTS: [usize; 4] = [1, 10, 100, 200];

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(std::time::Duration::ZERO)?;
    let none = request(&model, Shipped::None, 0)?;
    let shipped = request(&model, Shipped::All, 0)?;
    let more = request(&model, Shipped::All, NATIVE)?;
    let tools = (more.tools - shipped.tools).max(1.0);
    let own = (more.own - shipped.own) / tools;
    let growth = (more.bytes - shipped.bytes) / tools;
    let beside = |asked: &Asked| format!("{:.0} tools", asked.tools);
    let mut rows = vec![
        Row::most("request of an `echo` turn, only core tools", none.bytes, Unit::Bytes, 6144.0)
            .beside(beside(&none)),
        Row::plain("request of an `echo` turn, shipped extensions", shipped.bytes, Unit::Bytes)
            .beside(beside(&shipped)),
        Row::most("growth a tool, beyond its schema and description", growth - own, Unit::Bytes, 300.0)
            .beside(format!("{growth:.0} bytes in all, over {tools:.0} tools")),
    ];
    let mut before: Option<Asked> = None;
    for count in COUNTS {
        let asked = records(&model, count)?;
        let mut row = Row::plain(
            format!("request of an `echo` turn, with {count} tools of two parameters"),
            asked.bytes,
            Unit::Bytes,
        );
        if let Some(before) = &before {
            let more = (asked.bytes - before.bytes) / (asked.count - before.count);
            row = row.beside(format!("{more:.0} bytes for each of the last {}", asked.count - before.count));
        }
        rows.push(row);
        before = Some(asked);
    }
    Ok(rows)
}

/// A request with so many tools, and those that are always there.
#[expect(clippy::cast_precision_loss, reason = "hundreds of tools")]
fn records(model: &Model, count: usize) -> Result<Asked> {
    let settings =
        Settings { shipped: Shipped::None, tools: Some(vec![TOOLS.to_owned()]), ..Settings::default() };
    let daemon = Daemon::home(model.address(), settings)?;
    // One of its tools is there in any case.
    daemon.tools(TOOLS, count - 1)?;
    Ok(Asked { count: count as f64, ..asked(model, daemon)? })
}

struct Asked {
    bytes: f64,
    tools: f64,
    /// Of the tools that the daemon has for it.
    count: f64,
    /// Of all tools' schemas and descriptions.
    own: f64,
}

fn request(model: &Model, shipped: Shipped, native: usize) -> Result<Asked> {
    let daemon = Daemon::home(model.address(), Settings { shipped, ..Settings::default() })?;
    for at in 0..native {
        daemon.native(&format!("native{at}"), "inproc")?;
    }
    asked(model, daemon)
}

/// What the model was asked by a new daemon.
#[expect(clippy::cast_precision_loss, reason = "kilobytes")]
fn asked(model: &Model, daemon: Daemon) -> Result<Asked> {
    daemon.start_whole()?;
    daemon.client()?.turn(Work::Echo)?;
    daemon.stop()?;
    let body = model.last()?;
    let request: Value = serde_json::from_slice(&body)?;
    let tools = request["tools"].as_array().context("a request has tools")?;
    let own = |tool: &Value| {
        let part = |name: &str| tool["function"][name].to_string().len();
        part("description") + part("parameters")
    };
    Ok(Asked {
        count: tools.len() as f64,
        bytes: body.len() as f64,
        tools: tools.len() as f64,
        own: tools.iter().map(own).sum::<usize>() as f64,
    })
}
