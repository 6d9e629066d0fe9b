//! Carries out what the state machine of each extension asks for: load, initialize, start, roll back.
//!
//! Every stage has a deadline of its own and fails that extension alone; what depends on it is skipped with the reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use drupe_config::{Isolation, Manifest, load_manifest};
use drupe_extension_api::{
    FaultCode, ToolSpec,
    wire::{self, Capability, Description, op},
};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::json;

use super::{
    Key, Record, discovery,
    discovery::Origin,
    host,
    instance::{Header, Instance},
    library::PluginLibrary,
    probe,
    state::{Action, Event, Out, State},
};
use crate::{
    instructions,
    kernel::Kernel,
    wiring::{self, Part, Prompt},
};

const LOAD: Duration = Duration::from_secs(10);
const INITIALIZE: Duration = Duration::from_secs(30);
const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(10);

/// Finds all extensions, reads their manifests and decides which are not to be used at all.
pub fn find(kernel: &Kernel) {
    let mut roots = Vec::new();
    roots.extend(discovery::shipped(&kernel.start.exe).map(|folder| (Origin::Shipped, folder)));
    roots.push((Origin::Home, kernel.home.extensions()));
    roots.extend(kernel.config.extensions.paths.iter().map(|p| (Origin::Listed, p.clone())));
    let (found, passed) = discovery::discover(&roots);
    let manifest = |folder: &PathBuf| load_manifest(folder, kernel.home.root());
    let settled = discovery::settle(found, |f| manifest(&f.folder).is_ok_and(|m| m.value.overrides));
    let now = Timestamp::now();
    let mut records = Vec::new();
    for (found, clash) in settled {
        let mut record = Record::new(found, now);
        let mut out = clash.map(Out::Failed);
        match manifest(&record.found.folder) {
            Ok(loaded) => {
                record.notes = loaded.warnings.iter().map(|w| w.message.clone()).collect();
                out = out.or_else(|| rejected(kernel, &record, &loaded.value));
                record.manifest = Some(Arc::new(loaded.value));
            }
            Err(faults) => out = out.or(Some(Out::Failed(faults.render(false).trim_end().to_owned()))),
        }
        records.push((record, out));
    }
    let outs: Vec<(Key, Out)> = records.iter().filter_map(|(r, out)| Some((r.key(), out.clone()?))).collect();
    kernel.extensions.set(records.into_iter().map(|(r, _)| r).collect(), passed);
    for (key, out) in outs {
        note(kernel, &key, Event::Rejected(out));
    }
}

/// Why an extension is not to be used, as far as its manifest tells.
fn rejected(kernel: &Kernel, record: &Record, manifest: &Manifest) -> Option<Out> {
    let third_party = record.found.origin != Origin::Shipped;
    if !manifest.is_enabled(&kernel.config) {
        return Some(Out::Disabled("turned off by `enabled: false`".into()));
    }
    if kernel.start.safe_mode && third_party {
        return Some(Out::Disabled("safe mode leaves third-party extensions out".into()));
    }
    if manifest.id.as_str() == wiring::ORCHESTRATOR {
        return Some(Out::Failed(format!("the id `{}` is the kernel's own agent's", wiring::ORCHESTRATOR)));
    }
    if let Err(faults) = manifest.resolve_secrets(&kernel.config.overlay) {
        let why = format!("not configured: {}", faults.render(false).trim_end());
        return Some(if third_party { Out::Failed(why) } else { Out::Disabled(why) });
    }
    if manifest.entrypoint.is_some() && third_party && manifest.isolation != Some(Isolation::Inproc) {
        let why = "native code outside the shipped extensions would run in a process of its own, which is not supported \
                   yet; if you trust it to run inside the kernel, write `isolation: inproc` into its manifest";
        return Some(Out::Failed(why.into()));
    }
    None
}

/// Loads and initializes all, each after what it depends on; independent ones at the same time.
pub async fn bring_up(kernel: &Arc<Kernel>) {
    let mut waiting: BTreeMap<Key, Arc<Manifest>> = kernel
        .extensions
        .read(|r| {
            (r.state == State::Discovered)
                .then(|| Some((r.key(), Arc::clone(r.manifest.as_ref()?))))
                .flatten()
        })
        .into_iter()
        .flatten()
        .collect();
    while !waiting.is_empty() {
        let ready = next_wave(kernel, &mut waiting);
        if ready.is_empty() && !waiting.is_empty() {
            circle(kernel, &mut waiting);
        }
        join_all(ready.into_iter().map(|(key, manifest)| one(kernel, key, manifest))).await;
    }
}

