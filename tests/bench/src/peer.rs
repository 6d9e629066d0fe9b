//! Drupe beside other programs: the small command line that harnesses for comparing agent frameworks speak.
//!
//! `drupe-bench peer --durability memory|process|full [--drupe PATH] -- MODE URL …` starts a daemon in a home of its
//! own against a model server that is there already, does what the mode says, prints one line of JSON and ends. The
//! scenario is the model's name. As in other peers the agent has one tool, and what asks is not part of the figures:
//! processor time and memory are those of supervisor, kernel and hosts.

mod modes;

use std::{io::Write as _, path::PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{
    daemon::Daemon,
    load,
    process::Cores,
    settings::{Settings, Shipped},
    turns::{TOOLS, Work},
};

/// The argument that makes this program a peer.
pub const ROLE: &str = "peer";

/// The agent to which is delegated; its model is another, and the name of its tool is what the first looks for.
const KEEPER: &str = "id: keeper\nname: Keeper\ndescription: Delegate a lookup to the sub-agent.\nagent:\n  \
     model: bench/sub\n  instructions: You are a helpful agent. Answer briefly.\n  uses_tools: [kv/kv_get]\n";

/// Does what the arguments say.
pub fn main(arguments: &[String]) -> Result<()> {
    let asked = Asked::parse(arguments)?;
    if let Some(result) = load::runtime()?.block_on(modes::run(&asked))? {
        writeln!(std::io::stdout(), "{result}")?;
    }
    Ok(())
}

/// What shall be measured, and of what.
#[derive(Debug)]
struct Asked {
    durability: &'static str,
    drupe: Option<PathBuf>,
    mode: Mode,
    address: String,
}

/// What shall be measured.
#[derive(Debug, PartialEq)]
enum Mode {
    /// Answer once.
    Cold,
    /// So many turns one after another.
    Sequence(Scenario, usize),
    /// So many conversations at once, for some seconds.
    AtOnce(Scenario, usize, f64),
    /// Memory with so many conversations of two turns.
    Memory(usize),
    /// One turn with so many tools in its request.
    Bytes(usize),
}

/// A kind of turn.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scenario {
    /// Fetched whole.
    Whole(Work),
    /// An answer that is watched as it comes.
    Stream,
}

impl Scenario {
    fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "echo" => Self::Whole(Work::Echo),
            "tool" => Self::Whole(Work::Tool),
            "delegate" => Self::Whole(Work::Delegate),
            "fanout" => Self::Whole(Work::Fanout),
            "stream" => Self::Stream,
            other => bail!("there is no scenario `{other}`"),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Whole(work) => work.name(),
            Self::Stream => "stream",
        }
    }

    /// The model that plays it.
    fn model(self) -> &'static str {
        match self {
            Self::Whole(Work::Delegate) => "orch",
            Self::Stream => "echo",
            Self::Whole(work) => work.name(),
        }
    }

    /// The tool that the first agent has, beside agents.
    fn tool(self) -> Option<&'static str> {
        match self {
            Self::Whole(Work::Delegate) => None,
            Self::Whole(Work::Fanout) => Some("bench_tools/slow"),
            Self::Whole(_) | Self::Stream => Some("kv/kv_get"),
        }
    }
}

impl Asked {
    fn parse(arguments: &[String]) -> Result<Self> {
        let at = arguments.iter().position(|argument| argument == "--").context("`--` is missing")?;
        let (mut durability, mut drupe) = (None, None);
        for pair in arguments[..at].chunks(2) {
            match pair {
                [key, value] if key == "--durability" => {
                    durability = ["memory", "process", "full"].into_iter().find(|known| known == value);
                }
                [key, path] if key == "--drupe" => drupe = Some(PathBuf::from(path)),
                _ => bail!("`{}` is no option", pair.join(" ")),
            }
        }
        let [mode, url, rest @ ..] = &arguments[at + 1..] else { bail!("a mode and an address are missing") };
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let mode = match (mode.as_str(), rest.as_slice()) {
            ("cold", []) => Mode::Cold,
            ("seq", [scenario, turns]) => Mode::Sequence(Scenario::parse(scenario)?, turns.parse()?),
            ("conc", [scenario, sessions, seconds]) => {
                Mode::AtOnce(Scenario::parse(scenario)?, sessions.parse()?, seconds.parse()?)
            }
            ("rss", [sessions]) => Mode::Memory(sessions.parse()?),
            ("bytes", [tools]) => Mode::Bytes(tools.parse()?),
            (mode, _) => bail!("there is no mode `{mode} {}`", rest.join(" ")),
        };
        Ok(Self {
            durability: durability.context("`--durability memory|process|full` is missing")?,
            drupe,
            mode,
            address: url.trim_start_matches("http://").to_owned(),
        })
    }

    /// A daemon that serves, made for this mode.
    fn daemon(&self) -> Result<Daemon> {
        let scenario = match self.mode {
            Mode::Sequence(scenario, _) | Mode::AtOnce(scenario, ..) => scenario,
            Mode::Cold | Mode::Memory(_) | Mode::Bytes(_) => Scenario::Whole(Work::Echo),
        };
        let records = if let Mode::Bytes(tools) = self.mode { tools.saturating_sub(1) } else { 0 };
        let more = (0..records).map(|at| format!("{TOOLS}/record_{at}"));
        let settings = Settings {
            durability: self.durability,
            extensions: Vec::new(),
            shipped: Shipped::Kv,
            model: scenario.model(),
            tools: Some(scenario.tool().into_iter().map(str::to_owned).chain(more).collect()),
            drupe: self.drupe.clone(),
            // Whoever starts a peer has chosen.
            cores: Cores::Any,
        };
        let daemon = Daemon::home(&self.address, settings)?;
        if scenario == Scenario::Whole(Work::Delegate) {
            daemon.keeper(KEEPER)?;
        }
        if scenario == Scenario::Whole(Work::Fanout) || records > 0 {
            daemon.tools(TOOLS, records)?;
        }
        daemon.start_whole()?;
        Ok(daemon)
    }
}

/// What a mode gives for printing.
type Line = Option<Value>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_that_of_other_peers() {
        let mode = |line: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            Asked::parse(&arguments).map(|asked| asked.mode).map_err(|error| error.to_string())
        };
        for (line, expected) in [
            ("--durability full -- cold http://h:1", Some(Mode::Cold)),
            (
                "--durability full --drupe /d -- seq http://h:1 tool 7",
                Some(Mode::Sequence(Scenario::Whole(Work::Tool), 7)),
            ),
            (
                "--durability memory -- conc http://h:1 stream 64 3",
                Some(Mode::AtOnce(Scenario::Stream, 64, 3.0)),
            ),
            ("--durability process -- rss http://h:1 1000", Some(Mode::Memory(1000))),
            ("--durability process -- bytes http://h:1 10", Some(Mode::Bytes(10))),
            ("--durability none -- cold http://h:1", None),
            ("--durability full -- cold", None),
            ("--durability full cold http://h:1", None),
            ("--durability full -- seq http://h:1 dance 7", None),
        ] {
            assert_eq!(mode(line).ok(), expected, "{line}");
        }
    }
}
