//! What people and scripts type: a verb a file.
//!
//! Every verb but `run` is a client of a daemon or reads files. Nothing here knows how a daemon works: what a verb shows
//! is what the control API, or `drupe-config`, says. Clients write no logs; facts go to the standard output, everything
//! else to the standard error stream.

mod home;
mod run;

use std::{collections::BTreeMap, io::Write, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

/// An assistant that stays up.
#[derive(Parser)]
#[command(name = "drupe", version, disable_help_subcommand = true)]
struct CommandLine {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

/// What holds for every verb.
#[derive(Args)]
struct Global {
    /// The home; by default DRUPE_HOME, `sandbox/` of the checkout, or the data folder of the user
    #[arg(long, global = true, value_name = "FOLDER")]
    home: Option<PathBuf>,
    /// The configuration file; by default `drupe.yaml` of the home
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the daemon in the foreground
    Run(run::Run),
}

/// Runs the command line of this process.
pub fn main(environment: BTreeMap<String, String>) -> ExitCode {
    let line = CommandLine::parse();
    let outcome = match line.verb {
        Verb::Run(run) => run.execute(&line.global, &environment),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "drupe: {error:#}");
            ExitCode::FAILURE
        }
    }
}
