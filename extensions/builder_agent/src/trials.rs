//! What came of the cases of each draft: of which content, and how often they failed. It is kept as long as this process lives:
//! whoever asks afterwards runs them once more.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::prelude::*;

/// How often the cases of one draft may fail within one turn. A model that has not mended it by then goes round in circles, and
/// the user hears of it.
pub const TRIES: u32 = 5;

/// What came of the cases of one content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed,
    /// They could not be run, for this reason.
    NotRun(String),
}

#[derive(Default)]
pub struct Trials(Mutex<BTreeMap<ExtensionId, Tried>>);

#[derive(Default)]
struct Tried {
    /// The hash of what was tried last, and what came of it.
    last: Option<(String, Verdict)>,
    /// In which turn it failed, and how often.
    failed: Option<(TurnId, u32)>,
    held: bool,
}

/// The copy of a draft, which is tried or handed over as long as this lives.
pub struct HeldDraft<'a> {
    trials: &'a Trials,
    id: ExtensionId,
}

impl Drop for HeldDraft<'_> {
    fn drop(&mut self) {
        if let Some(tried) = self.trials.all().get_mut(&self.id) {
            tried.held = false;
        }
    }
}

impl Trials {
    fn all(&self) -> MutexGuard<'_, BTreeMap<ExtensionId, Tried>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the copy of a draft: in another session somebody may work with it.
    pub fn hold(&self, id: &ExtensionId) -> Result<HeldDraft<'_>, Fault> {
        let mut all = self.all();
        let tried = all.entry(id.clone()).or_default();
        if std::mem::replace(&mut tried.held, true) {
            return Err(Fault::new(FaultCode::Busy, format!("`{id}` is being tried, or handed over"))
                .help("try again when that has ended"));
        }
        Ok(HeldDraft { trials: self, id: id.clone() })
    }

    /// Refuses a draft whose cases failed too often in this turn.
    pub fn may_fail(&self, id: &ExtensionId, turn: &TurnId) -> Result<(), Fault> {
        match self.all().get(id).map_or(0, |tried| tried.failures(turn)) {
            failures if failures < TRIES => Ok(()),
            _ => Err(Fault::denied(format!("the cases of `{id}` failed {TRIES} times")).help(
                "do not go on: tell the user which case fails and why; a further message may go on with the draft",
            )),
        }
    }

    /// Notes what came of one. Gives how often its cases may still fail in this turn.
    pub fn note(&self, id: &ExtensionId, turn: &TurnId, content: String, verdict: Verdict) -> u32 {
        let mut all = self.all();
        let tried = all.entry(id.clone()).or_default();
        if verdict == Verdict::Failed {
            tried.failed = Some((turn.clone(), tried.failures(turn) + 1));
        }
        tried.last = Some((content, verdict));
        TRIES.saturating_sub(tried.failures(turn))
    }

    /// What came of exactly this content; nothing where it was not tried.
    pub fn verdict(&self, id: &ExtensionId, content: &str) -> Option<Verdict> {
        let all = self.all();
        let (of, verdict) = all.get(id)?.last.as_ref()?;
        (of == content).then(|| verdict.clone())
    }

    pub fn forget(&self, id: &ExtensionId) {
        self.all().remove(id);
    }
}

impl Tried {
    fn failures(&self, turn: &TurnId) -> u32 {
        self.failed.as_ref().filter(|(of, _)| of == turn).map_or(0, |(_, times)| *times)
    }
}
