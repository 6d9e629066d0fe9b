//! What is on the disk now: every extension's manifest and content, and whether it may be used at all.
//!
//! It changes nothing. Boot takes all of it in; a reload compares it with what is there ([`change`](super::change)). So
//! a folder dropped by hand, an edit and what the builder made pass the same gate.

use std::{collections::BTreeMap, sync::Arc};

use drupe_config::{Loaded, Manifest};
use drupe_extension_api::{
    Fault,
    control::{Approval, ApprovalState},
};
use drupe_folders::{
    content::Content,
    discovery::{Found, Origin, PassedOver, discover, settle},
};
use drupe_link::{Quarantined, Up};
use drupe_wiring as wiring;
use jiff::Timestamp;

use super::{Key, Record, generations, place, state::Out};
use crate::{
    check::{self, Ask},
    kernel::{Kernel, store_fault},
};

/// One extension as it is on the disk, and why it is not to be used, if it is not.
pub struct Seen {
    /// A new record of it.
    pub record: Record,
    /// Why it is out.
    pub out: Option<Out>,
}

/// Everything that is on the disk.
pub struct Survey {
    /// The extensions.
    pub seen: Vec<Seen>,
    /// What is no extension.
    pub passed: Vec<PassedOver>,
}

/// Looks at everything.
pub async fn survey(kernel: &Arc<Kernel>) -> Result<Survey, Fault> {
    let looking = Arc::clone(kernel);
    // Many small reads: off the threads that answer people.
    let looked = tokio::task::spawn_blocking(move || look(&looking));
    let Survey { mut seen, passed } = looked.await.map_err(Fault::internal)?;
    let enabled = kernel.store.enabled().await.map_err(store_fault)?;
    for Seen { record, out } in &mut seen {
        if let (None, Some(manifest)) = (&out, record.manifest.clone()) {
            *out = rejected(kernel, record, &manifest, &enabled).await?;
        }
    }
    let seen = one_of_a_name(seen);
    lift_mended(kernel, &seen);
    for approval in kernel.store.activations().await.map_err(store_fault)? {
        let waits = |s: &Seen| {
            s.record.found.name == approval.extension && matches!(s.out, Some(Out::AwaitingApproval(_)))
        };
        if approval.state == ApprovalState::Pending && !seen.iter().any(waits) {
            kernel.store.withdraw_activation(&approval.extension).await.map_err(store_fault)?;
        }
    }
    Ok(Survey { seen, passed })
}

fn look(kernel: &Kernel) -> Survey {
    let (roots, refused) = kernel.layout.roots();
    let (found, mut passed) = discover(&roots);
    passed.extend(refused);
    let now = Timestamp::now();
    let mut seen: Vec<Seen> = found.into_iter().map(|found| read(kernel, Record::new(found, now))).collect();
    generations::apply_fallback(kernel, &mut seen);
    for Seen { record, .. } in &mut seen {
        record.isolation = record.manifest.as_ref().map(|m| place::isolation(kernel, record.found.origin, m));
    }
    if let Err(error) = kernel.contents.save() {
        tracing::debug!(%error, "the hashes of files were not kept; they are made again at the next start");
    }
    Survey { seen, passed }
}

/// Reads what one is. Manifest and hash are of one moment: what is agreed to is what was read.
fn read(kernel: &Kernel, mut record: Record) -> Seen {
    let hash = |found: &Found| kernel.contents.of(found, None).map(|c| c.hash).map_err(|e| e.to_string());
    for _ in 0..3 {
        let before = hash(&record.found);
        let loaded = match manifest(kernel, &record.found) {
            Ok(loaded) => loaded,
            Err(why) => return Seen { record, out: Some(Out::Failed(why)) },
        };
        let content = content(kernel, &record.found, &loaded.value);
        if before != hash(&record.found) {
            continue;
        }
        record.notes = loaded.warnings.iter().map(|w| w.message.clone()).collect();
        let mut manifest = loaded.value;
        let judged = content.and_then(|content| {
            let ask = check::judge(&mut manifest, &content, &kernel.config)?;
            record.content = Some(Arc::new(content));
            record.ask = Some(ask);
            Ok(())
        });
        record.manifest = Some(Arc::new(manifest));
        return Seen { record, out: judged.err().map(Out::Failed) };
    }
    Seen { record, out: Some(Out::Failed("it is being written".into())) }
}

/// Of several of one name at most one is used. Only one that may work takes the place of a shipped one, and only where
/// its manifest says so: nothing that the operator has not agreed to turns off what ships.
fn one_of_a_name(seen: Vec<Seen>) -> Vec<Seen> {
    let shipped = |s: &Seen| s.record.found.origin == Origin::Shipped;
    let usable = seen.iter().filter(|s| shipped(s) || s.out.is_none()).map(|s| s.record.found.clone());
    let overrides = |f: &Found| {
        let of = seen.iter().find(|s| s.record.found == *f).and_then(|s| s.record.manifest.as_ref());
        of.is_some_and(|manifest| manifest.overrides)
    };
    let settled = settle(usable.collect(), overrides);
    let verdict = |s: &Seen| settled.iter().find(|(found, _)| *found == s.record.found);
    let kept: Vec<(bool, Option<String>)> = seen
        .iter()
        .map(|s| match verdict(s) {
            Some((_, clash)) => (true, clash.clone().filter(|_| !shipped(s))),
            None => (!shipped(s), None),
        })
        .collect();
    let judged = seen.into_iter().zip(kept).filter(|(_, (kept, _))| *kept);
    judged.map(|(one, (_, clash))| Seen { out: one.out.or(clash.map(Out::Failed)), ..one }).collect()
}

