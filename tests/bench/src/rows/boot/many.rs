//! Starts with many extensions in the home: the first one of a home, and those after it.

use anyhow::Result;

use super::milliseconds;
use crate::{
    daemon::Daemon,
    model::Model,
    report::{Row, Unit, median},
    settings::Settings,
};

/// Homes for each number of extensions; each is started twice.
const HOMES: usize = 5;

/// How much longer than without them a thousand agents may take.
const THOUSAND_AGENTS_MS: f64 = 500.0;

/// How long a hundred extensions with code may take.
const HUNDRED_NATIVE_MS: f64 = 1000.0;

/// What is put into a home.
#[derive(Clone, Copy)]
enum Kind {
    Agents,
    Native(&'static str),
}

impl Kind {
    fn put(self, daemon: &Daemon, at: usize) -> Result<()> {
        match self {
            Self::Agents => daemon.agent(&format!("agent{at}")),
            Self::Native(isolation) => daemon.native(&format!("native{at}"), isolation),
        }
    }

    fn what(self, count: usize) -> String {
        match self {
            Self::Agents => format!("{count} agents without code"),
            Self::Native("process") => format!("{count} native extensions, a process each"),
            Self::Native(_) => format!("{count} native extensions in process"),
        }
    }
}

/// Measures.
pub fn measure(model: &Model, rows: &mut Vec<Row>) -> Result<()> {
    let none = starts(model, Kind::Agents, 0)?;
    for (kind, counts) in [
        (Kind::Agents, &[10, 100, 1000][..]),
        (Kind::Native("inproc"), &[10, 100]),
        (Kind::Native("process"), &[10, 100]),
    ] {
        for count in counts.iter().copied() {
            let what = format!("`drupe run` to ready, shipped and {}", kind.what(count));
            let row = match starts(model, kind, count) {
                Err(error) => Row::failed(&what, &error),
                Ok(taken) => {
                    let beside = format!(
                        "the first start of the home: {}; {} more than without them",
                        Unit::Millis.show(taken.first),
                        Unit::Millis.show(taken.later - none.later)
                    );
                    let row = match (kind, count) {
                        (Kind::Agents, 1000) => {
                            let most = none.later + THOUSAND_AGENTS_MS;
                            Row::most(what, taken.later, Unit::Millis, most)
                        }
                        (Kind::Native(_), 100) => {
                            Row::most(what, taken.later, Unit::Millis, HUNDRED_NATIVE_MS)
                        }
                        _ => Row::plain(what, taken.later, Unit::Millis),
                    };
                    row.beside(beside)
                }
            };
            rows.push(row);
        }
    }
    Ok(())
}

/// Medians of what starts took, in milliseconds.
struct Taken {
    first: f64,
    later: f64,
}

fn starts(model: &Model, kind: Kind, count: usize) -> Result<Taken> {
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for _ in 0..HOMES {
        let daemon = Daemon::home(model.address(), Settings::default())?;
        for at in 0..count {
            kind.put(&daemon, at)?;
        }
        daemon.settle();
        for times in [&mut first, &mut later] {
            times.push(milliseconds(daemon.start_whole()?));
            daemon.stop()?;
        }
    }
    Ok(Taken { first: median(first), later: median(later) })
}
