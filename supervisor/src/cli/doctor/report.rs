//! What somebody who helps needs to know, as Markdown: no secret, and nothing that was said in a conversation.

use std::fmt::Write as _;

use drupe_config::{Config, EnvFile, Secret};
use drupe_extension_api::control::Status;
use drupe_redact::{Redactor, names_a_secret};
use jiff::Timestamp;

use super::finding::{self, Finding};
use crate::{
    cli::{Context, status},
    supervise::record::Record,
};

/// The shortest value of the environment that counts as a secret because of its name: a shorter one would take words of the
/// report with it.
const SHORTEST: usize = 4;

pub fn write(
    context: &Context,
    (config, status): (Option<&Config>, Option<&Status>),
    now: Timestamp,
    findings: &[Finding],
) -> String {
    let mut text = format!(
        "# Report of `drupe doctor`, {now}\n\ndrupe {}, {}, {}\n\n## Findings\n\n{}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        system(),
        fenced(&finding::render(findings, false)),
    );
    let _ = write!(
        text,
        "## Configuration\n\nValues that are not defaults:\n\n{}\n",
        fenced(&configured(config))
    );
    let shown = status.map(|status| status::extensions(&status.extensions, false));
    let _ = write!(text, "## Extensions\n\n{}\n", fenced(shown.as_deref().unwrap_or("no daemon runs\n")));
    let _ = write!(text, "## Last ends of kernels\n\n{}", fenced(&ends(context)));
    redactor(context).owned(text)
}

/// What knows the secrets of this home: those of `.env`, and variables whose name says that they are one.
fn redactor(context: &Context) -> Redactor {
    let redactor = Redactor::default();
    // One that a daemon would refuse is told among the findings, by its lines and not by what stands in them.
    if let Ok(kept) = EnvFile::of(context.home().path()) {
        redactor.learn(kept.values().iter().map(Secret::expose));
    }
    let variables = &context.environment.text;
    let named = variables.iter().filter(|(name, value)| names_a_secret(name) && value.len() >= SHORTEST);
    redactor.learn(named.map(|(_, value)| value.as_str()));
    redactor
}

/// A block that its content cannot end.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}\n", text.trim_end())
}

fn configured(config: Option<&Config>) -> String {
    let Some(config) = config else { return "it has faults\n".into() };
    let set = config.effective();
    let set = set.iter().filter(|value| value.origin != drupe_config::ValueOrigin::Default);
    let lines: String =
        set.map(|value| format!("{} = {} ({})\n", value.key, value.value, value.origin)).collect();
    if lines.is_empty() { "none\n".into() } else { lines }
}

/// How kernels ended, with their last lines: the daemon's own words, and none of a conversation.
fn ends(context: &Context) -> String {
    let record = Record::open(context.home());
    let mut text = String::new();
    for exit in record.exits() {
        let _ = writeln!(text, "{} generation {}: {}", exit.time, exit.generation, exit.how);
        for line in &exit.last_lines {
            let _ = writeln!(text, "    {line}");
        }
    }
    if text.is_empty() { "none\n".into() } else { text }
}

/// The kernel of the system and its distribution.
fn system() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let named = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let named = named.map_or("an unknown system", |name| name.trim_matches('"'));
    format!("Linux {} on {named}", kernel.trim())
}
