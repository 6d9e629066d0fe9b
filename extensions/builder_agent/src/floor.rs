//! Who may work on the data folder: programs of drafts, or a draft's handing over, and never both, whichever sessions they
//! are of. A program may write wherever drafts and their copies lie; what is handed over is to be what was copied.

use std::sync::atomic::{AtomicIsize, Ordering};

use drupe_extension_api::prelude::*;

/// Programs that run, or drafts that are handed over, as a negative number.
#[derive(Default)]
pub struct Floor(AtomicIsize);

/// Taken as long as it lives.
pub struct Taken<'a> {
    floor: &'a Floor,
    by: isize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.floor.0.fetch_sub(self.by, Ordering::AcqRel);
    }
}

impl Floor {
    /// For a program of a draft.
    pub fn program(&self) -> Result<Taken<'_>, Fault> {
        self.take(1, "a draft is being handed over, which no program may change meanwhile")
    }

    /// For handing a draft over.
    pub fn handing_over(&self) -> Result<Taken<'_>, Fault> {
        self.take(
            -1,
            "a draft is being compiled or tested, and its programs could change what is handed over",
        )
    }

    fn take(&self, by: isize, refusal: &str) -> Result<Taken<'_>, Fault> {
        let free = |now: isize| (now * by >= 0).then_some(now + by);
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, free) {
            Ok(_) => Ok(Taken { floor: self, by }),
            Err(_) => Err(Fault::new(FaultCode::Busy, refusal).help("try again when that has ended")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_handing_over_exclude_each_other_and_neither_itself() {
        let floor = Floor::default();
        let running =
            [floor.program().expect("it is free"), floor.program().expect("programs do not mind others")];
        let refused = floor.handing_over().err().expect("programs run");
        assert_eq!(refused.code, FaultCode::Busy);
        drop(running);
        let handed =
            [floor.handing_over().expect("it is free"), floor.handing_over().expect("copies are apart")];
        assert!(floor.program().is_err());
        drop(handed);
        assert!(floor.program().is_ok());
    }
}
