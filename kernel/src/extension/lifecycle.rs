//! Carries out what the state machine of each extension asks for: load, initialize, start, roll back.
//!
//! Every stage has a deadline of its own and fails that extension alone; what depends on it is skipped with the reason.

mod order;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use drupe_agent::{Chain, TopicMessage};
use drupe_config::{Isolation, Manifest};
use drupe_extension_api::{
    Fault, FaultCode, ToolSpec,
    control::ExtensionState,
    wire::{Capability, Description, op},
};
use drupe_folders::{
    content::Content,
    discovery::{Found, Origin},
};
use drupe_gate::order as gate;
use drupe_host::{Code, Header, OpenError, probe};
use drupe_prompts::{Prompt, apart};
use drupe_surface::panics;
use drupe_wiring::{self as wiring, Part};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{
    Key, Record, change, host, initialize, place,
    recovery::{self, LOOK},
    state::{Action, Event, Out, State},
};
use crate::kernel::Kernel;

const LOAD: Duration = Duration::from_secs(10);
const INITIALIZE: Duration = Duration::from_secs(30);
const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(10);

/// How long all others wait for one that loads, initializes or starts. After that it is taken in when it is done.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long calls may go on in an instance that was stopped while the kernel goes on.
const LINGER: Duration = Duration::from_secs(30);

/// Loads and initializes all, each after what it depends on; independent ones at the same time.
pub async fn bring_up(kernel: &Arc<Kernel>) {
    let mut waiting: BTreeMap<Key, Arc<Manifest>> = kernel
        .extensions
        .read(|r| {
            (r.state == State::Discovered && !r.late)
                .then(|| Some((r.key(), Arc::clone(r.manifest.as_ref()?))))
                .flatten()
        })
        .into_iter()
        .flatten()
        .collect();
    while !waiting.is_empty() {
        let Some(ready) = order::next_wave(kernel, &mut waiting) else {
            if kernel.extensions.any_late(false) || kernel.extensions.any_late(true) {
                // They may wait for that one, and are looked at again when it is done.
                return;
            }
            order::circle(kernel, &mut waiting);
            continue;
        };
        let begin = |(key, manifest): (Key, Arc<Manifest>)| {
            let (kernel, at) = (Arc::clone(kernel), key.clone());
            (key, async move {
                one(&kernel, at, manifest).await;
                true
            })
        };
        apart(kernel, ready.into_iter().map(begin)).await;
    }
}

/// Does something with each in a task of its own, so that one that blocks its thread does not stop the clocks of the
/// others. Gives whether all went well; one that is late is left to itself, and counts as well.
async fn apart<F: Future<Output = bool> + Send + 'static>(
    kernel: &Arc<Kernel>,
    work: impl Iterator<Item = (Key, F)>,
) -> bool {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let steps = work.map(|(key, step)| {
        let (whole, at) = (Arc::clone(kernel), key.0.clone());
        let mut task = kernel.tasks.spawn(async move {
            let done = panics::answered(async { Ok(step.await) });
            match whole.closing.run_until_cancelled(done).await {
                Some(Err(panic)) => {
                    take_out(&whole, &at, Event::Failed(format!("drupe failed to take it in: {panic}")))
                        .await;
                    false
                }
                Some(Ok(done)) => done,
                None => true,
            }
        });
        async move {
            match tokio::time::timeout_at(deadline, &mut task).await {
                Ok(done) => matches!(done, Ok(true)),
                Err(_) => {
                    leave(kernel, key, task);
                    true
                }
            }
        }
    });
    join_all(steps).await.into_iter().all(|done| done)
}

