//! What the next kernel would read: the configuration, the models that it names, and the extensions of the home.

use drupe_config::{Config, Diagnostic, Loaded, Severity, load_config};
use drupe_extension_api::control::{ExtensionState, Status};
use drupe_kernel::{
    Models, beginning,
    forecast::{Expected, Forecast},
};
use drupe_prompts::Day;
use jiff::Timestamp;

use super::finding::Finding;
use crate::cli::{
    Context, config,
    models::{
        named,
        report::{Asked, Configured, Found, Presence},
    },
    secret_trial::{TriedSecret, try_all},
    status::word,
};

const CONFIGURATION: &str = "configuration";
const EXTENSIONS: &str = "extensions";
const MODELS: &str = "models";

/// How the kernel begins to say that an extension lacks something.
const NOT_CONFIGURED: &str = "not configured";

/// The configuration, where a kernel could begin with it.
pub fn look(context: &Context, findings: &mut Vec<Finding>) -> Option<Config> {
    let Loaded { value, warnings } = match load_config(&config::sources(context)) {
        Ok(loaded) => loaded,
        Err(faults) => {
            findings.extend(faults.iter().map(diagnosed));
            return None;
        }
    };
    findings.extend(warnings.iter().map(diagnosed));
    let day = Day::of(Timestamp::now().as_millisecond());
    if let Err(why) = beginning::begin(&value, context.home().path(), day, &[]) {
        let fault = Finding::fault(CONFIGURATION, format!("no kernel can begin with it: {why}"));
        findings.push(fault.fix("change it; `drupe config path` says which file it is"));
        return None;
    }
    if value.sandbox.allow_unconfined {
        let message = "`sandbox.allow_unconfined` lets programs run without bounds";
        findings.push(
            Finding::warning(CONFIGURATION, message).fix("remove it where the system can confine them"),
        );
    }
    if warnings.is_empty() {
        let file = config::sources(context).file;
        let from = file.map_or("built-in defaults".into(), |file| format!("`{}`", file.display()));
        findings.push(Finding::fine(CONFIGURATION, from));
    }
    Some(value)
}

fn diagnosed(one: &Diagnostic) -> Finding {
    let place = match one.line {
        0 => format!("`{}`", one.file.display()),
        line => format!("`{}`, line {line}", one.file.display()),
    };
    let message = format!("{place}: {}", one.message);
    let finding = match one.severity {
        Severity::Error => Finding::fault(CONFIGURATION, message),
        Severity::Warning => Finding::warning(CONFIGURATION, message),
    };
    match &one.help {
        Some(help) => finding.fix(help),
        None => finding.fix("`drupe config template` prints every key with its default"),
    }
}

/// What became of the extensions, as the daemon says, or what would without one.
pub fn extensions(config: &Config, seen: &Forecast, status: Option<&Status>, findings: &mut Vec<Finding>) {
    let before = findings.len();
    // What is wrong with a manifest is told below, by line.
    let diagnosed = |id: &str| {
        let mut faulty = seen.extensions.iter().filter(|one| one.looked.diagnostics.has_errors());
        faulty.any(|one| one.id == id)
    };
    // Somebody waits for what the operator has turned on.
    let is_wanted = |id: &str| {
        let mut named = config.extensions.overrides.iter().filter(|(named, _)| named.as_str() == id);
        named.any(|(_, extension)| extension.enabled == Some(true))
    };
    let told = |id: &str, now: ExtensionState, reason: Option<&str>| match reason {
        Some(why) if now == ExtensionState::Disabled && why.starts_with(NOT_CONFIGURED) && is_wanted(id) => {
            let message = format!("`{id}` is turned on and does not work: {why}");
            let fix = format!("give it what it lacks, then `drupe restart`; or `drupe ext disable {id}`");
            Some(Finding::warning(EXTENSIONS, message).fix(fix))
        }
        Some(_) if now == ExtensionState::Failed && diagnosed(id) => {
            state(id, now, "its manifest has faults")
        }
        reason => state(id, now, reason.unwrap_or_default()),
    };
    match status {
        Some(status) => {
            let all = status.extensions.iter();
            findings.extend(all.filter_map(|one| told(&one.id, one.state, one.reason.as_deref())));
        }
        None => {
            let all = seen.extensions.iter();
            findings.extend(all.filter_map(|one| told(&one.id, one.state, one.reason.as_deref())));
        }
    }
    findings.extend(seen.extensions.iter().flat_map(manifest));
    for over in &seen.passed {
        let message = format!("`{}` was passed over: {}", over.path.display(), over.reason);
        findings.push(
            Finding::warning(EXTENSIONS, message).fix("mend or remove it; `drupe ext check` looks at it"),
        );
    }
    findings.extend(seen.remarks.iter().map(|remark| Finding::remark(EXTENSIONS, remark)));
    if findings.len() == before {
        let there = status.map_or(seen.extensions.len(), |status| status.extensions.len());
        findings.push(Finding::fine(EXTENSIONS, format!("{there} are there, and each works or is off")));
    }
}

