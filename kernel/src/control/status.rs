//! What the daemon is doing, and with which configuration.

use std::sync::Arc;

use drupe_agent::one_line;
use drupe_config::ApprovalMode;
use drupe_extension_api::{
    Fault,
    control::{ConfigValue, DaemonState, Status},
};
use drupe_gate::survey::model_names;
use drupe_journal::{Upgraded, disk, kept_beside};
use drupe_wiring::NOTICE;
use jiff::Timestamp;

use super::people;
use crate::{extension::Record, kernel::Kernel};

/// What the kernel is doing.
pub async fn status(kernel: &Arc<Kernel>) -> Result<Status, Fault> {
    let counts = kernel.store.counts().await?;
    let (base, roster) = (&kernel.base, &kernel.roster);
    let start = &base.start;
    let snapshot = roster.snapshot();
    let mut notices = start.notices.clone();
    let refused = kernel.supervision.refused();
    notices.extend(refused.iter().map(|why| format!("the configuration on the disk is not in force: {why}")));
    notices.extend(snapshot.notices.iter().cloned());
    notices.extend(roster.extensions.passed_over());
    notices.extend(base.config.unknown_extensions(&roster.extensions.read(|r| r.found.name.clone())));
    let working = |r: &Record| r.manifest.clone().filter(|_| !r.state.is_out());
    let manifests = roster.extensions.read(working).into_iter().flatten();
    let mut models = base.config.model_names();
    models.extend(manifests.filter_map(|manifest| model_names(&manifest, &base.config)));
    notices.extend(roster.wired.models.notices(&models, base.clock.now_ms()));
    notices.extend(disk::remark(base.home.root()));
    if base.config.approvals.mode == ApprovalMode::FullAccess {
        notices.push(
            "`approvals.mode` is `full-access`: calls of tools run without being asked about".to_owned(),
        );
    }
    notices.extend(restored(kernel).await);
    notices.extend(upgraded(kernel).await);
    notices.extend(kernel.store.gone().await.ok().flatten().map(|gone| gone.to_string()));
    notices.extend(people::notice(kernel).await?);
    // Whoever made them, in whosever words.
    let notices = notices.iter().map(|notice| one_line(notice, NOTICE)).collect();
    let state =
        if kernel.life.ending.decided().is_some() { DaemonState::Draining } else { DaemonState::Ready };
    Ok(Status {
        version: env!("CARGO_PKG_VERSION").into(),
        state,
        supervisor_pid: start.supervisor_pid,
        kernel_pid: Some(std::process::id()),
        generation: start.generation,
        uptime_ms: start
            .began
            .map_or(0, |began| u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)),
        restarts: start.restarts,
        safe_mode: start.safe_mode,
        model: Some(snapshot.orchestrator.model().profile().name.clone()),
        sessions: counts.sessions,
        running_turns: kernel.intake.sessions.running() as u64,
        summing_up: kernel.life.behind.at_work() as u64,
        queued_turns: counts.queued_turns,
        queued_deliveries: counts.queued_deliveries,
        queued_messages: counts.queued_messages,
        dead_messages: counts.dead_messages,
        budgets: kernel
            .intake
            .turns
            .quotas
            .standing(base.clock.now_ms())
            .into_iter()
            .map(|b| b.used)
            .collect(),
        extensions: roster.extensions.read(Record::status),
        exits: start.exits.clone(),
        notices,
        config_refused: refused.map(|why| one_line(&why, NOTICE)),
        backup: kernel.backups.status(),
    })
}

/// For how long it is said what became of the journal.
const SHOWN_MS: i64 = 7 * 24 * 3_600_000;

fn is_shown(kernel: &Kernel, at: Timestamp) -> bool {
    kernel.base.clock.now_ms().saturating_sub(at.as_millisecond()) < SHOWN_MS
}

/// Where the journal is kept as it was before an upgrade, for some days.
async fn upgraded(kernel: &Kernel) -> Option<String> {
    let Upgraded { from, to, at } = kernel.store.upgraded().await.ok().flatten()?;
    let mut kept = kept_beside(&kernel.base.home.journal()).into_iter();
    let kept = is_shown(kernel, at).then(|| kept.find(|kept| kept.version == from)).flatten()?;
    let kept = kept.path.display();
    Some(format!(
        "the journal was brought from version {from} to {to} at {at}; as it was before it is kept in `{kept}`, which may be \
         deleted when all is well"
    ))
}

/// What a restore left open, for some days.
async fn restored(kernel: &Kernel) -> Option<String> {
    let settled = kernel.store.put_back().await.ok().flatten()?;
    is_shown(kernel, settled.put_back).then(|| {
        format!(
            "the journal was restored at {} from a backup of {}: {} turns without an answer ended, {} messages to people and {} of \
             topics may have been sent since",
            settled.put_back, settled.made, settled.turns, settled.deliveries, settled.messages
        )
    })
}

pub(super) fn config(kernel: &Kernel) -> Vec<ConfigValue> {
    let values = kernel.base.config.effective().into_iter();
    values.map(|v| ConfigValue { key: v.key, value: v.value, origin: v.origin.to_string() }).collect()
}
