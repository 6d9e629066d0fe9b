//! `drupe config`: what holds, and who set it. Needs no daemon: it reads what the next kernel would read.

use drupe_config::{
    Config as Configuration, DEFAULT_CONFIG, Sources, config_schema, default_file, load_config,
    manifest_schema,
};
use drupe_kernel::beginning;
use drupe_prompts::Day;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{
    Context, Facts,
    console::{Style, plain, table},
    failure::{Failure, status},
};

/// The verbs of `drupe config`.
#[derive(Debug, clap::Subcommand)]
pub enum Config {
    /// Show every value with its origin; secrets are masked
    Show(Facts),
    /// Print a JSON Schema, for editors
    Schema(SchemaArgs),
    /// Print the path of the configuration file
    Path(Facts),
    /// Print a commented configuration file with every default
    Template,
}

/// Arguments of `drupe config schema`.
#[derive(Debug, clap::Args)]
pub struct SchemaArgs {
    /// Of `drupe.yaml`, or of an extension's `manifest.yaml`
    #[arg(value_enum, default_value = "config")]
    of: Of,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Of {
    Config,
    Manifest,
}

/// What `config path --json` prints.
#[derive(Debug, Serialize)]
struct ConfigPath {
    home: String,
    file: String,
    exists: bool,
}

impl Config {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self {
            Self::Show(facts) => show(facts, context)?,
            Self::Schema(SchemaArgs { of: Of::Config }) => context.console.json(&config_schema())?,
            Self::Schema(SchemaArgs { of: Of::Manifest }) => context.console.json(&manifest_schema())?,
            Self::Path(facts) => path(facts, context)?,
            Self::Template => context.console.print(DEFAULT_CONFIG)?,
        }
        Ok(0)
    }
}

/// What the next kernel would read. Faults and warnings are said.
pub fn load(context: &Context) -> Result<Configuration, Failure> {
    let loaded = load_config(&sources(context)).map_err(|faults| {
        context.console.remark_drawn(faults.render(context.console.colour_err).trim_end());
        Failure::said(status::CONFIG)
    })?;
    if !loaded.warnings.is_empty() {
        context.console.remark_drawn(loaded.warnings.render(context.console.colour_err).trim_end());
    }
    Ok(loaded.value)
}

/// Where the next kernel would read it.
pub fn sources(context: &Context) -> Sources {
    let home = context.home().path();
    Sources {
        file: context.config.clone().or_else(|| default_file(home)),
        home: home.to_owned(),
        environment: context.environment.text.clone(),
        overrides: Vec::new(),
    }
}

/// A configuration without a fault of its own, with which no kernel can begin.
pub fn refused(why: &str) -> Failure {
    Failure::new(status::CONFIG, format!("no kernel can begin with this configuration: {why}"))
        .help("`drupe config path` says which file it is")
}

fn show(facts: Facts, context: &Context) -> Result<(), Failure> {
    let config = load(context)?;
    list(&config.effective(), facts, context)?;
    let day = Day::of(Timestamp::now().as_millisecond());
    // Also of one that is refused it helps to see who set what.
    beginning::begin(&config, context.home().path(), day, &[]).map(drop).map_err(|why| refused(&why))
}

fn list(values: &[drupe_config::EffectiveValue], facts: Facts, context: &Context) -> Result<(), Failure> {
    if facts.json {
        return context.console.json(&values);
    }
    let colour = context.console.colour;
    let row = |value: &drupe_config::EffectiveValue| {
        let shown = match &value.value {
            Value::String(text) => plain(text).replace('\n', "\\n"),
            other => plain(&other.to_string()),
        };
        vec![value.key.clone(), shown, format!("# {}", value.origin)]
    };
    let lines = table(&values.iter().map(row).collect::<Vec<_>>());
    let painted = lines.lines().zip(values).map(|(line, value)| {
        let set = value.origin != drupe_config::ValueOrigin::Default;
        let style = if set { Style::Bold } else { Style::Plain };
        style.paint(line, colour) + "\n"
    });
    context.console.print(&painted.collect::<String>())
}

fn path(facts: Facts, context: &Context) -> Result<(), Failure> {
    let home = context.home().path();
    let file = context.config.clone().unwrap_or_else(|| home.join("drupe.yaml"));
    let exists = file.symlink_metadata().is_ok();
    if facts.json {
        let (home, file) = (home.display().to_string(), file.display().to_string());
        return context.console.json(&ConfigPath { home, file, exists });
    }
    if !exists {
        context
            .console
            .remark("the file does not exist, so built-in defaults hold; `drupe config template` prints one");
    }
    context.console.print(&context.console.harmless(&file.display().to_string()))
}