/// Nobody waits for this one any longer. When it is done everything is looked at again.
fn leave(kernel: &Arc<Kernel>, key: Key, task: JoinHandle<bool>) {
    tracing::warn!(extension = %key.0, "takes long to begin; all others go on without it");
    kernel.extensions.with(&key, |r| r.late = true);
    let kernel = Arc::clone(kernel);
    kernel.clone().tasks.spawn(async move {
        // A panic ends it as well.
        let _ = task.await;
        let change = kernel.changing.lock().await;
        kernel.extensions.with(&key, |r| r.late = false);
        if kernel.extensions.with(&key, |r| r.state.is_out()) == Some(true) {
            // It was taken out while it began, and may have come to an instance after that.
            roll_back(&kernel, &key).await;
        }
        drop(change);
        if kernel.closing.is_cancelled() {
            return;
        }
        if let Err(fault) = change::rescan(&kernel).await {
            tracing::warn!(extension = %key.0, %fault, "it was not taken in");
        }
    });
}

/// Waits for an extension that takes long to begin, until it works or is out, and takes in what was decided of it
/// meanwhile. Whoever decides about one learns how that went.
pub async fn until_settled(kernel: &Arc<Kernel>, id: &str) -> Result<(), Fault> {
    while until_begun(kernel, id).await {
        change::rescan(kernel).await?;
    }
    Ok(())
}

/// Whether there was something to wait for, and it has come to an end.
async fn until_begun(kernel: &Kernel, id: &str) -> bool {
    let begins = |key: &Key| {
        let state = |r: &mut Record| {
            r.late || matches!(r.state, State::Discovered | State::Loaded | State::Initialized)
        };
        kernel.extensions.with(key, state).unwrap_or_default()
    };
    let begun = async {
        let mut waited = false;
        while kernel.extensions.named(id).iter().any(begins) {
            waited = true;
            tokio::time::sleep(LOOK).await;
        }
        waited
    };
    // One that waits for another one may wait longer, and is told as what it is by then.
    let most = tokio::time::timeout(LOAD + INITIALIZE + START, begun);
    matches!(kernel.closing.run_until_cancelled(most).await, Some(Ok(true)))
}

async fn one(kernel: &Arc<Kernel>, key: Key, manifest: Arc<Manifest>) {
    let loaded = match tokio::time::timeout(LOAD, load(kernel, &key, &manifest)).await {
        Ok(loaded) => loaded,
        Err(_) => Err(Out::Failed(format!("did not load within {LOAD:?}"))),
    };
    let part = match loaded {
        Ok(part) => part,
        Err(out) => {
            note(kernel, &key, Event::Rejected(out));
            return;
        }
    };
    kernel.extensions.with(&key, |r| r.part = Some(part.clone()));
    if note(kernel, &key, Event::Done) != Action::Initialize {
        return;
    }
    let event = match initialize(kernel, &manifest, part).await {
        Ok(part) => {
            let unfit = wiring::unfit(&part).or_else(|| {
                let seen = kernel.extensions.with(&key, |r| (r.found.clone(), r.content.clone()));
                seen.and_then(|(found, content)| exchanged(kernel, &found, &manifest, content.as_deref()))
            });
            kernel.extensions.with(&key, |r| {
                r.notes.extend(part.description.capabilities.iter().filter_map(|c| unused(c)));
                r.part = Some(part);
            });
            unfit.map_or(Event::Done, Event::Failed)
        }
        Err(out) => Event::Rejected(out),
    };
    if note(kernel, &key, event) == Action::Rollback {
        roll_back(kernel, &key).await;
    }
}

/// What this release detects and does not use yet is said, so that nobody waits for it.
fn unused(capability: &str) -> Option<String> {
    match Capability::from_name(capability) {
        None => Some(format!("its capability `{capability:.128}` is not known to this release")),
        Some(Capability::Scheduler) => {
            Some(format!("its capability `{capability}` is not used by this release yet"))
        }
        Some(_) => None,
    }
}

