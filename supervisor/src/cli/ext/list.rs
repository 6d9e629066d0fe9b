//! `drupe ext list` and `drupe ext show`.

use drupe_extension_api::control::{ExtensionDetail, ExtensionStatus, Named, method};

use crate::cli::{
    Context, Facts,
    console::{Style, plain, table},
    failure::Failure,
    figures::count,
    status,
};

pub fn execute(facts: Facts, context: &Context) -> Result<u8, Failure> {
    let list: Vec<ExtensionStatus> = context.daemon().get(method::EXTENSIONS_LIST)?;
    match facts.json {
        true => context.console.json(&list)?,
        false if list.is_empty() => context.console.remark("there are no extensions"),
        false => context.console.draw(&status::extensions(&list, context.console.colour))?,
    }
    Ok(0)
}

/// Arguments of `drupe ext show`.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Its id
    id: String,
    #[command(flatten)]
    facts: Facts,
}

impl Show {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let detail: ExtensionDetail =
            context.daemon().call(method::EXTENSIONS_SHOW, &Named { id: self.id })?;
        match self.facts.json {
            true => context.console.json(&detail)?,
            false => context.console.draw(&render(&detail, context.console.colour))?,
        }
        Ok(0)
    }
}

/// What its tools add to each request that offers them, and the largest of them.
fn added(detail: &ExtensionDetail) -> String {
    let all: u64 = detail.sizes.iter().map(|size| size.bytes).sum();
    let Some(largest) = detail.sizes.iter().max_by_key(|size| size.bytes) else { return String::new() };
    let largest = format!("the most by {}: {}", largest.tool, count(largest.bytes));
    format!("{} bytes to each request that offers all its tools ({largest})", count(all))
}

fn render(detail: &ExtensionDetail, colour: bool) -> String {
    let ExtensionStatus { id, version, state, reason, capabilities, isolation, source, since } =
        &detail.status;
    let version = version.as_deref().unwrap_or_default();
    let mut text = format!("{} {}\n", Style::Bold.paint(&plain(id), colour), plain(version));
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| {
        let value = plain(value.trim()).replace('\n', " ");
        if !value.is_empty() {
            rows.push(vec![format!("  {name}"), value]);
        }
    };
    row("name", detail.name.clone());
    row("summary", detail.summary.clone());
    row("description", detail.description.clone());
    row("state", format!("{} since {since}", status::word(*state)));
    row("reason", reason.clone().unwrap_or_default());
    row("can be", capabilities.join(", "));
    row("tools", detail.tools.join(", "));
    row("adds", added(detail));
    row("depends on", detail.depends_on.join(", "));
    row("rights", detail.rights.join(", "));
    row("listening", detail.listening.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    row("isolation", isolation.clone().unwrap_or_else(|| "it has no code".into()));
    row("folder", source.clone());
    row("set up", detail.setup_instructions.clone().unwrap_or_default());
    text.push_str(&table(&rows));
    text.push_str(&format!("{}\n", Style::Bold.paint("history", colour)));
    let history = detail.history.iter().map(|change| {
        let reason = change.reason.as_deref().map(|reason| plain(&reason.replace('\n', " ")));
        vec![format!("  {}", change.time), status::word(change.state).to_owned(), reason.unwrap_or_default()]
    });
    text.push_str(&table(&history.collect::<Vec<_>>()));
    text
}