/// Takes those out of `waiting` whose dependencies are all there, and lets those fail that wait in vain.
fn next_wave(kernel: &Kernel, waiting: &mut BTreeMap<Key, Arc<Manifest>>) -> Vec<(Key, Arc<Manifest>)> {
    let states: BTreeMap<String, State> =
        kernel.extensions.read(|r| (r.found.name.clone(), r.state.clone())).into_iter().collect();
    let mut ready = Vec::new();
    for (key, manifest) in waiting.clone() {
        let mut event = None;
        let mut wait = false;
        for (dependency, field) in dependencies(&manifest) {
            match states.get(&dependency) {
                None => {
                    let why = format!("`{field}` lists `{dependency}`, but there is no such extension");
                    event = event.or(Some(Event::Rejected(Out::Failed(why))));
                }
                Some(state) if state.is_out() => {
                    let (state, reason) = state.shown();
                    let state = serde_json::to_value(state).ok().and_then(|s| s.as_str().map(str::to_owned));
                    let reason =
                        reason.map(|r| format!(": {}", r.lines().next().unwrap_or(r))).unwrap_or_default();
                    let why = format!(
                        "`{field}` lists `{dependency}`, which is {}{reason}",
                        state.unwrap_or_default()
                    );
                    event = event.or(Some(Event::DependencyLost(why)));
                }
                Some(State::Initialized) => {}
                Some(_) => wait = true,
            }
        }
        if let Some(event) = event {
            waiting.remove(&key);
            note(kernel, &key, event);
        } else if !wait {
            waiting.remove(&key);
            ready.push((key, manifest));
        }
    }
    ready
}

fn dependencies(manifest: &Manifest) -> BTreeSet<(String, &'static str)> {
    let agent = manifest.agent.as_ref();
    let hard = manifest.depends_on.iter().map(|d| (d.to_string(), "depends_on"));
    let tools =
        agent.into_iter().flat_map(|a| &a.uses_tools).map(|t| (t.extension.to_string(), "agent.uses_tools"));
    let agents = agent.into_iter().flat_map(|a| &a.uses_agents).map(|a| (a.to_string(), "agent.uses_agents"));
    hard.chain(tools).chain(agents).collect()
}

/// Nothing can go on: those that wait for each other fail, each with the members of its circle.
fn circle(kernel: &Kernel, waiting: &mut BTreeMap<Key, Arc<Manifest>>) {
    let uses: BTreeMap<String, Vec<String>> = waiting
        .iter()
        .map(|((name, _), manifest)| {
            (name.clone(), dependencies(manifest).into_iter().map(|(d, _)| d).collect())
        })
        .collect();
    let Some(members) = wiring::cycle(&uses) else {
        waiting.clear();
        return;
    };
    let why = format!("dependencies go in a circle: {} → {}", members.join(" → "), members[0]);
    waiting.retain(|key, _| {
        let member = members.contains(&key.0);
        if member {
            note(kernel, key, Event::Rejected(Out::Failed(why.clone())));
        }
        !member
    });
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
            let disagreement = wiring::disagreement(&part);
            kernel.extensions.with(&key, |r| {
                r.notes.extend(part.description.capabilities.iter().filter_map(|c| unused(c)));
                r.part = Some(part);
            });
            disagreement.map_or(Event::Done, Event::Failed)
        }
        Err(Out::Disabled(why) | Out::Failed(why) | Out::Skipped(why)) => Event::Failed(why),
    };
    if note(kernel, &key, event) == Action::Rollback {
        roll_back(kernel, &key).await;
    }
}