/// Opens its code, or prepares its agent.
async fn load(kernel: &Arc<Kernel>, key: &Key, manifest: &Arc<Manifest>) -> Result<Part, Out> {
    let failed = |why: String| Out::Failed(why);
    let Some(entrypoint) = &manifest.entrypoint else {
        return Ok(Part {
            manifest: Arc::clone(manifest),
            description: Description::default(),
            instance: None,
            prompt: None,
        });
    };
    kernel.extensions.with(key, |r| r.worked = false);
    let known = kernel.extensions.with(key, |r| Some((r.found.clone(), r.isolation?, r.content.clone()?)));
    let Some((found, isolation, content)) = known.flatten() else {
        return Err(failed("it is gone".into()));
    };
    let file = kernel.layout.library(&found, entrypoint).map_err(|error| failed(error.to_string()))?;
    let copy = found.origin != Origin::Shipped || isolation == Isolation::Process;
    // What is to run in this process anyway gets no more by its constructors.
    let strict = isolation == Isolation::Process && !kernel.config.sandbox.allow_unconfined;
    let caches = kernel.home.probes(&kernel.start.exe, strict);
    let checked = probe::checked(&caches, &file, copy).await.map_err(failed)?;
    // Whoever looked at it, and agreed to it, saw this and nothing that came later.
    if !content.files.iter().any(|seen| seen.hash == checked.hash) {
        return Err(failed(
            "its library was replaced while it was loaded; `drupe ext release` tries again".into(),
        ));
    }
    let hash = content.hash.clone();
    let place = place::place(kernel, manifest, isolation).map_err(failed)?;
    let code = Code { id: manifest.id.clone(), file: checked.file, hash: hash.clone() };
    let table = host::table(Arc::clone(manifest), kernel);
    let opened = drupe_host::open(code, place, table).await;
    if let Err(OpenError::Ended { ended, .. }) = &opened {
        recovery::tell_crash(kernel, &key.0, &hash, ended, true);
    }
    let (instance, description) = opened.map_err(|error| failed(error.to_string()))?;
    let instance = Arc::new(instance);
    recovery::watch_process(kernel, key.clone(), hash, &instance);
    Ok(Part { manifest: Arc::clone(manifest), description, instance: Some(instance), prompt: None })
}

async fn prompt(
    kernel: &Kernel,
    manifest: &Arc<Manifest>,
    tools: Vec<ToolSpec>,
) -> Result<Option<Prompt>, String> {
    Ok(apart::prompt(&kernel.start.exe, &kernel.config, manifest, tools, kernel.day()).await?)
}

/// An agent without code, with its texts.
pub async fn declared(kernel: &Arc<Kernel>, manifest: &Arc<Manifest>) -> Result<Part, String> {
    let prompt = prompt(kernel, manifest, listed_tools(kernel, manifest)).await?;
    Ok(Part { manifest: Arc::clone(manifest), description: Description::default(), instance: None, prompt })
}

/// Why the texts of an agent may not be those that its content had when it was looked at, and agreed to. They are read after
/// that.
pub fn exchanged(
    kernel: &Kernel,
    found: &Found,
    manifest: &Manifest,
    seen: Option<&Content>,
) -> Option<String> {
    manifest.agent.as_ref()?;
    let now = kernel.eyes().content(found, manifest).map(|content| content.hash);
    let same = now.is_ok_and(|now| seen.is_some_and(|seen| seen.hash == now));
    (!same).then(|| "its files were changed while it was taken in; `drupe ext release` tries again".into())
}

/// Renders its texts and gives it its context.
async fn initialize(kernel: &Arc<Kernel>, manifest: &Arc<Manifest>, mut part: Part) -> Result<Part, Out> {
    let Some(instance) = part.instance.clone() else {
        return declared(kernel, manifest).await.map_err(Out::Failed);
    };
    let tools = listed_tools(kernel, manifest);
    part.prompt = prompt(kernel, manifest, tools.clone()).await.map_err(Out::Failed)?;
    let payload = initialize::initialize_payload(kernel, manifest, &part, tools).map_err(Out::Failed)?;
    let header = Header { timeout: Some(INITIALIZE), ..Header::default() };
    instance.call::<serde_json::Value>(op::INITIALIZE, &payload, header).await.map_err(
        |fault| match fault.code {
            FaultCode::NotConfigured => Out::Disabled(format!("not configured: {fault}")),
            _ => Out::Failed(format!("`initialize` failed: {fault}")),
        },
    )?;
    part.description = described(&part).await.map_err(|fault| Out::Failed(fault.to_string()))?;
    Ok(part)
}

