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
    running: bool,
}

/// The trial of a draft, as long as this lives.
pub struct Running<'a> {
    trials: &'a Trials,
    id: ExtensionId,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(tried) = self.trials.all().get_mut(&self.id) {
            tried.running = false;
        }
    }
}

impl Trials {
    fn all(&self) -> MutexGuard<'_, BTreeMap<ExtensionId, Tried>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one, unless the draft is being tried or was tried in vain too often.
    pub fn begin(&self, id: &ExtensionId, turn: &TurnId) -> Result<Running<'_>, Fault> {
        let mut all = self.all();
        let tried = all.entry(id.clone()).or_default();
        if tried.running {
            return Err(Fault::new(FaultCode::Busy, format!("the cases of `{id}` are being run"))
                .help("try again when that has ended"));
        }
        if tried.failures(turn) >= TRIES {
            let message = format!("the cases of `{id}` failed {TRIES} times");
            return Err(Fault::denied(message)
                .help("do not go on: tell the user which case fails and why; a further message may go on with the draft"));
        }
        tried.running = true;
        Ok(Running { trials: self, id: id.clone() })
    }

    /// What came of one. Gives how often its cases may still fail in this turn.
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
