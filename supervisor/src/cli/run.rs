//! `drupe run`: the daemon in the foreground, for systemd, containers, and the verbs that need one.

use std::io::{self, IsTerminal};

use drupe_extension_api::{AgentId, control::ExtensionState};
use drupe_kernel::forecast::{Expected, forecast};
use drupe_link::HomeLock;

use super::{
    Context, config,
    ext::check::quarantined,
    failure::{Failure, status},
    owner,
    status::word,
};
use crate::supervise::{self, Notify, Options};

/// Arguments of `drupe run`.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// Leave third-party extensions out
    #[arg(long)]
    safe_mode: bool,
    /// Offer only this agent; may be repeated
    #[arg(long = "agent", value_name = "ID")]
    agents: Vec<AgentId>,
}

impl Run {
    pub fn execute(self, context: Context) -> Result<u8, Failure> {
        if !self.agents.is_empty() {
            self.look_for_agents(&context)?;
        }
        owner::may_use(context.home().path())?;
        finish_restore(&context)?;
        let notify = context.environment.bytes("NOTIFY_SOCKET").and_then(|socket| {
            let usec = context.environment.text.get("WATCHDOG_USEC").and_then(|usec| usec.parse().ok());
            // An invalid address is a fault of systemd, and no reason to refuse to serve.
            Notify::new(&socket.into(), usec).ok()
        });
        Ok(supervise::run(Options {
            home: context.home.path().to_owned(),
            config: context.config,
            safe_mode: self.safe_mode,
            agents: self.agents,
            exe: context.exe,
            notify,
            human_log: io::stderr().is_terminal(),
            kernel_args: Vec::new(),
        }))
    }
}

/// A restore that was cut off is finished before anything reads the home: it is either the old one or the new one.
fn finish_restore(context: &Context) -> Result<(), Failure> {
    let home = context.home();
    if !drupe_backup::is_cut_off(home.path()) {
        return Ok(());
    }
    home.make_folders().map_err(|error| {
        Failure::unmade(&error, format!("the folders of `{}` cannot be made: {error}", home.path().display()))
    })?;
    // Whoever holds it restores at the moment, or is a daemon: the start itself says so.
    let Ok(_held) = HomeLock::take(home) else { return Ok(()) };
    if let Some(aside) = drupe_backup::complete(home.path())? {
        let aside = aside.display();
        context
            .console
            .remark(&format!("a restore that was cut off is finished; what was there before is in {aside}"));
    }
    Ok(())
}

impl Run {
    /// Fails where one of the agents is not there: a daemon that is to offer it would offer nothing, and go on.
    fn look_for_agents(&self, context: &Context) -> Result<(), Failure> {
        let config = config::load(context)?;
        let at = (context.home().path(), context.exe.as_path());
        let seen = forecast(at, &config, None, quarantined(context.home().path()));
        if let Some(why) = seen.refused {
            return Err(config::refused(&why));
        }
        let found = seen.extensions;
        for agent in &self.agents {
            let Some(known) = found.iter().find(|one| one.id == agent.as_str()) else {
                return Err(no_agent(agent, "", &found));
            };
            if !may_be_one(known) {
                return Err(no_agent(agent, ": the extension of that id has none", &found));
            }
            if known.state != ExtensionState::Active {
                let why = known.reason.as_deref().map_or_else(String::new, |why| format!(": {why}"));
                context.console.remark(&format!("agent `{agent}` is {}{why}", word(known.state)));
            }
        }
        Ok(())
    }
}

/// Whether it may bring an agent: its manifest has one, or cannot be read, or its code may say that it has.
fn may_be_one(found: &Expected) -> bool {
    let manifest = found.looked.manifest.as_ref();
    manifest.is_none_or(|manifest| manifest.agent.is_some() || manifest.entrypoint.is_some())
}

fn no_agent(agent: &AgentId, why: &str, found: &[Expected]) -> Failure {
    let known: Vec<_> =
        found.iter().filter(|one| may_be_one(one)).map(|one| format!("`{}`", one.id)).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Failure::new(status::FAILED, format!("there is no agent `{agent}`{why}"))
        .help(format!("extensions here that may be agents: {known}; `drupe ext check` says more"))
}