/// What a folder, or a file, says that it is.
pub fn manifest(kernel: &Kernel, found: &Found) -> Result<Loaded<Manifest>, String> {
    let loaded = check::load(&found.folder, kernel.home.root());
    loaded.map_err(|faults| faults.render(false).trim_end().to_owned())
}

/// The files of an extension, its library among them wherever that is.
pub fn content(kernel: &Kernel, found: &Found, manifest: &Manifest) -> Result<Content, String> {
    let library = manifest.entrypoint.as_ref().and_then(|e| kernel.layout.library(found, e).ok());
    kernel.contents.of(found, library.as_deref()).map_err(|error| error.to_string())
}

/// Why an extension is not to be used, as far as its manifest and the operator's decisions tell.
async fn rejected(
    kernel: &Kernel,
    record: &Record,
    manifest: &Manifest,
    enabled: &BTreeMap<String, bool>,
) -> Result<Option<Out>, Fault> {
    let third_party = record.found.origin != Origin::Shipped;
    match enabled.get(manifest.id.as_str()) {
        Some(false) => return Ok(Some(Out::Disabled("turned off by `drupe ext disable`".into()))),
        None if !manifest.is_enabled(&kernel.config) => {
            return Ok(Some(Out::Disabled("turned off by `enabled: false`".into())));
        }
        _ => {}
    }
    if kernel.start.safe_mode && third_party {
        return Ok(Some(Out::Disabled("safe mode leaves third-party extensions out".into())));
    }
    // Their names stand before those of topics and sessions.
    if let Some(why) = wiring::kept_id(manifest.id.as_str()) {
        return Ok(Some(Out::Failed(why)));
    }
    if let Some(out) = quarantined(kernel, record) {
        return Ok(Some(out));
    }
    if let Err(faults) = manifest.resolve_secrets(&kernel.config.overlay) {
        let why = format!("not configured: {}", faults.render(false).trim_end());
        return Ok(Some(if third_party { Out::Failed(why) } else { Out::Disabled(why) }));
    }
    if third_party { unapproved(kernel, record, manifest).await } else { Ok(None) }
}

/// What the supervisor holds against it, which is its content and not its name.
fn quarantined(kernel: &Kernel, record: &Record) -> Option<Out> {
    let verdicts = kernel.verdicts().quarantined;
    let verdict = verdicts.iter().find(|q| q.extension == record.found.name && q.hash == record.hash())?;
    hold(kernel, &record.key(), record.hash());
    Some(Out::Quarantined(quarantine(verdict)))
}

/// Notes where a quarantined content lies.
pub fn hold(kernel: &Kernel, (name, folder): &Key, hash: &str) {
    if let Err(error) = kernel.held.note(name, hash, folder) {
        tracing::warn!(%error, "where a quarantined extension lies was not noted; only `drupe ext release` lifts it");
    }
}

/// Lifts the quarantines of contents whose place another one took that is to work. One that only bears the name lifts
/// nothing, and a copy that stands in neither: what crashed may come back.
fn lift_mended(kernel: &Kernel, seen: &[Seen]) {
    for verdict in kernel.verdicts().quarantined {
        let mends = |s: &Seen| {
            let (name, folder) = (&s.record.found.name, &s.record.found.folder);
            *name == verdict.extension
                && s.out.is_none()
                && s.record.hash() != verdict.hash
                && kernel.held.lay_in(name, &verdict.hash, folder)
        };
        if seen.iter().any(mends) {
            let reason = "its content has changed".to_owned();
            kernel.tell_supervisor(&Up::Released { extension: verdict.extension, reason });
        }
    }
}

/// A quarantine in words.
pub fn quarantine(verdict: &Quarantined) -> String {
    let id = &verdict.extension;
    format!("{}; replace it, or try it again with `drupe ext release {id}`", verdict.reason)
}

/// Whether the operator must agree first. Asks once for a content.
async fn unapproved(kernel: &Kernel, record: &Record, manifest: &Manifest) -> Result<Option<Out>, Fault> {
    let (id, Some(Ask { hash, needs })) = (&manifest.id, &record.ask) else { return Ok(None) };
    if needs.is_empty() || kernel.config.approvals.preauthorized.contains(id) {
        return Ok(None);
    }
    let ask = |hash: String| kernel.store.ask_activation(id.to_string(), hash, needs.clone());
    let mut asked = ask(hash.clone()).await.map_err(store_fault)?;
    // What it needs depends on the configuration, too: an agreement reaches as far as what was shown.
    if asked.state == ApprovalState::Allowed
        && !needs.iter().all(|need| asked.needs.contains(need))
        && let Some(content) = &record.content
    {
        let more = [("asked before", hash.as_str()), ("needs", &needs.join("\n"))];
        asked = ask(content.hash_with(more)).await.map_err(store_fault)?;
    }
    let brings = needs.join(", ");
    let runs = match &manifest.entrypoint {
        Some(_) => "; what runs is the library as it was built, not the sources beside it",
        None => "",
    };
    let Approval { id: approval, state, .. } = asked;
    Ok(match state {
        ApprovalState::Allowed => None,
        ApprovalState::Denied => Some(Out::Denied(format!(
            "the operator did not agree that it brings {brings}; `drupe approvals allow {approval}` takes that back"
        ))),
        ApprovalState::Pending | ApprovalState::Withdrawn => Some(Out::AwaitingApproval(format!(
            "it brings {brings}; `drupe approvals allow {approval}` lets it work{runs}"
        ))),
    })
}