/// What an extension says of itself now. Its own code names its tools, so it gets a deadline.
pub async fn described(part: &Part) -> Result<Description, Fault> {
    let Some(instance) = &part.instance else { return Ok(part.description.clone()) };
    match tokio::time::timeout(LOAD, instance.describe()).await {
        Ok(described) => described,
        Err(_) => {
            Err(Fault::new(FaultCode::Timeout, format!("extension `{}` did not describe itself", part.id())))
        }
    }
}

/// The tools that `uses_tools` names, sorted, as far as they are there; wiring complains about the rest.
fn listed_tools(kernel: &Kernel, manifest: &Manifest) -> Vec<ToolSpec> {
    let mut selectors = manifest.agent.iter().flat_map(|a| &a.uses_tools).peekable();
    if selectors.peek().is_none() {
        return Vec::new();
    }
    let parts = kernel.extensions.parts();
    let tools = selectors.flat_map(|selector| {
        let part = parts.iter().find(|p| *p.id() == selector.extension);
        let all = part.into_iter().flat_map(|p| p.description.tools.clone());
        all.filter(|t| selector.tool.as_ref().is_none_or(|name| *name == t.name))
    });
    let mut tools: Vec<ToolSpec> = tools.collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools
}

/// Lets all that are initialized work, in order; those that fail are rolled back. Gives whether any did.
pub async fn start_all(kernel: &Arc<Kernel>) -> bool {
    let mut any_failed = false;
    for wave in order::waves(kernel, &State::Initialized) {
        let ready = wave.into_iter().filter(|key| !kernel.extensions.is_late(key));
        let starting = ready.map(|key| {
            let (kernel, at) = (Arc::clone(kernel), key.clone());
            (key, async move { start_one(&kernel, &at).await })
        });
        any_failed |= !apart(kernel, starting).await;
        if kernel.extensions.any_late(true) {
            // What is left may depend on that one, and is looked at again when it is done.
            break;
        }
    }
    any_failed
}

/// Lets one work; false if it does not.
async fn start_one(kernel: &Arc<Kernel>, key: &Key) -> bool {
    // One whose dependency failed to start was taken out in between.
    let initialized =
        kernel.extensions.with(key, |r| r.part.clone().filter(|_| r.state == State::Initialized));
    let Some(part) = initialized.flatten() else { return false };
    if let Err(why) = start(&part).await {
        take_out(kernel, &key.0, Event::Failed(why)).await;
        return false;
    }
    kernel.extensions.with(key, |r| r.worked = true);
    kernel.extensions.establish([key.0.clone()]);
    note(kernel, key, Event::Done);
    if let Some(instance) = &part.instance {
        kernel.live.works(part.id(), Arc::clone(instance));
    }
    if part.can(Capability::Service) {
        crate::service::supervise(kernel, key, &part);
    }
    true
}

async fn start(part: &Part) -> Result<(), String> {
    let Some(instance) = &part.instance else { return Ok(()) };
    let header = Header { timeout: Some(START), ..Header::default() };
    let failed = |what: &str, fault: &dyn std::fmt::Display| format!("`{what}` failed: {fault}");
    instance.call::<serde_json::Value>(op::START, &(), header).await.map_err(|f| failed("start", &f))?;
    if part.can(Capability::Channel) {
        instance
            .call::<serde_json::Value>(op::CHANNEL_START, &(), header)
            .await
            .map_err(|f| failed("channel.start", &f))?;
    }
    Ok(())
}

/// Stops all, in reverse order of dependency.
pub async fn stop_all(kernel: &Arc<Kernel>) {
    for wave in order::waves(kernel, &State::Active).into_iter().rev() {
        let stopping = wave.into_iter().map(|key| async move {
            if note(kernel, &key, Event::Stop) == Action::Rollback {
                roll_back(kernel, &key).await;
            }
        });
        join_all(stopping).await;
    }
}

