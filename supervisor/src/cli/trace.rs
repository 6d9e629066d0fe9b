//! `drupe trace`: what a turn set off, as a tree of runs, model calls and tool calls.

use drupe_extension_api::{
    FailureClass, ResponseStatus,
    control::{CallKind, TraceArgument, TraceNode, TurnTrace, method},
};
use serde_json::Value;

use super::{
    Context, Facts,
    console::{Console, Style, cut, duration, figures, plain, short, width},
    failure::Failure,
    figures::{count, moment, money, size, spent},
};

/// The least that a name is cut to: below it the columns wrap, which is still legible.
const NAME: usize = 16;

/// Characters of a remark, and of an outcome.
const TEXT: usize = 160;

/// Arguments of `drupe trace`.
#[derive(Debug, clap::Args)]
pub struct Trace {
    /// The session, of which the last turn is shown, or a turn
    id: String,
    /// This turn of the session, counted from 1; from the end where negative
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number)]
    turn: Option<i64>,
    /// Every turn of the session; of a long one `session export` holds them
    #[arg(long, conflicts_with = "turn")]
    all: bool,
    #[command(flatten)]
    facts: Facts,
}

fn number(text: &str) -> Result<i64, &'static str> {
    match text.parse() {
        Ok(0) => Err("turns are counted from 1, or from -1 backwards"),
        Ok(number) => Ok(number),
        Err(_) => Err("a number is expected, such as 1, or -1 for the last turn"),
    }
}

impl Trace {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        // Without a bound a session of a year would be one answer.
        let turn = self.turn.or((!self.all).then_some(-1));
        let argument = TraceArgument { id: self.id, turn };
        let said: Value = context.daemon().call(method::TRACE_SHOW, &argument)?;
        if self.facts.json {
            return context.console.json(&said).map(|()| 0);
        }
        let traces: Vec<TurnTrace> = serde_json::from_value(said)?;
        match traces.is_empty() {
            true => context.console.remark("the session has no turns yet"),
            false => context.console.draw(&render(&traces, context.console.colour, Console::columns()))?,
        }
        let asked = self.turn.is_some() || self.all;
        if let Some(remark) = others(&traces, &argument.id).filter(|_| !asked) {
            context.console.remark(remark);
        }
        Ok(0)
    }
}

/// That a session may have more turns than the one that is shown.
fn others(traces: &[TurnTrace], id: &str) -> Option<&'static str> {
    let of_session = traces.iter().any(|trace| trace.session.as_str() == id);
    of_session.then_some(
        "this is the last turn of the session: `--turn 1` shows the first, `--turn -2` the one before, `--all` every one",
    )
}

pub fn render(traces: &[TurnTrace], colour: bool, columns: Option<usize>) -> String {
    traces.iter().map(|trace| one(trace, colour, columns)).collect::<Vec<_>>().join("\n")
}

fn one(trace: &TurnTrace, colour: bool, columns: Option<usize>) -> String {
    let mut text = format!("{}\n", Style::Bold.paint(&format!("turn {}", trace.turn), colour));
    let (style, how) = ending(trace);
    text.push_str(&format!("{}\n", style.paint(&how, colour)));
    if trace.nodes.is_empty() {
        return text;
    }
    let mut tree = Tree::default();
    tree.add(&trace.nodes, "", true, trace.turn.as_str());
    text.push_str(&tree.draw(colour, columns));
    text
}

fn ending(trace: &TurnTrace) -> (Style, String) {
    let accepted = moment(trace.accepted);
    let spent = spent(&trace.spend);
    match (trace.status, trace.started) {
        (Some(status), _) => {
            let class = trace.class.map(|class| format!(" ({})", word(&class))).unwrap_or_default();
            let style = if status == ResponseStatus::Success { Style::Dim } else { Style::Bad };
            (style, format!("{}{class}, {spent}, accepted {accepted}", word(&status)))
        }
        (None, Some(_)) => (Style::Warning, format!("it runs: {spent}, accepted {accepted}")),
        (None, None) => (Style::Warning, format!("it waits, accepted {accepted}")),
    }
}

/// The name of a status or class in the contract.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Rows of a tree, in the order in which they are drawn.
#[derive(Default)]
struct Tree {
    rows: Vec<Row>,
}

struct Row {
    /// Lines of the tree, then the name.
    name: String,
    /// Time, tokens or bytes, cost, outcome; a remark has none.
    cells: Option<[String; 4]>,
    style: Style,
}

impl Tree {
    /// `within` is the run, or turn, that the nodes are of.
    fn add(&mut self, nodes: &[TraceNode], stem: &str, root: bool, within: &str) {
        for (at, node) in nodes.iter().enumerate() {
            let last = at + 1 == nodes.len();
            let (branch, below) = match (root, last) {
                (true, _) => ("", ""),
                (false, false) => ("├─ ", "│  "),
                (false, true) => ("└─ ", "   "),
            };
            self.rows.push(row(node, &format!("{stem}{branch}"), within));
            let within = if node.kind == CallKind::Run { node.id.as_str() } else { within };
            self.add(&node.nodes, &format!("{stem}{below}"), false, within);
        }
    }

