//! The set of extensions that works: kept once a kernel is ready with it, and returned to when a later one does not get
//! that far.
//!
//! Only what operators and agents put there is kept; shipped extensions come with the program.

use std::sync::Arc;

use drupe_folders::{
    content::Content,
    discovery::{Found, Kind, Origin},
};

use super::{
    Roster,
    state::{Out, State},
    survey::Seen,
};
use crate::check;

/// Keeps what works now, and tells the supervisor its name. Not while an older set stands in: that one is kept.
pub async fn keep(roster: &Arc<Roster>) {
    if !roster.base.takes_all() {
        return;
    }
    let working = roster.extensions.read(|r| {
        // What runs, not what lies on the disk and waits; and what is away for a moment is still part of it.
        let works = matches!(r.state, State::Active | State::Degraded(_));
        let third_party = r.found.origin != Origin::Shipped && works;
        let kept = (r.found.name.clone(), r.content.clone()?, r.found.kind);
        third_party.then_some(kept)
    });
    let set: Vec<(String, Arc<Content>, Kind)> = working.into_iter().flatten().collect();
    let keeping = Arc::clone(roster);
    let kept = tokio::task::spawn_blocking(move || {
        let set: Vec<(String, &Content, Kind)> =
            set.iter().map(|(id, content, kind)| (id.clone(), content.as_ref(), *kind)).collect();
        let name = keeping.disk.generations.keep(&set)?;
        keeping.disk.generations.prune(&[name.as_str()])?;
        Ok::<_, std::io::Error>(name)
    });
    match kept.await.map_err(std::io::Error::other).flatten() {
        Ok(name) => roster.supervision.tell(&roster.ready_frame(Some(name))),
        Err(error) => tracing::warn!(%error, "the set of extensions that works was not kept"),
    }
}

/// Puts the last set that worked in place of what is on the disk, where the supervisor says so.
pub fn apply_fallback(roster: &Roster, seen: &mut [Seen]) {
    let Some(name) = &roster.base.start.fallback else { return };
    let set = match roster.disk.generations.read(name) {
        Ok(set) => set,
        Err(error) => {
            tracing::error!(%error, "the last set of extensions that worked cannot be read");
            return;
        }
    };
    for one in seen.iter_mut().filter(|s| s.record.found.origin != Origin::Shipped) {
        let id = one.record.found.name.clone();
        match set.entries.get(&id) {
            Some(entry) if entry.hash == one.record.hash() => {}
            Some(entry) => one.restore(roster, name, entry.kind),
            None => {
                let why = "left out: starts with it did not become ready, and the last set of extensions that did is \
                           in use; mend it, then `drupe restart`";
                one.out = Some(Out::Failed(why.into()));
            }
        }
    }
}

impl Seen {
    /// Takes the kept copy of an extension.
    fn restore(&mut self, roster: &Roster, set: &str, kind: Kind) {
        let name = self.record.found.name.clone();
        let restored = roster.disk.generations.restore(set, &name, &roster.base.home.restored());
        let copy = restored.map_err(|error| error.to_string()).and_then(|folder| {
            let found = Found { folder, kind, ..self.record.found.clone() };
            let eyes = roster.eyes();
            let loaded = eyes.manifest(&found).map_err(|faults| faults.render(false))?;
            let mut manifest = loaded.value;
            let content = eyes.content(&found, &manifest)?;
            let ask = check::judge(&mut manifest, &content, &roster.base.config)?;
            Ok((found, manifest, content, ask))
        });
        match copy {
            Ok((found, manifest, content, ask)) => {
                self.record.found = found;
                self.record.manifest = Some(Arc::new(manifest));
                self.record.content = Some(Arc::new(content));
                self.record.ask = Some(ask);
                self.record.pending = Some(
                    "an earlier version stands in: starts with the present one did not become ready".into(),
                );
                self.out = None;
            }
            Err(why) => self.out = Some(Out::Failed(format!("its earlier version cannot be used: {why}"))),
        }
    }
}
