//! What is gathered for the orchestrator before it is asked: what extensions have to say, notes of projects, and what is missing.

use drupe_agent::run::TurnRoot;
use drupe_extension_api::{EventBody, wire::TurnContext};
use drupe_journal::{QueuedTurn, StoreError};
use drupe_prompts::beneath::{self, NoFileText};
use drupe_wiring::Snapshot;

use super::{Turns, plan::Plan};

/// The most bytes of one file with notes of a project.
const PROJECT_NOTES: u64 = 16 * 1024;

/// Gathers for the orchestrator what extensions have to say, and says what is missing.
pub async fn prepare(
    turns: &Turns,
    snapshot: &Snapshot,
    queued: &QueuedTurn,
    root: &TurnRoot,
    plan: &mut Plan,
) -> Result<(), StoreError> {
    let ask = &queued.inbound.ask;
    let mut remarks: Vec<(&str, String)> = Vec::new();
    remarks.extend(snapshot.away.iter().map(|away| ("unavailable", away.told())));
    // A run that goes on has what was gathered for it then.
    if gathers(snapshot, plan) && root.run().recorded().is_none() {
        let context = TurnContext { session: ask.session.clone(), message: ask.text.clone() };
        let tokens = turns.roster.base.config.orchestrator.context_tokens;
        let gathered = snapshot.contexts.gather(&context, root.run(), tokens).await;
        plan.task.notes.extend(gathered.notes);
        if let Some(source) = gathered.untrusted {
            root.run().tainted_by(&source);
        }
        remarks.extend(gathered.remarks.into_iter().map(|remark| ("context", remark)));
    }
    if root.run().recorded().is_none() {
        remarks.extend(
            project_notes(turns, root, plan).await.into_iter().map(|remark| ("project_notes", remark)),
        );
    }
    if remarks.is_empty() {
        return Ok(());
    }
    let told = |(code, message): &(&str, String)| {
        (None, EventBody::Diagnostic { code: (*code).to_owned(), message: message.clone() })
    };
    let told = remarks.iter().map(told).collect();
    turns.store.record_events(ask.session.clone(), Some(queued.turn.clone()), told).await?;
    root.run().scope.remark(remarks.iter().map(|(code, message)| format!("{code}: {message}")));
    Ok(())
}

/// Gives the task the notes of projects that lie in the workspace; what of them cannot be read is a remark.
async fn project_notes(turns: &Turns, root: &TurnRoot, plan: &mut Plan) -> Vec<String> {
    let base = &turns.roster.base;
    let mut remarks = Vec::new();
    for name in &base.config.orchestrator.project_notes {
        let (folder, path) = (base.home.workspace().clone(), name.clone());
        let read = tokio::task::spawn_blocking(move || beneath::text(&folder, &path, PROJECT_NOTES)).await;
        match read {
            Ok(Ok(text)) => {
                plan.task.notes.push(format!("Notes of the project in the workspace (`{name}`):\n{text}"));
                root.run().tainted_by(name);
            }
            Ok(Err(NoFileText::Missing)) => {}
            Ok(Err(why)) => remarks.push(format!("`{name}` of the workspace {why}")),
            Err(error) => remarks.push(format!("`{name}` of the workspace cannot be read: {error}")),
        }
    }
    remarks
}

/// Whether the contexts of extensions are a part of the task: the orchestrator's alone.
pub fn gathers(snapshot: &Snapshot, plan: &Plan) -> bool {
    !snapshot.contexts.is_empty() && plan.is_the_orchestrators()
}