    fn draw(&self, colour: bool, columns: Option<usize>) -> String {
        let head = ["time", "tokens, bytes", "cost", "outcome"].map(str::to_owned);
        let cells: Vec<&[String; 4]> =
            [&head].into_iter().chain(self.rows.iter().filter_map(|row| row.cells.as_ref())).collect();
        let room = columns.map_or(usize::MAX, |columns| {
            let most = |column: usize| cells.iter().map(|cells| width(&cells[column])).max().unwrap_or(0);
            // Each column ends with a gap of two; that of the outcomes may wrap, its words rather not.
            let taken = most(0) + most(1) + most(2) + most(3).min(NAME) + 2 * cells[0].len();
            columns.saturating_sub(taken).max(NAME)
        });
        let mut rows = vec![[vec![String::new()], head.to_vec()].concat()];
        for row in self.rows.iter() {
            let cells = row.cells.as_ref().map(|cells| cells.to_vec()).unwrap_or_default();
            // A remark is longer than a name and stands below the others, so that it cannot widen their column.
            let name = if row.cells.is_some() { cut(&row.name, room) } else { String::new() };
            rows.push([vec![name], cells].concat());
        }
        let lines = figures(&rows, 1..4);
        let mut text = String::new();
        let styles = [Style::Dim].into_iter().chain(self.rows.iter().map(|row| row.style));
        let remarks =
            [None].into_iter().chain(self.rows.iter().map(|row| row.cells.is_none().then_some(row)));
        for ((line, style), remark) in lines.lines().zip(styles).zip(remarks) {
            let line = remark.map_or(line.to_owned(), |row| match columns {
                Some(columns) => cut(&row.name, columns),
                None => row.name.clone(),
            });
            text.push_str(&format!("{}\n", style.paint(&line, colour)));
        }
        text
    }
}

fn row(node: &TraceNode, stem: &str, within: &str) -> Row {
    let name = short(&node.name, TEXT);
    let outcome = node.outcome.as_deref().map(|outcome| short(outcome, TEXT));
    if node.kind == CallKind::Note {
        let text = format!("{stem}· {name}: {}", outcome.unwrap_or_default());
        return Row { name: text, cells: None, style: Style::Warning };
    }
    let name = if node.kind == CallKind::Run { format!("@{name}") } else { name };
    let used = match (&node.usage, node.kind) {
        (Some(usage), CallKind::Model) => {
            format!("{} → {}", count(usage.input_tokens), count(usage.output_tokens))
        }
        (Some(usage), _) => count(usage.total()),
        (None, _) => {
            let sizes: Vec<String> =
                [node.bytes_in, node.bytes_out].into_iter().flatten().map(size).collect();
            sizes.join(" → ")
        }
    };
    let cost = match (node.cost_usd, &node.usage) {
        (Some(usd), _) => money(usd),
        (None, Some(usage)) if usage.total() > 0 => "?".into(),
        (None, _) => String::new(),
    };
    let time = node.elapsed_ms.map(duration).unwrap_or_default();
    let style = style(node);
    let said =
        outcome.unwrap_or_else(|| if node.elapsed_ms.is_none() { "runs".into() } else { String::new() });
    // What went wrong can be asked about: an attempt of a model by its run, as it has no id that `why` knows.
    let id = if node.kind == CallKind::Model { within } else { node.id.as_str() };
    let outcome =
        if style == Style::Plain || id.is_empty() { said } else { format!("{said}  {}", plain(id)) };
    Row { name: format!("{stem}{name}"), cells: Some([time, used, cost, outcome]), style }
}

/// The words with which a model ends an answer; any other word is a reason why there is no answer.
const ANSWERED: [&str; 4] = ["end", "tool_calls", "length", "filter"];

fn style(node: &TraceNode) -> Style {
    let Some(outcome) = node.outcome.as_deref() else { return Style::Plain };
    if node.kind == CallKind::Model {
        return if ANSWERED.contains(&outcome) { Style::Plain } else { Style::Bad };
    }
    let first = outcome.split([':', ' ']).next().unwrap_or(outcome);
    let class: Result<FailureClass, _> = serde_json::from_value(first.into());
    match (first, class) {
        ("error" | "interrupted" | "outcome_unknown", _) => Style::Bad,
        (_, Ok(FailureClass::Refused | FailureClass::Cancelled)) => Style::Warning,
        (_, Ok(_)) => Style::Bad,
        _ => Style::Plain,
    }
}

#[cfg(test)]
mod tests;
