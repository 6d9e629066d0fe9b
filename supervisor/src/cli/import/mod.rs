//! `drupe import`: agents, skills and MCP servers of another assistant. It plans, and does exactly that plan.

pub mod adopt;
mod forms;
mod gather;
mod places;
mod plan;
mod servers;
mod skills;
pub mod staged;
mod survey;

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{
    Context, Facts, config,
    console::{plain, table},
    failure::{Failure, status},
};
use places::{Chosen, PRESETS};
pub use plan::LeftOut;
use plan::{ImportState, PlannedItem};
use survey::Survey;
pub use survey::make_agent;

/// The exit status of BSD for an input that is not there, EX_NOINPUT.
const NOTHING: u8 = 66;

#[derive(Debug, clap::Args)]
pub struct ImportFolder {
    /// A project, a user's folder or an assistant's own, such as `.claude`; or the name of an assistant, for what it has in your
    /// home folder: claude-code, codex, copilot, opencode, gemini, agents
    #[arg(value_name = "FOLDER|ASSISTANT")]
    source: PathBuf,
    /// Do what is planned; without it nothing is written
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, Serialize)]
struct ImportReport<'a> {
    folder: &'a Path,
    applied: bool,
    items: &'a [PlannedItem],
    remarks: &'a [String],
}

impl ImportFolder {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let chosen = self.chosen(context)?;
        let configuration = config::load(context)?;
        let mut plan = Survey::new(&chosen, &configuration, context).plan(&chosen.places)?;
        if plan.items.is_empty() {
            return Err(nothing(&chosen));
        }
        if self.apply {
            plan.apply(context)?;
        }
        let (items, remarks) = (&plan.items, &plan.remarks);
        if self.facts.json {
            let (folder, applied) = (chosen.root.as_path(), self.apply);
            context.console.json(&ImportReport { folder, applied, items, remarks })?;
        } else {
            context.console.draw(&render(items))?;
            remarks.iter().for_each(|remark| context.console.remark(remark));
            context.console.remark(&summary(items, self.apply));
        }
        let refused = items.iter().any(|item| item.state == ImportState::Refused);
        Ok(if self.apply && refused { status::FAILED } else { 0 })
    }

    fn chosen(&self, context: &Context) -> Result<Chosen, Failure> {
        if let Some(name) = self.source.to_str().filter(|name| PRESETS.contains(name)) {
            let home = context.environment.path("HOME").ok_or_else(|| {
                Failure::new(status::FAILED, "`HOME` is not set, so that nobody knows your home folder")
                    .help("name the folder itself")
            })?;
            return places::preset(name, home)
                .ok_or_else(|| Failure::new(NOTHING, "there is no such assistant"));
        }
        let path = context.here.join(&self.source);
        // It was named, so that it may be a link; nothing in it is followed.
        let path = path.canonicalize().map_err(|error| {
            Failure::new(NOTHING, format!("`{}` cannot be read: {error}", path.display()))
                .help(format!("name a folder, or one of {}", PRESETS.join(", ")))
        })?;
        if let Err(error) = std::fs::read_dir(&path) {
            let message = format!("`{}` cannot be read as a folder: {error}", path.display());
            return Err(Failure::new(NOTHING, message)
                .help("name the folder in which `.claude`, `.codex` or the like lies"));
        }
        Ok(places::folder(path))
    }
}

fn nothing(chosen: &Chosen) -> Failure {
    let looked: Vec<&str> = chosen.places.iter().map(|place| place.path).collect();
    let message = format!("`{}` has nothing to import", chosen.root.display());
    Failure::new(NOTHING, message).help(format!("looked for: {}", looked.join(", ")))
}

fn word(state: ImportState) -> &'static str {
    match state {
        ImportState::New => "new",
        ImportState::Made => "made",
        ImportState::There => "there",
        ImportState::Refused => "not",
    }
}

fn render(items: &[PlannedItem]) -> String {
    let row = |item: &PlannedItem| {
        let to = item.to.as_ref().filter(|_| item.state != ImportState::Refused);
        let to = to.map_or_else(String::new, |to| format!("→ {}", to.display()));
        vec![
            word(item.state).to_owned(),
            item.kind.name().to_owned(),
            plain(&item.id),
            plain(&item.from),
            plain(&to),
        ]
    };
    let rows = table(&items.iter().map(row).collect::<Vec<_>>());
    let mut text = String::new();
    for (line, item) in rows.lines().zip(items) {
        text += &format!("{line}\n");
        if let Some(why) = &item.why {
            text += &format!("    {}\n", plain(why).replace('\n', " "));
        }
        for left in &item.left_out {
            let key = if left.key.is_empty() { String::new() } else { format!(" `{}`", plain(&left.key)) };
            text += &format!("    left out{key}: {}\n", plain(&left.why).replace('\n', " "));
        }
        for note in &item.notes {
            text += &format!("    {}\n", plain(note).replace('\n', " "));
        }
    }
    text
}

fn summary(items: &[PlannedItem], applied: bool) -> String {
    let count = |state| items.iter().filter(|item| item.state == state).count();
    let (new, made, refused) =
        (count(ImportState::New), count(ImportState::Made), count(ImportState::Refused));
    let not =
        if refused == 0 { String::new() } else { format!("; {refused} of {} cannot come over", items.len()) };
    match (applied, new, made) {
        (_, 0, 0) if refused == 0 => "everything is there already".to_owned(),
        (_, 0, 0) => format!("there is nothing to do{not}"),
        (false, ..) => format!("nothing was written: `--apply` makes {new}{not}"),
        (true, ..) => {
            let servers = items
                .iter()
                .any(|item| item.state == ImportState::Made && item.kind == plan::ImportKind::McpServer);
            let servers = match servers {
                true => {
                    "; servers are turned off: look at each, then write `enabled: true` for it and for `extensions.mcp`, and `drupe restart`"
                }
                false => "",
            };
            format!("{made} made{not}{servers}")
        }
    }
}
