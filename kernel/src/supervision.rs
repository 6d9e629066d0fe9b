//! The kernel's side of what it and its supervisor tell each other.

use std::sync::Arc;

use drupe_link::{KernelLink, Up, Verdicts};
use parking_lot::{Mutex, RwLock};

/// The link, and what came over it.
pub struct Supervision {
    link: Arc<KernelLink>,
    verdicts: RwLock<Verdicts>,
    refused: Mutex<Option<String>>,
}

impl Supervision {
    /// With what the supervisor said at the start, and why the operator's configuration is not in force, if it is not.
    pub fn new(link: Arc<KernelLink>, verdicts: Verdicts, refused: Option<String>) -> Self {
        Self { link, verdicts: RwLock::new(verdicts), refused: Mutex::new(refused) }
    }

    /// Sends a frame without waiting. The supervisor reads all the time; one that it does not take is lost, and said.
    pub fn tell(&self, frame: &Up) {
        if let Err(error) = self.link.try_send(frame) {
            tracing::warn!(%error, "a frame was not sent to the supervisor");
        }
    }

    /// What the supervisor knows of extensions that crash.
    pub fn verdicts(&self) -> Verdicts {
        self.verdicts.read().clone()
    }

    /// Takes over what the supervisor knows now.
    pub fn set_verdicts(&self, verdicts: Verdicts) {
        *self.verdicts.write() = verdicts;
    }

    /// An extension is given another chance.
    pub fn forgive(&self, extension: &str) {
        let mut verdicts = self.verdicts.write();
        verdicts.quarantined.retain(|q| q.extension != extension);
        drop(verdicts);
        let reason = "the operator released it".to_owned();
        self.tell(&Up::Released { extension: extension.to_owned(), reason });
    }

    /// Why what the operator has written is not in force, where it was found to be refused.
    pub fn refused(&self) -> Option<String> {
        self.refused.lock().clone()
    }

    pub fn set_refused(&self, why: Option<String>) {
        *self.refused.lock() = why;
    }
}