/// What this release detects and does not use yet is said, so that nobody waits for it.
fn unused(capability: &str) -> Option<String> {
    match Capability::from_name(capability) {
        None => Some(format!("its capability `{capability}` is not known to this release")),
        Some(Capability::Scheduler | Capability::Context | Capability::Hook) => {
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
    let found =
        kernel.extensions.with(key, |r| r.found.clone()).ok_or_else(|| failed("it is gone".into()))?;
    let file = discovery::library(&found, entrypoint, &kernel.start.exe).map_err(failed)?;
    let file = probe::checked(kernel, &file, found.origin != Origin::Shipped).await.map_err(failed)?;
    let table = host::table(Arc::clone(manifest), kernel);
    let id = manifest.id.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let library = PluginLibrary::open(&file).map_err(|error| error.to_string())?;
        let instance = Instance::new(id, library.instance(table));
        let description = instance.describe().map_err(|fault| fault.to_string())?;
        Ok::<_, String>((instance, description))
    });
    let (instance, description) = opened
        .await
        .map_err(|error| failed(format!("its library could not be opened: {error}")))?
        .map_err(failed)?;
    Ok(Part { manifest: Arc::clone(manifest), description, instance: Some(Arc::new(instance)), prompt: None })
}

/// Renders its texts and gives it its context.
async fn initialize(kernel: &Arc<Kernel>, manifest: &Arc<Manifest>, mut part: Part) -> Result<Part, Out> {
    let tools = listed_tools(kernel, manifest);
    part.prompt = prompt(kernel, manifest, &tools).map_err(Out::Failed)?;
    let Some(instance) = part.instance.clone() else { return Ok(part) };
    let payload = host::initialize_payload(kernel, manifest, &part, tools).map_err(Out::Failed)?;
    let header = Header { timeout: Some(INITIALIZE), ..Header::default() };
    instance.call::<serde_json::Value>(op::INITIALIZE, &payload, header).await.map_err(
        |fault| match fault.code {
            FaultCode::NotConfigured => Out::Disabled(format!("not configured: {fault}")),
            _ => Out::Failed(format!("`initialize` failed: {fault}")),
        },
    )?;
    part.description = instance.describe().map_err(|fault| Out::Failed(fault.to_string()))?;
    Ok(part)
}

/// The tools that `uses_tools` names, sorted, as far as they are there; wiring complains about the rest.
fn listed_tools(kernel: &Kernel, manifest: &Manifest) -> Vec<ToolSpec> {
    let parts = kernel.extensions.parts();
    let selectors = manifest.agent.iter().flat_map(|a| &a.uses_tools);
    let tools = selectors.flat_map(|selector| {
        let part = parts.iter().find(|p| *p.id() == selector.extension);
        let all = part.into_iter().flat_map(|p| p.description.tools.clone());
        all.filter(|t| selector.tool.as_ref().is_none_or(|name| *name == t.name))
    });
    let mut tools: Vec<ToolSpec> = tools.collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools
}

/// The texts of an agent, rendered.
fn prompt(kernel: &Kernel, manifest: &Manifest, tools: &[ToolSpec]) -> Result<Option<Prompt>, String> {
    let Some(section) = &manifest.agent else { return Ok(None) };
    let config = manifest.effective_config(&kernel.config).map_err(|faults| faults.render(false))?;
    let mut variables = config.clone();
    let facts = json!({
        "config": config,
        "manifest": {"id": manifest.id, "name": manifest.name, "version": manifest.version.to_string(),
                     "summary": manifest.summary, "description": manifest.description},
        "agent": {"id": manifest.id, "name": manifest.name, "description": manifest.description},
        "tools": tools.iter().map(|t| json!({"name": t.name, "description": t.description})).collect::<Vec<_>>(),
        "now": Timestamp::now().strftime("%Y-%m-%d").to_string(),
        "user": kernel.config.overlay.get("USER").map_or("the user", |u| u.expose()),
    });
    if let serde_json::Value::Object(facts) = facts {
        variables.extend(facts);
    }
    let instructions = match &section.instructions {
        Some(text) => instructions::render(text, &manifest.folder, &variables)?,
        None => String::new(),
    };
    Ok(Some(Prompt { instructions, context: instructions::context(&section.context)? }))
}

