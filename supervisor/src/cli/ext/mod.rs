//! `drupe ext`: extensions.

mod check;
mod list;
mod new;

use super::{Context, failure::Failure};

/// The verbs of `drupe ext`.
#[derive(Debug, clap::Subcommand)]
pub enum Ext {
    /// List the extensions of the daemon with their states
    List(super::Facts),
    /// Show an extension in full
    Show(list::Show),
    /// Check extensions without a daemon: every fault, with its place
    Check(check::Check),
    /// Make a new extension
    #[command(subcommand)]
    New(new::New),
}

impl Ext {
    /// Does it.
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self {
            Self::List(facts) => list::execute(facts, context),
            Self::Show(show) => show.execute(context),
            Self::Check(check) => check.execute(context),
            Self::New(new) => new.execute(context),
        }
    }
}
