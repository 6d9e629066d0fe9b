//! `drupe ext add`, `enable`, `disable` and `release`: what the operator decides about an extension.

use std::path::PathBuf;

use drupe_extension_api::control::{ExtensionState, ExtensionStatus, Named, PathArgument, method};

use crate::cli::{
    Context, Facts,
    failure::{Failure, status as exit},
    status,
};

/// Arguments of `drupe ext add`.
#[derive(Debug, clap::Args)]
pub struct Add {
    /// The folder; its name is the id that its manifest says
    path: PathBuf,
    #[command(flatten)]
    facts: Facts,
}

impl Add {
    /// Copies it in; the daemon checks it, and takes it in at once.
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let path = context.here.join(&self.path);
        let path = path.canonicalize().map_err(|error| {
            Failure::new(exit::FAILED, format!("`{}` cannot be read: {error}", path.display()))
        })?;
        let path = path.display().to_string();
        let now = context.daemon().decide(method::EXTENSIONS_ADD, &PathArgument { path })?;
        tell(context, self.facts, &now)
    }
}

/// Arguments of the others.
#[derive(Debug, clap::Args)]
pub struct Decide {
    /// Its id
    id: String,
    #[command(flatten)]
    facts: Facts,
}

impl Decide {
    /// Lets the daemon do it.
    pub fn execute(self, method: &'static str, context: &Context) -> Result<u8, Failure> {
        let now = context.daemon().decide(method, &Named { id: self.id })?;
        tell(context, self.facts, &now)
    }
}

/// Shows how it is now. One that failed is a failure; one that waits for an answer, or is off, is what was asked for.
fn tell(context: &Context, facts: Facts, now: &ExtensionStatus) -> Result<u8, Failure> {
    if facts.json {
        context.console.json(now)?;
    } else {
        let text = status::extensions(std::slice::from_ref(now), context.console.colour);
        context.console.print(&text)?;
    }
    let failed = matches!(now.state, ExtensionState::Failed | ExtensionState::Skipped);
    Ok(if failed { exit::FAILED } else { 0 })
}
