//! What an API can be asked, and what is refused when an agent is loaded.
//!
//! Nothing that an agent asks for is dropped in silence: it is sent, or refused with what to do about it.

use std::ops::RangeInclusive;

use drupe_extension_api::{ModelParameters, Reasoning};
use serde_json::Value;

use super::Facts;
use crate::{error::Unsupported, settings::Efforts};

/// The parameters that an API takes, with the keys that hold them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Takes {
    pub(crate) api: &'static str,
    pub(crate) temperature: RangeInclusive<f64>,
    /// The key of the seed; none where there is no seed.
    pub(crate) seed: Option<&'static str>,
    /// The key of the stop texts, and how many there may be; none where there are none.
    pub(crate) stop: Option<(&'static str, usize)>,
    pub(crate) reasoning: &'static str,
    /// The keys of temperature and nucleus sampling.
    pub(crate) sampling: [&'static str; 2],
    /// Keys that are always set, and that no `extra` may.
    pub(crate) reserved: &'static [&'static str],
}

/// Says what cannot be done, and what to do instead.
pub(crate) fn refuse(what: impl Into<String>) -> Result<(), Unsupported> {
    Err(Unsupported(what.into()))
}

/// Whether a model can be asked so; else what is in the way.
pub(crate) fn check(takes: &Takes, facts: &Facts, parameters: &ModelParameters) -> Result<(), Unsupported> {
    extra(takes, parameters)?;
    if parameters.temperature.is_some_and(|t| !takes.temperature.contains(&t)) {
        let (from, to) = (takes.temperature.start(), takes.temperature.end());
        return refuse(format!("`temperature` must be from {from} to {to} for {}", takes.api));
    }
    if parameters.top_p.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
        return refuse("`top_p` must be from 0 to 1");
    }
    let absent = |key: &str| {
        format!(
            "`{key}`: {} has no such parameter: remove it, or name a model of a provider that has it",
            takes.api
        )
    };
    if parameters.seed.is_some() && takes.seed.is_none() {
        return refuse(absent("seed"));
    }
    match takes.stop {
        None if !parameters.stop.is_empty() => return refuse(absent("stop")),
        Some((_, most)) if parameters.stop.len() > most => {
            return refuse(format!("it takes at most {most} texts in `stop`"));
        }
        _ => {}
    }
    abilities(facts, parameters)
}

/// What is said of the model itself.
fn abilities(facts: &Facts, parameters: &ModelParameters) -> Result<(), Unsupported> {
    let unable = |key: &str, ability: &str| {
        format!(
            "`{key}`: the model takes none: remove it, or set `models.profiles` → `{}` → `{ability}: true` if it does",
            facts.model
        )
    };
    let reasons = parameters.reasoning.is_some_and(|r| r != Reasoning::None);
    if reasons && facts.reasoning == Some(false) {
        return refuse(unable("reasoning", "reasoning"));
    }
    effort_is_taken(facts, parameters)?;
    if facts.sampling == Some(false) {
        let set = [("temperature", parameters.temperature), ("top_p", parameters.top_p)];
        if let Some((key, _)) = set.iter().find(|(_, value)| value.is_some()) {
            return refuse(unable(key, "sampling"));
        }
    }
    Ok(())
}

/// Whether the model takes the degree of reasoning that is asked for. One that does not reason at all can be told not to.
fn effort_is_taken(facts: &Facts, parameters: &ModelParameters) -> Result<(), Unsupported> {
    let asked = parameters.reasoning.zip(facts.efforts).filter(|_| facts.reasoning != Some(false));
    let Some((_, efforts)) = asked.filter(|(effort, efforts)| !efforts.has(*effort)) else { return Ok(()) };
    let named: Vec<_> = efforts.names().map(|name| format!("`{name}`")).collect();
    let refused =
        asked.and_then(|(effort, _)| Efforts::from_iter([effort]).names().next()).unwrap_or_default();
    refuse(format!(
        "`reasoning: {refused}`: the model takes {} alone: use that, remove `reasoning`, or set `models.profiles` → \
         `{}` → `efforts` if it takes more",
        named.join(" or "),
        facts.model
    ))
}

fn extra(takes: &Takes, parameters: &ModelParameters) -> Result<(), Unsupported> {
    let extra = &parameters.extra;
    if let Some(key) = takes.reserved.iter().find(|key| extra.contains_key(**key)) {
        return refuse(format!("`extra` must not set `{key}`"));
    }
    let own = [
        (Some(takes.sampling[0]), parameters.temperature.is_some()),
        (Some(takes.sampling[1]), parameters.top_p.is_some()),
        (takes.seed, parameters.seed.is_some()),
        (takes.stop.map(|(key, _)| key), !parameters.stop.is_empty()),
        (Some(takes.reasoning), parameters.reasoning.is_some()),
    ];
    let mut set = own.into_iter().filter_map(|(key, set)| key.filter(|_| set));
    match set.find(|key| extra.contains_key(*key)) {
        Some(key) => refuse(format!("`extra` sets `{key}`, which has a parameter of its own")),
        None => Ok(()),
    }
}

/// Keys of `extra` that speak of tools, in all APIs.
const OF_TOOLS: [&str; 4] = ["tool_choice", "parallel_tool_calls", "toolConfig", "tool_config"];

/// What `extra` adds to a body. An agent's tools come and go, and servers refuse a word about tools where there are
/// none: it is left out then.
pub(crate) fn further(
    parameters: &ModelParameters,
    has_tools: bool,
) -> impl Iterator<Item = (&String, &Value)> {
    parameters.extra.iter().filter(move |(key, _)| has_tools || !OF_TOOLS.contains(&key.as_str()))
}

/// The effort of reasoning to send, in the word that OpenAI's APIs have for it. A model that does not reason is not
/// told to stop it.
pub(crate) fn effort(facts: &Facts, parameters: &ModelParameters) -> Option<&'static str> {
    let effort = match parameters.reasoning? {
        Reasoning::None if facts.reasoning == Some(false) => return None,
        Reasoning::None => "none",
        Reasoning::Low => "low",
        Reasoning::Medium => "medium",
        Reasoning::High => "high",
    };
    Some(effort)
}
