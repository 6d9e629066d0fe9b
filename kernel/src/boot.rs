//! From nothing to a kernel that serves, and back.

use std::sync::Arc;

use drupe_extension_api::{EventBody, Fault, control::ExtensionState};
use drupe_gate::state::Event;
use drupe_journal::StoreError;

use crate::schedules::Schedules;
use crate::{
    base::Base,
    draft,
    extension::{
        rollback::{self, note},
        servers,
        survey::{self, Seen},
    },
    intake,
    kernel::Kernel,
    outbox, questions, settings, turn,
};

/// How long all extensions together may take to stop: the supervisor bears a little more after the drain.
const STOP: std::time::Duration = std::time::Duration::from_secs(12);

/// Brings all extensions to work. Messages that they take in meanwhile wait behind those of earlier kernels.
pub async fn extensions(kernel: &Arc<Kernel>) -> Result<(), Fault> {
    let roster = &kernel.roster;
    let _change = roster.changing.lock().await;
    sweep(&kernel.base);
    roster.extensions.establish(kernel.store.worked().await?);
    for Seen { record, out } in survey::survey(roster).await? {
        let key = record.key();
        roster.extensions.insert(record);
        if let Some(out) = out {
            note(roster, &key, Event::Rejected(out));
        }
    }
    // Before any extension is there that could hand messages in.
    for turn in kernel.store.unfinished().await? {
        kernel.intake.push(turn);
    }
    let settled = roster.settle().await;
    servers::tell(roster);
    settled
}

/// Removes what an earlier kernel left: copies that nothing names, and folders that were being added.
fn sweep(base: &Base) {
    let home = &base.home;
    drupe_host::probe::sweep(&home.probes(&base.start.exe, true));
    // Made again where they are needed.
    let _ = std::fs::remove_dir_all(home.restored());
    let folders = [home.extensions(), home.root().join("data")];
    for entry in folders.iter().flat_map(std::fs::read_dir).flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(draft::PART) {
            // What cannot be removed is hidden, and so harmless.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Takes up what an earlier kernel left: deliveries, turns, and the outcome of restarts that sessions asked for.
pub async fn take_up(kernel: &Arc<Kernel>) -> Result<(), Fault> {
    let (store, turns) = (&kernel.store, &kernel.intake.turns);
    while let Some(row) = store.take_restart().await? {
        let Some(session) = row.session else { continue };
        let failed = kernel.roster.extensions.read(|r| match r.state.shown() {
            (ExtensionState::Failed, Some(why)) => {
                Some(format!("; `{}` failed: {}", r.found.name, why.lines().next().unwrap_or(why)))
            }
            _ => None,
        });
        let reason = failed.into_iter().flatten().fold(row.reason, |text, line| text + &line);
        let body = EventBody::Lifecycle { state: "restarted".into(), reason: Some(reason) };
        store.record_events(session, row.turn, vec![(None, body)]).await?;
    }
    seed_quotas(kernel).await?;
    turns.ratios.seed(store.ratios().await?);
    kernel.outbox.sweep().await;
    kernel.life.keep_up("channels", &kernel.outbox, outbox::send_until_the_end);
    kernel.life.keep_up("questions in channels", kernel, questions::put_until_the_end);
    kernel.life.keep_up("topics", &kernel.roster, |roster| async move {
        roster.topics.run(roster.life.cancel.clone()).await;
    });
    kernel.life.keep_up("schedules", &kernel.schedules, Schedules::run);
    kernel.life.keep_up(
        "reports of agents that outlived their turns",
        &kernel.intake,
        intake::take_up_reports,
    );
    kernel.life.keep_up("turns of extensions that are gone", &kernel.intake, intake::give_up_those_of_gone);
    kernel.intake.open();
    Ok(())
}

/// What this day has used so far counts on, whatever ended the kernels before, and with it all that the turns that go on
/// had set aside: before any of them sets more aside.
async fn seed_quotas(kernel: &Kernel) -> Result<(), StoreError> {
    let (now_ms, store, quotas) = (kernel.base.clock.now_ms(), &kernel.store, &kernel.intake.turns.quotas);
    let (all, agents) = store.used_on(now_ms).await?;
    let agents = agents.into_iter().map(|(agent, used)| (agent, settings::counted(used)));
    quotas.seed_day(now_ms, settings::counted(all), agents);
    for queued in store.unfinished().await?.into_iter().filter(|queued| queued.started) {
        turn::open_session(&kernel.intake.turns, &queued).await?;
        let session = &queued.inbound.ask.session;
        store.recorded(&queued.turn).await?.lose_open_calls(session, quotas, now_ms);
    }
    Ok(())
}

/// Ends: running turns get their time, the rest is left to the next kernel; their answers go out; then extensions stop,
/// and at last nobody is served any more.
pub async fn drain(kernel: &Arc<Kernel>) {
    let deadline = tokio::time::Instant::now() + kernel.base.config.drain_timeout;
    kernel.life.behind.give_up();
    // Polling is what it takes: turns end in as many ways as there are, and a drain happens once a process.
    while kernel.intake.sessions.at_work() > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let left = kernel.intake.sessions.at_work();
    if left > 0 {
        tracing::warn!(turns = left, "turns did not end in time; they go on after the next start");
    }
    kernel.life.cancel.cancel();
    kernel.outbox.finish().await;
    if tokio::time::timeout(STOP, rollback::stop_all(&kernel.roster)).await.is_err() {
        tracing::warn!("some extensions did not stop in time; the process ends without them");
    }
    kernel.life.closing.cancel();
    kernel.life.tasks.close();
    let rest = std::time::Duration::from_secs(3);
    if tokio::time::timeout(rest, kernel.life.tasks.wait()).await.is_err() {
        tracing::warn!("some tasks did not end");
    }
}
