//! How much a model is told.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    daemon::{Daemon, Settings},
    model::Model,
    report::{Row, Unit},
    turns::Work,
};

/// Extensions that are added to see what a tool adds.
const NATIVE: usize = 4;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(std::time::Duration::ZERO)?;
    let none = request(&model, false, 0)?;
    let shipped = request(&model, true, 0)?;
    let more = request(&model, true, NATIVE)?;
    let tools = (more.tools - shipped.tools).max(1.0);
    let own = (more.own - shipped.own) / tools;
    let growth = (more.bytes - shipped.bytes) / tools;
    let beside = |asked: &Asked| format!("{:.0} tools", asked.tools);
    Ok(vec![
        Row::most("request of an `echo` turn, only core tools", none.bytes, Unit::Bytes, 6144.0)
            .beside(beside(&none)),
        Row::plain("request of an `echo` turn, shipped extensions", shipped.bytes, Unit::Bytes)
            .beside(beside(&shipped)),
        Row::most("growth a tool, beyond its schema and description", growth - own, Unit::Bytes, 300.0)
            .beside(format!("{growth:.0} bytes in all, over {tools:.0} tools")),
    ])
}

struct Asked {
    bytes: f64,
    tools: f64,
    /// Of all tools' schemas and descriptions.
    own: f64,
}

#[expect(clippy::cast_precision_loss, reason = "kilobytes")]
fn request(model: &Model, shipped: bool, native: usize) -> Result<Asked> {
    let mut daemon = Daemon::home(model, Settings { shipped, ..Settings::default() })?;
    for at in 0..native {
        daemon.native(&format!("native{at}"), "inproc")?;
    }
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
        bytes: body.len() as f64,
        tools: tools.len() as f64,
        own: tools.iter().map(own).sum::<usize>() as f64,
    })
}
