//! An extension: its state, how it came to it, and what leads out of it.

use drupe_extension_api::control::{Cited, Explanation, ExtensionDetail, ExtensionState, StateChange};

use crate::{
    told::{Told, cited},
    words::{excerpt, name, sentence},
};

/// Why an extension is in its state.
pub fn why_extension(detail: &ExtensionDetail) -> Explanation {
    let status = &detail.status;
    let id = &status.id;
    let mut told = Told::of("extension", id);
    let reason = status.reason.as_deref().map(|reason| format!(": {}", excerpt(reason))).unwrap_or_default();
    let state = said(status.state);
    let now = cited("kernel", format!("extensions/{id}"), format!("{}{reason}", name(&status.state)));
    told.say(sentence(&format!("`{id}` {state} since {}{reason}", status.since)), [now.clone()]);
    if let Some(remedy) = remedy(detail) {
        told.remedy(remedy);
    }
    if status.state == ExtensionState::Skipped && !detail.depends_on.is_empty() {
        let others: Vec<_> = detail.depends_on.iter().map(|other| format!("`{other}`")).collect();
        told.say(format!("It depends on {}.", others.join(", ")), [now]);
    }
    for change in detail.history.iter().rev() {
        let why = change.reason.as_deref().map(|why| format!(": {}", excerpt(why))).unwrap_or_default();
        let text = format!("at {} it became {}{why}", change.time, name(&change.state).replace('_', " "));
        told.say(sentence(&text), [row(id, change)]);
    }
    told.done()
}

fn row(id: &str, change: &StateChange) -> Cited {
    let why = change.reason.as_deref().map(|why| format!(": {}", excerpt(why))).unwrap_or_default();
    cited("extension_states", format!("{id}/{}", change.time), format!("{}{why}", name(&change.state)))
}

fn said(state: ExtensionState) -> &'static str {
    match state {
        ExtensionState::Discovered => "was found and has not been loaded,",
        ExtensionState::Loaded => "is loaded and has not been initialized,",
        ExtensionState::Initialized => "is initialized and has not been started,",
        ExtensionState::Active => "works",
        ExtensionState::AwaitingApproval => "waits for the operator's agreement",
        ExtensionState::Degraded => "failed while it worked and is to be started again,",
        ExtensionState::Quarantined => "is in quarantine",
        ExtensionState::Failed => "cannot work",
        ExtensionState::Skipped => "is left out, as something that it depends on is not there,",
        ExtensionState::Disabled => "is turned off",
        ExtensionState::Stopped => "is stopped",
    }
}

/// What leads out of the state; what the extension says of its setup goes before.
fn remedy(detail: &ExtensionDetail) -> Option<String> {
    let id = &detail.status.id;
    let setup = || detail.setup_instructions.as_deref().map(excerpt);
    match detail.status.state {
        ExtensionState::AwaitingApproval => Some(format!("`drupe approvals allow {id}` lets it work")),
        ExtensionState::Quarantined => {
            Some(format!("replace it, or try it again with `drupe ext release {id}`"))
        }
        ExtensionState::Failed => {
            Some(setup().unwrap_or_else(|| {
                format!("correct its files, or try it again with `drupe ext release {id}`")
            }))
        }
        ExtensionState::Skipped => Some("mend what it depends on".into()),
        ExtensionState::Disabled => {
            Some(setup().unwrap_or_else(|| format!("`drupe ext enable {id}` turns it on")))
        }
        _ => None,
    }
}
