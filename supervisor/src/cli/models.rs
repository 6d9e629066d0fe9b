//! `drupe models`: what is configured, and whether it is there. Needs no daemon. Also what other verbs know of models:
//! that a scripted one is a file, and that the offline one deserves a word.

mod draw;
pub mod report;

use std::path::Path;

use drupe_config::Config;
use drupe_extension_api::control::{ExtensionState, Status, method};
use drupe_kernel::{
    Models as Known,
    forecast::{Forecast, forecast, model_names},
};
use serde_json::Value;

use super::{
    Context, Facts,
    client::{Daemon, Pauses},
    config,
    ext::check::quarantined,
    failure::{Failure, status},
};
use report::Configured;

/// The verbs of `drupe models`.
#[derive(Debug, clap::Subcommand)]
pub enum Models {
    /// Show providers, what names lead to, and where each figure of a model is from
    List(Facts),
    /// Ask providers whether the models that are configured are there
    Check(Facts),
}

impl Models {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let config = config::load(context)?;
        let known = Known::new(drupe_kernel::models(&config))
            .map_err(|error| Failure::new(status::CONFIG, error.to_string()))?;
        let at = (context.home().path(), context.exe.as_path());
        let seen = forecast(at, &config, None, quarantined(context.home().path()));
        let configured = Configured::new(&config, &known, named(&config, &seen));
        let mut remarks: Vec<_> = configured.names.iter().flat_map(|name| name.remarks.clone()).collect();
        remarks.sort();
        remarks.dedup();
        remarks.iter().for_each(|remark| context.console.remark(remark));
        let (console, colour) = (&context.console, context.console.colour);
        match self {
            Self::List(Facts { json: true }) => console.json(&configured)?,
            Self::List(_) => console.draw(&draw::configured(&configured, colour))?,
            Self::Check(facts) => {
                let checked = configured.check(&known, &known.ask_lists()?);
                match facts.json {
                    true => console.json(&checked)?,
                    false => console.draw(&draw::checked(&checked, colour))?,
                }
                return Ok(if checked.ok { 0 } else { status::FAILED });
            }
        }
        Ok(0)
    }
}

/// The models that the configuration names, and agents that are not turned off: by what names them.
pub fn named(config: &Config, seen: &Forecast) -> Vec<(String, Vec<String>)> {
    let of_agents = seen.extensions.iter().filter(|one| one.state != ExtensionState::Disabled);
    let of_agents = of_agents.filter_map(|one| model_names(one.looked.manifest.as_ref()?, config));
    config.model_names().into_iter().chain(of_agents).collect()
}

const SCRIPTED: &str = "scripted:";

/// The name of a model for a daemon, which stands in another folder than its client.
pub fn absolute(model: &str, here: &Path) -> String {
    match model.strip_prefix(SCRIPTED) {
        Some(file) => format!("{SCRIPTED}{}", here.join(file).display()),
        None => model.to_owned(),
    }
}

/// How often a daemon is asked that does not know its model: for a second in all.
const ATTEMPTS: usize = 8;

/// What to say where the offline model answers. Whoever answers while a kernel begins does not know that, also in the moment in which it takes
/// over.
pub fn offline_notice(daemon: &Daemon<'_>) -> Option<&'static str> {
    let mut pauses = Pauses::default();
    let known = |_| {
        let status: Option<Status> = daemon.once(method::STATUS, &Value::Null).ok();
        status.and_then(|status| status.model).or_else(|| {
            pauses.sleep();
            None
        })
    };
    let model = (0..ATTEMPTS).find_map(known)?;
    is_offline(&model).then_some(
        "the offline model answers: it follows rules and is no language model; for a real one set OPENAI_API_KEY or \
         ANTHROPIC_API_KEY, or configure a provider",
    )
}

fn is_offline(model: &str) -> bool {
    model.split('/').next() == Some("offline")
}

#[cfg(test)]
mod tests;
