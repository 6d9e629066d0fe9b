//! From nothing to a kernel that serves, and back.

use std::sync::Arc;

use drupe_extension_api::{EventBody, ExtensionId, Fault, FaultCode, control::ExtensionState};
use drupe_prompts::{Day, Prompt, apart, orchestrator};
use drupe_wiring::{self as wiring, Away, Context, Snapshot, WireFault};

use drupe_journal::StoreError;

use crate::{
    events,
    extension::{
        lifecycle,
        state::{Event, Out},
        survey::{self, Seen, Survey},
    },
    kernel::{Kernel, store_fault},
    settings,
};

/// How long all extensions together may take to stop: the supervisor bears a little more after the drain.
const STOP: std::time::Duration = std::time::Duration::from_secs(12);

/// Brings all extensions to work. Messages that they take in meanwhile wait behind those of earlier kernels.
pub async fn extensions(kernel: &Arc<Kernel>) -> Result<(), Fault> {
    let _change = kernel.changing.lock().await;
    sweep(kernel);
    let Survey { seen, passed } = survey::survey(kernel).await?;
    kernel.extensions.set_passed_over(passed);
    kernel.extensions.establish(kernel.store.worked().await.map_err(store_fault)?);
    for Seen { record, out } in seen {
        let key = record.key();
        kernel.extensions.insert(record);
        if let Some(out) = out {
            lifecycle::note(kernel, &key, Event::Rejected(out));
        }
    }
    // Before any extension is there that could hand messages in.
    for turn in kernel.store.unfinished().await.map_err(store_fault)? {
        kernel.sessions.push(kernel, turn);
    }
    lifecycle::bring_up(kernel).await;
    wire_all(kernel).await?;
    if lifecycle::start_all(kernel).await {
        wire_all(kernel).await?;
    }
    Ok(())
}

/// Removes what an earlier kernel left: copies that nothing names, and folders that were being added.
fn sweep(kernel: &Kernel) {
    drupe_host::probe::sweep(&kernel.home.probes(&kernel.start.exe, true));
    // Made again where they are needed.
    let _ = std::fs::remove_dir_all(kernel.home.restored());
    let folders = [kernel.home.extensions(), kernel.home.root().join("data")];
    for entry in folders.iter().flat_map(std::fs::read_dir).flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(crate::draft::PART) {
            // What cannot be removed is hidden, and so harmless.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Lets those begin to work that wait for it, in a kernel that serves. The caller holds `changing`.
pub async fn settle(kernel: &Arc<Kernel>) {
    lifecycle::bring_up(kernel).await;
    rewire_rest(kernel).await;
    if lifecycle::start_all(kernel).await {
        rewire_rest(kernel).await;
    }
}

/// Wires what is loaded. An extension that cannot be wired is taken out, and the rest wired without it.
pub async fn wire_all(kernel: &Arc<Kernel>) -> Result<(), Fault> {
    loop {
        match try_wiring(kernel).await {
            Ok(()) => return Ok(()),
            Err(fault) => match fault.extension {
                Some(id) => {
                    let event = Event::Rejected(Out::Unwired(fault.reason));
                    lifecycle::take_out(kernel, id.as_str(), event).await;
                }
                None => return Err(Fault::new(FaultCode::NotConfigured, fault.reason)),
            },
        }
    }
}

/// Takes an extension out of a kernel that serves: first nobody is offered it any more, then it ends. The caller holds
/// `changing`.
pub async fn withdraw(kernel: &Arc<Kernel>, name: &str, event: Event) {
    let out = lifecycle::mark_out(kernel, name, event);
    rewire_rest(kernel).await;
    for key in out.into_iter().rev() {
        lifecycle::roll_back(kernel, &key).await;
    }
}

/// Wires what is left after something went out.
pub async fn rewire_rest(kernel: &Arc<Kernel>) {
    if let Err(fault) = wire_all(kernel).await {
        tracing::error!(%fault, "the extensions that are left cannot be wired; the old wiring stays");
    }
}

/// What is wired, with the present day in its prompts.
pub async fn today(kernel: &Arc<Kernel>) -> Arc<Snapshot> {
    if kernel.snapshot().day == kernel.day() {
        return kernel.snapshot();
    }
    let alone = kernel.wiring.lock().await;
    // Of many turns that find a new day the first makes its prompts.
    if kernel.snapshot().day != kernel.day()
        && let Err(fault) = wire_loaded(kernel).await
    {
        tracing::warn!(reason = fault.reason, "the prompts are those of an earlier day");
    }
    drop(alone);
    kernel.snapshot()
}

/// Wires what is loaded, all of it or nothing.
pub async fn try_wiring(kernel: &Arc<Kernel>) -> Result<(), WireFault> {
    let _alone = kernel.wiring.lock().await;
    wire_loaded(kernel).await
}

/// The caller holds `wiring`.
async fn wire_loaded(kernel: &Arc<Kernel>) -> Result<(), WireFault> {
    let prompt = orchestrator(&kernel.config)
        .map_err(|no_text| WireFault { extension: None, reason: no_text.into() })?;
    let (day, away) = (dated(kernel).await, kernel.extensions.away());
    let snapshot = wiring::wire(&kernel.extensions.parts(), &context(kernel, &prompt, &away, day))?;
    kernel.set_snapshot(snapshot);
    if let Err(error) = events::reconcile(kernel).await {
        tracing::error!(%error, "the topics that agents follow are not known to the journal");
    }
    kernel.sessions.give_up(|extension| kernel.gone(extension).is_some());
    Ok(())
}

/// Wires again after an extension announced other tools. If that cannot be wired, the announcement is refused.
pub async fn rewire(kernel: &Arc<Kernel>, extension: &ExtensionId) -> Result<(), Fault> {
    let (key, part) = kernel.extensions.announcer(extension)?;
    // Its own code answers this: nobody else waits meanwhile.
    let description = lifecycle::described(&part).await?;
    let _alone = kernel.wiring.lock().await;
    let prompt = orchestrator(&kernel.config).map_err(|e| Fault::new(FaultCode::NotConfigured, e))?;
    let (day, away) = (dated(kernel).await, kernel.extensions.away());
    let Some(old) = kernel.extensions.set_description(&key, &part, description) else {
        return Err(Fault::not_found(format!("this instance of `{extension}` does not work any more")));
    };
    match wiring::wire(&kernel.extensions.parts(), &context(kernel, &prompt, &away, day)) {
        Ok(snapshot) => {
            kernel.set_snapshot(snapshot);
            Ok(())
        }
        Err(fault) => {
            kernel.extensions.set_description(&key, &part, old);
            Err(Fault::invalid(format!(
                "the tools that `{extension}` announces cannot be used: {}",
                fault.reason
            )))
        }
    }
}

/// The day, once the prompts in which it stands are made for it.
async fn dated(kernel: &Kernel) -> Day {
    let day = kernel.day();
    let prompts = kernel.extensions.parts().into_iter().filter_map(|part| part.prompt?.dated);
    apart::renew(&kernel.start.exe, prompts, day).await;
    day
}

fn context<'a>(kernel: &'a Kernel, prompt: &'a Prompt, away: &'a [Away], day: Day) -> Context<'a> {
    Context {
        config: &kernel.config,
        models: &kernel.models,
        tokens: &kernel.tokens,
        live: &kernel.live,
        orchestrator: prompt,
        workspace: kernel.home.workspace(),
        day,
        away,
    }
}

