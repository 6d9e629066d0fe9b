//! What is on the disk now: every extension's manifest and content, and whether it may be used at all.
//!
//! It changes nothing of them. Boot takes all of it in; a reload compares it with what is there ([`change`](super::change)). So
//! a folder dropped by hand, an edit and what the builder made pass the same gate.

use std::{collections::BTreeMap, sync::Arc};

use drupe_config::Manifest;
use drupe_extension_api::{Fault, control::ApprovalState};
use drupe_folders::discovery::{Origin, discover};
use drupe_gate::survey::{self as gate, Decided, Looked, Named};
use drupe_link::Up;
use jiff::Timestamp;

use super::{Key, Record, Roster, generations, load, state::Out};
use crate::check::Ask;

/// One extension as it is on the disk, and why it is not to be used, if it is not.
pub struct Seen {
    /// A new record of it.
    pub record: Record,
    /// Why it is out.
    pub out: Option<Out>,
}

/// Looks at everything; remarks on what is no extension.
pub async fn survey(roster: &Arc<Roster>) -> Result<Vec<Seen>, Fault> {
    let looking = Arc::clone(roster);
    // Many small reads: off the threads that answer people.
    let looked = tokio::task::spawn_blocking(move || look(&looking));
    let mut seen = looked.await.map_err(Fault::internal)?;
    let enabled = roster.store.enabled().await?;
    for Seen { record, out } in &mut seen {
        if let (None, Some(manifest)) = (&out, record.manifest.clone()) {
            *out = rejected(roster, record, &manifest, &enabled).await?;
        }
    }
    let seen = gate::one_of_a_name(
        seen,
        |s| Named { found: &s.record.found, manifest: s.record.manifest.as_deref(), usable: s.out.is_none() },
        |s, out| Seen { out: Some(out), ..s },
    );
    lift_mended(roster, &seen);
    for approval in roster.store.activations().await? {
        let waits = |s: &Seen| {
            s.record.found.name == approval.extension && matches!(s.out, Some(Out::AwaitingApproval(_)))
        };
        if approval.state == ApprovalState::Pending && !seen.iter().any(waits) {
            roster.store.withdraw_activation(&approval.extension).await?;
        }
    }
    Ok(seen)
}

fn look(roster: &Roster) -> Vec<Seen> {
    let (roots, refused) = roster.disk.layout.roots();
    let (found, mut passed) = discover(&roots);
    passed.extend(refused);
    roster.extensions.set_passed_over(passed);
    let now = Timestamp::now();
    let eyes = roster.eyes();
    let mut seen: Vec<Seen> = found.into_iter().map(|found| Seen::new(eyes.look(found), now)).collect();
    generations::apply_fallback(roster, &mut seen);
    for Seen { record, .. } in &mut seen {
        record.isolation = record.manifest.as_ref().map(|m| load::isolation(roster, record.found.origin, m));
    }
    if let Err(error) = roster.disk.contents.save() {
        tracing::debug!(%error, "the hashes of files were not kept; they are made again at the next start");
    }
    seen
}

impl Seen {
    fn new(looked: Looked, now: Timestamp) -> Self {
        let Looked { found, manifest, content, ask, diagnostics, out } = looked;
        // Faults are the reason why it is out.
        let notes = diagnostics.iter().filter(|_| manifest.is_some()).map(|w| w.message.clone()).collect();
        Self { record: Record { manifest, content, ask, notes, ..Record::new(found, now) }, out }
    }
}

/// Why an extension is not to be used, as far as its manifest and the operator's decisions tell.
async fn rejected(
    roster: &Roster,
    record: &Record,
    manifest: &Manifest,
    enabled: &BTreeMap<String, bool>,
) -> Result<Option<Out>, Fault> {
    let third_party = record.found.origin != Origin::Shipped;
    let verdicts = roster.supervision.verdicts().quarantined;
    // What is held against its content and not against its name.
    let held = verdicts.iter().find(|q| q.extension == record.found.name && q.hash == record.hash());
    let decided = Decided {
        third_party,
        enabled: enabled.get(manifest.id.as_str()).copied(),
        safe_mode: roster.base.start.safe_mode,
        quarantined: held,
    };
    if let Some(out) = roster.eyes().refused(&record.found, manifest, decided) {
        if let Out::Quarantined(_) = out {
            hold(roster, &record.key(), record.hash());
        }
        return Ok(Some(out));
    }
    match record.ask.as_ref().filter(|ask| gate::is_asked(manifest, ask, &roster.base.config, third_party)) {
        Some(ask) => unapproved(roster, record, manifest, ask).await,
        None => Ok(None),
    }
}

/// Notes where a quarantined content lies. The copy of a kept one that stands in is no place to be mended in.
pub fn hold(roster: &Roster, (name, folder): &Key, hash: &str) {
    if folder.starts_with(roster.base.home.restored()) {
        return;
    }
    if let Err(error) = roster.disk.held.note(name, hash, folder) {
        tracing::warn!(%error, "where a quarantined extension lies was not noted; only `drupe ext release` lifts it");
    }
}

/// Lifts the quarantines of contents whose place another one took that is to work. One that only bears the name lifts
/// nothing, and a copy that stands in neither: what crashed may come back.
fn lift_mended(roster: &Roster, seen: &[Seen]) {
    for verdict in roster.supervision.verdicts().quarantined {
        let mends = |s: &Seen| {
            let (name, folder) = (&s.record.found.name, &s.record.found.folder);
            *name == verdict.extension
                && s.out.is_none()
                && s.record.hash() != verdict.hash
                && roster.disk.held.lay_in(name, &verdict.hash, folder)
        };
        if seen.iter().any(mends) {
            let reason = "its content has changed".to_owned();
            roster.supervision.tell(&Up::Released { extension: verdict.extension, reason });
        }
    }
}

/// Whether the operator must agree first. Asks once for a content.
async fn unapproved(
    roster: &Roster,
    record: &Record,
    manifest: &Manifest,
    ask: &Ask,
) -> Result<Option<Out>, Fault> {
    let question =
        |hash: String| roster.store.ask_activation(manifest.id.to_string(), hash, ask.needs.clone());
    let mut asked = question(ask.hash.clone()).await?;
    let more = record.content.as_ref().and_then(|content| gate::asked_again(content, ask, &asked));
    if let Some(hash) = more {
        asked = question(hash).await?;
    }
    Ok(gate::answered(manifest, ask, &asked.id, asked.state))
}