/// Lets all that are initialized work, in order; those that fail are rolled back. Gives whether any did.
pub async fn start_all(kernel: &Arc<Kernel>) -> bool {
    let mut any_failed = false;
    for key in in_order(kernel, State::Initialized) {
        let Some(part) = kernel.extensions.with(&key, |r| r.part.clone()).flatten() else { continue };
        let event = match start(&part).await {
            Ok(()) => Event::Done,
            Err(why) => Event::Failed(why),
        };
        if note(kernel, &key, event) == Action::Rollback {
            any_failed = true;
            roll_back(kernel, &key).await;
        } else if part.can(Capability::Service) {
            crate::service::supervise(kernel, &part);
        }
    }
    any_failed
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
    for key in in_order(kernel, State::Active).into_iter().rev() {
        if note(kernel, &key, Event::Stop) == Action::Rollback {
            roll_back(kernel, &key).await;
        }
    }
}

/// Something took an extension out after it was loaded.
pub async fn take_out(kernel: &Arc<Kernel>, name: &str, event: Event) {
    let keys = kernel.extensions.read(|r| (r.found.name == name && !r.state.is_out()).then(|| r.key()));
    for key in keys.into_iter().flatten() {
        if note(kernel, &key, event.clone()) == Action::Rollback {
            roll_back(kernel, &key).await;
        }
    }
    // What depends on it cannot stay.
    let dependents = kernel.extensions.read(|r| {
        let manifest = r.manifest.as_ref().filter(|_| !r.state.is_out())?;
        let field = dependencies(manifest).into_iter().find(|(d, _)| d == name)?.1;
        Some((r.found.name.clone(), field))
    });
    for (dependent, field) in dependents.into_iter().flatten() {
        let why = format!("`{field}` lists `{name}`, which went out");
        Box::pin(take_out(kernel, &dependent, Event::DependencyLost(why))).await;
    }
}

async fn roll_back(kernel: &Arc<Kernel>, key: &Key) {
    let part = kernel
        .extensions
        .with(key, |r| r.part.as_mut().and_then(|p| p.instance.take().map(|i| (i, p.clone()))));
    let Some((instance, part)) = part.flatten() else { return };
    let header = Header { timeout: Some(STOP), ..Header::default() };
    if let Err(fault) = instance.call::<serde_json::Value>(op::STOP, &(), header).await
        && fault.code != FaultCode::Unavailable
    {
        tracing::warn!(extension = %part.id(), %fault, "did not stop in order");
    }
    kernel.handles.close_all(part.id());
}

/// Keys of those in a state, each after what it depends on.
fn in_order(kernel: &Kernel, state: State) -> Vec<Key> {
    let all = kernel.extensions.read(|r| {
        let manifest = r.manifest.as_ref().filter(|_| r.state == state)?;
        Some((r.key(), dependencies(manifest).into_iter().map(|(d, _)| d).collect::<BTreeSet<_>>()))
    });
    let mut rest: Vec<(Key, BTreeSet<String>)> = all.into_iter().flatten().collect();
    let mut ordered: Vec<Key> = Vec::new();
    while !rest.is_empty() {
        let names: BTreeSet<String> = rest.iter().map(|((name, _), _)| name.clone()).collect();
        let (ready, waiting): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, needs)| needs.is_disjoint(&names));
        if ready.is_empty() {
            ordered.extend(waiting.into_iter().map(|(key, _)| key));
            break;
        }
        ordered.extend(ready.into_iter().map(|(key, _)| key));
        rest = waiting;
    }
    ordered
}

/// Lets something happen to an extension, and tells of it.
fn note(kernel: &Kernel, key: &Key, event: Event) -> Action {
    let (action, change) = kernel.extensions.step(key, event, Timestamp::now());
    if let Some(change) = change {
        let state = change.state;
        match &change.reason {
            Some(reason) => tracing::warn!(extension = %key.0, ?state, "{reason}"),
            None => tracing::debug!(extension = %key.0, ?state, "extension"),
        }
        let payload = json!({"id": key.0, "state": change.state, "reason": change.reason});
        kernel.bus.publish(wire::BusMessage { topic: "kernel.extension".into(), payload, skipped: 0 });
        let (store, name) = (kernel.store.clone(), key.0.clone());
        kernel.tasks.spawn(async move {
            if let Err(error) = store.record_extension(name, change).await {
                tracing::warn!(%error, "the state of an extension was not recorded");
            }
        });
    }
    action
}