fn state(id: &str, state: ExtensionState, reason: &str) -> Option<Finding> {
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let message = format!("`{id}` is {}{because}", word(state));
    Some(match state {
        ExtensionState::Failed => Finding::fault(EXTENSIONS, message)
            .fix(format!("mend what it says, then `drupe ext release {id}`; or `drupe ext disable {id}`")),
        ExtensionState::Quarantined => Finding::fault(EXTENSIONS, message)
            .fix(format!("put another version in its place, or `drupe ext release {id}`")),
        ExtensionState::Degraded => Finding::warning(EXTENSIONS, message)
            .fix(format!("it is started again by itself; `drupe why {id}` says what happened")),
        ExtensionState::Skipped => {
            Finding::warning(EXTENSIONS, message).fix("it comes back with what it depends on")
        }
        ExtensionState::AwaitingApproval => Finding::warning(EXTENSIONS, message)
            .fix(format!("`drupe approvals` shows what it needs; `drupe approvals allow {id}` agrees")),
        _ => return None,
    })
}

/// What is wrong with a manifest, by line.
fn manifest(one: &Expected) -> impl Iterator<Item = Finding> {
    one.looked.diagnostics.iter().map(|found| Finding { subject: EXTENSIONS, ..diagnosed(found) })
}

/// Whether services take the secrets of the extensions that work.
pub fn secrets(config: &Config, seen: &Forecast, findings: &mut Vec<Finding>) {
    // Of one that waits for agreement nothing is sent.
    let working = seen.extensions.iter().filter(|one| one.state == ExtensionState::Active);
    for manifest in working.filter_map(|one| one.looked.manifest.as_deref()) {
        findings.extend(try_all(manifest, config).into_iter().filter_map(|(name, tried)| match tried {
            TriedSecret::Taken => None,
            TriedSecret::Refused(why) => {
                let message = format!("the service of `{}` does not take `{name}`: {why}", manifest.id);
                Some(
                    Finding::fault(EXTENSIONS, message)
                        .fix(format!("`drupe secret set {name}` keeps another one")),
                )
            }
            TriedSecret::Unknown(why) => {
                let message = format!(
                    "the service of `{}` cannot be asked whether it takes `{name}`: {why}",
                    manifest.id
                );
                Some(Finding::warning(EXTENSIONS, message).fix("look again when it can be reached"))
            }
        }));
    }
}

/// Whether what is configured is there.
pub fn models(config: &Config, seen: &Forecast, offline: bool, findings: &mut Vec<Finding>) {
    let known = match Models::new(drupe_kernel::models(config)) {
        Ok(known) => known,
        Err(error) => {
            findings
                .push(Finding::fault(MODELS, error.to_string()).fix("change `models` of the configuration"));
            return;
        }
    };
    let names = named(config, seen);
    let configured = Configured::new(config, &known, names.clone());
    let before = findings.len();
    for name in &configured.names {
        findings.extend(name.fault.iter().map(|fault| {
            Finding::fault(MODELS, format!("`{}`: {fault}", name.key))
                .fix("`drupe models list` shows what there is")
        }));
    }
    let mut remarks: Vec<_> = configured.names.iter().flat_map(|name| name.remarks.clone()).collect();
    remarks.sort();
    remarks.dedup();
    findings.extend(remarks.into_iter().map(|remark| Finding::remark(MODELS, remark)));
    let ageing = known.notices(&names, Timestamp::now().as_millisecond());
    let ageing = ageing.into_iter().map(|notice| Finding::warning(MODELS, notice));
    findings.extend(
        ageing.map(|finding| finding.fix("name a model that stays; a later release of drupe knows more")),
    );
    if !offline {
        match known.ask_lists() {
            Ok(lists) => {
                let checked = configured.check(&known, &lists);
                findings.extend(checked.providers.iter().filter_map(provider));
                findings.extend(checked.models.iter().filter_map(missing));
            }
            Err(error) => findings.push(
                Finding::warning(MODELS, format!("providers cannot be asked: {error}"))
                    .fix("`drupe models check` tries it again"),
            ),
        }
    }
    if findings.len() == before {
        let asked = if offline { "configured; no provider was asked" } else { "configured, and there" };
        findings.push(Finding::fine(MODELS, asked));
    }
}

fn provider(asked: &Asked) -> Option<Finding> {
    let fault = asked.fault.as_ref()?;
    let finding = Finding::fault(MODELS, format!("provider `{}`: {fault}", asked.name));
    Some(
        finding.fix(
            "check its key (`drupe secret list`), its address and the network; then `drupe models check`",
        ),
    )
}

fn missing(model: &Found) -> Option<Finding> {
    (model.presence == Presence::Missing).then(|| {
        let message =
            format!("`{}` is not offered any more (named by {})", model.name, model.named_by.join(", "));
        Finding::fault(MODELS, message).fix("name another one; `drupe models check` shows what is there")
    })
}
