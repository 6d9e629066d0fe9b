//! Measures drupe as its users run it: whole processes of a release build, against a model that answers at once.
//!
//! `cargo run --release -p drupe-bench [-- ROW…]` builds what it measures and prints one table; with `--as-built` it
//! measures what was built before. See `docs/performance.md`. It asserts nothing: a busy machine would make it lie. It is
//! no part of the product and of no test. The same program is started again as the model and as the floor, so that what
//! they use is not counted as the daemon's, nor the daemon's as theirs; and as a peer it is measured by others.

mod connection;
mod daemon;
mod door;
mod floor;
mod idle;
mod load;
mod model;
mod peer;
mod process;
mod report;
mod rows;
mod settings;
mod soak;
mod turns;

use anyhow::{Context, Result, bail};

/// Leaves building to whoever runs this.
const AS_BUILT: &str = "--as-built";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(model::ROLE) => model::main(&arguments[1..]),
        Some(floor::ROLE) => floor::main(&arguments[1..]),
        Some(peer::ROLE) => peer::main(&arguments[1..]),
        Some(soak::ROLE) => soak::main(&arguments[1..]),
        Some(idle::ROLE) => idle::main(&arguments[1..]),
        _ => {
            let as_built = arguments.iter().any(|argument| argument == AS_BUILT);
            let wanted: Vec<String> = arguments.into_iter().filter(|argument| argument != AS_BUILT).collect();
            if !as_built {
                process::build().context("the release build")?;
            }
            table(&wanted)
        }
    }
}

fn table(wanted: &[String]) -> Result<()> {
    if let Some(unknown) = wanted.iter().find(|w| !rows::ALL.iter().any(|(name, _)| name == w)) {
        let names: Vec<&str> = rows::ALL.iter().map(|(name, _)| *name).collect();
        bail!("there is no row `{unknown}`; there are: {}", names.join(", "));
    }
    report::head();
    for (name, measure) in rows::ALL {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            match measure() {
                Ok(rows) => rows.iter().for_each(report::Row::print),
                // One that fails does not take the others along.
                Err(error) => report::Row::failed(name, &error).print(),
            }
        }
    }
    Ok(())
}