/// Something takes an extension out, and all that depends on it; they are ended at once.
pub async fn take_out(kernel: &Arc<Kernel>, name: &str, event: Event) {
    for key in mark_out(kernel, name, event).into_iter().rev() {
        roll_back(kernel, &key).await;
    }
}

/// The same, but what is out, each before those that depend on it, is left to be ended with [`roll_back`] once nobody is offered it any more.
#[must_use = "what is marked is to be rolled back"]
pub fn mark_out(kernel: &Kernel, name: &str, event: Event) -> Vec<Key> {
    let mut out: Vec<Key> = kernel.extensions.named(name);
    out.retain(|key| note(kernel, key, event.clone()) == Action::Rollback);
    // What depends on it cannot stay.
    let dependents = kernel.extensions.read(|r| {
        let manifest = r.manifest.as_ref().filter(|_| !r.state.is_out())?;
        let field = gate::dependencies(manifest).into_iter().find(|(d, _)| d == name)?.1;
        Some((r.found.name.clone(), field))
    });
    for (dependent, field) in dependents.into_iter().flatten() {
        let why = gate::lost(field, name, order::states(kernel).get(name));
        out.extend(mark_out(kernel, &dependent, Event::DependencyLost(why)));
    }
    out
}

/// Ends the instance of an extension. Calls that run go on to their end: who made them holds the instance.
pub async fn roll_back(kernel: &Arc<Kernel>, key: &Key) {
    let part = kernel
        .extensions
        .with(key, |r| r.part.as_mut().and_then(|p| p.instance.take().map(|i| (i, p.clone()))));
    let Some((instance, part)) = part.flatten() else { return };
    let header = Header { timeout: Some(STOP), ..Header::default() };
    if let Err(fault) = instance.call::<serde_json::Value>(op::STOP, &(), header).await
        && !matches!(fault.code, FaultCode::Unavailable | FaultCode::Crashed)
    {
        tracing::warn!(extension = %part.id(), %fault, "did not stop in order");
    }
    // Calls of running turns end as they began; what goes on after that is not waited for.
    let closing = Arc::clone(kernel);
    kernel.tasks.spawn(async move {
        let deadline = tokio::time::Instant::now() + LINGER;
        while instance.calls() > 0 && tokio::time::Instant::now() < deadline {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
                // Nobody else ends it: others hold it until the process is gone.
                () = closing.closing.cancelled() => break,
            }
        }
        instance.close().await;
    });
}

/// Lets something happen to an extension, and tells of it.
pub fn note(kernel: &Kernel, key: &Key, event: Event) -> Action {
    let (action, change) = kernel.extensions.step(key, event, Timestamp::now());
    if let Some(change) = change {
        match change.state {
            ExtensionState::Degraded => kernel.live.away(&key.0),
            ExtensionState::Failed
            | ExtensionState::Quarantined
            | ExtensionState::Disabled
            | ExtensionState::Skipped
            | ExtensionState::AwaitingApproval
            | ExtensionState::Stopped => kernel.live.gone(&key.0),
            _ => {}
        }
        let state = change.state;
        match &change.reason {
            Some(reason) => tracing::warn!(extension = %key.0, ?state, "{reason}"),
            None => tracing::debug!(extension = %key.0, ?state, "extension"),
        }
        let payload = json!({"id": key.0, "state": change.state, "reason": change.reason});
        let topic = "kernel.extension".to_owned();
        kernel.bus.message(Arc::new(TopicMessage {
            topic,
            payload,
            chain: Chain::default(),
            correlation: None,
        }));
        let (store, name) = (kernel.store.clone(), key.0.clone());
        kernel.tasks.spawn(async move {
            if let Err(error) = store.record_extension(name, change).await {
                tracing::warn!(%error, "the state of an extension was not recorded");
            }
        });
    }
    action
}