/// Takes up what an earlier kernel left: deliveries, turns, and the outcome of restarts that sessions asked for.
pub async fn take_up(kernel: &Arc<Kernel>) -> Result<(), Fault> {
    let store = &kernel.store;
    while let Some(row) = store.take_restart().await.map_err(store_fault)? {
        let Some(session) = row.session else { continue };
        let failed = kernel.extensions.read(|r| match r.state.shown() {
            (ExtensionState::Failed, Some(why)) => {
                Some(format!("; `{}` failed: {}", r.found.name, why.lines().next().unwrap_or(why)))
            }
            _ => None,
        });
        let reason = failed.into_iter().flatten().fold(row.reason, |text, line| text + &line);
        let body = EventBody::Lifecycle { state: "restarted".into(), reason: Some(reason) };
        store.record_events(session, row.turn, vec![(None, body)]).await.map_err(store_fault)?;
    }
    seed_quotas(kernel).await.map_err(store_fault)?;
    kernel.ratios.seed(store.ratios().await.map_err(store_fault)?);
    kernel.deliveries.start(kernel);
    kernel.keep_up("topics", |kernel| async move { kernel.topics.run(kernel.cancel.clone()).await });
    kernel.sessions.open(kernel);
    Ok(())
}

/// What this day has used so far counts on, whatever ended the kernels before, and with it all that the turns that go on
/// had set aside: before any of them sets more aside.
async fn seed_quotas(kernel: &Kernel) -> Result<(), StoreError> {
    let (now_ms, store) = (kernel.clock.now_ms(), &kernel.store);
    let (all, agents) = store.used_on(now_ms).await?;
    let agents = agents.into_iter().map(|(agent, used)| (agent, settings::counted(used)));
    kernel.quotas.seed_day(now_ms, settings::counted(all), agents);
    for queued in store.unfinished().await?.into_iter().filter(|queued| queued.started) {
        let session = &queued.inbound.ask.session;
        kernel.quotas.open_session(session, settings::counted(store.used_by_session(session).await?));
        store.recorded(queued.turn).await?.lose_open_calls(session, &kernel.quotas, now_ms);
    }
    Ok(())
}

/// Ends: running turns get their time, the rest is left to the next kernel; their answers go out; then extensions stop,
/// and at last nobody is served any more.
pub async fn drain(kernel: &Arc<Kernel>) {
    let deadline = tokio::time::Instant::now() + kernel.config.drain_timeout;
    // Polling is what it takes: turns end in as many ways as there are, and a drain happens once a process.
    while kernel.sessions.at_work() > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let left = kernel.sessions.at_work();
    if left > 0 {
        tracing::warn!(turns = left, "turns did not end in time; they go on after the next start");
    }
    kernel.cancel.cancel();
    kernel.deliveries.finish().await;
    if tokio::time::timeout(STOP, lifecycle::stop_all(kernel)).await.is_err() {
        tracing::warn!("some extensions did not stop in time; the process ends without them");
    }
    kernel.closing.cancel();
    kernel.tasks.close();
    let rest = std::time::Duration::from_secs(3);
    if tokio::time::timeout(rest, kernel.tasks.wait()).await.is_err() {
        tracing::warn!("some tasks did not end");
    }
}
