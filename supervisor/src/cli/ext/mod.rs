//! `drupe ext`: extensions.

pub mod check;
pub mod decide;
mod list;
mod load;
mod new;

use drupe_extension_api::control::method;

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
    /// Write the source of the extension API that native extensions build against, and say where it is
    Sdk(super::Facts),
    /// Copy a folder in, check it, and let it work or say why not
    Add(decide::Add),
    /// Turn an extension on
    Enable(decide::Decide),
    /// Turn an extension off
    Disable(decide::Decide),
    /// Lift a quarantine, and try the extension again
    Release(decide::Decide),
}

impl Ext {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self {
            Self::List(facts) => list::execute(facts, context),
            Self::Show(show) => show.execute(context),
            Self::Check(check) => check.execute(context),
            Self::New(new) => new.execute(context),
            Self::Sdk(facts) => new::sdk(facts, context),
            Self::Add(add) => add.execute(context),
            Self::Enable(decide) => decide.execute(method::EXTENSIONS_ENABLE, context),
            Self::Disable(decide) => decide.execute(method::EXTENSIONS_DISABLE, context),
            Self::Release(decide) => decide.execute(method::EXTENSIONS_RELEASE, context),
        }
    }
}
