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
        tell(context, self.facts, &now, Wanted::Works)
    }
}

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
        let wanted = if method == method::EXTENSIONS_DISABLE { Wanted::Rests } else { Wanted::Works };
        tell(context, self.facts, &now, wanted)
    }
}

/// To which end something was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// It is to work. That it waits for an answer is what was asked for as well.
    Works,
    /// It is to work, and the answer was given.
    WorksAtOnce,
    /// It is not to work.
    Rests,
}

impl Wanted {
    /// The exit status for the state that was reached.
    pub fn status(self, state: ExtensionState) -> u8 {
        use ExtensionState::{Active, AwaitingApproval, Degraded, Discovered, Initialized, Loaded};
        match (self, state) {
            (_, Discovered | Loaded | Initialized) => exit::LATER,
            (Self::Works | Self::WorksAtOnce, Active) | (Self::Works, AwaitingApproval) => 0,
            (Self::Rests, Active | Degraded) | (Self::Works | Self::WorksAtOnce, _) => exit::FAILED,
            (Self::Rests, _) => 0,
        }
    }
}

/// Shows how it is now; the exit status says whether that is what was wanted.
fn tell(context: &Context, facts: Facts, now: &ExtensionStatus, wanted: Wanted) -> Result<u8, Failure> {
    if facts.json {
        context.console.json(now)?;
    } else {
        let text = status::extensions(std::slice::from_ref(now), context.console.colour);
        context.console.print(&text)?;
    }
    Ok(wanted.status(now.state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_state_that_was_wanted_is_a_success() {
        use ExtensionState::*;
        let all = [
            Discovered,
            Loaded,
            Initialized,
            Active,
            AwaitingApproval,
            Degraded,
            Quarantined,
            Failed,
            Skipped,
            Disabled,
            Stopped,
        ];
        for state in all {
            let begins = matches!(state, Discovered | Loaded | Initialized);
            for (wanted, good) in [
                (Wanted::Works, matches!(state, Active | AwaitingApproval)),
                (Wanted::WorksAtOnce, state == Active),
                (Wanted::Rests, !matches!(state, Active | Degraded)),
            ] {
                let expected = if begins { exit::LATER } else { u8::from(!good) };
                assert_eq!(wanted.status(state), expected, "{wanted:?} {state:?}");
            }
        }
    }
}
