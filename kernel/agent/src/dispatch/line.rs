//! Who of a step's calls runs at the same time: up to the agent's bound, and an exclusive one alone.
//!
//! Calls take their places in the order of the step, and keep that order while they wait. One about which a person is asked
//! takes its place when it may run, so that nobody waits behind it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Call, Plan};
use crate::{
    registry::Registered,
    run::{Over, Run},
    share::{self, Held, Share},
};

/// The places of one step.
pub(super) struct Line {
    free: Arc<Semaphore>,
    all: u32,
    /// The most that one of the calls takes of the session's gate.
    most: u32,
}

/// The place of a call that runs, with its share of the session's gate.
pub(super) struct Place {
    _place: Option<OwnedSemaphorePermit>,
    pub held: Held,
}

impl Line {
    /// One with so many places.
    pub fn new(places: u32) -> Self {
        let all = places.max(1);
        let free = Arc::new(Semaphore::new(usize::try_from(all).unwrap_or(usize::MAX)));
        Self { free, all, most: u32::MAX }
    }

    /// That of one call that is made beside the steps of a run: as many as may work beside it leave room for its own calls.
    pub fn beside() -> Self {
        Self { most: share::BESIDE, ..Self::new(1) }
    }

    /// Gives places to calls that run, in order, until one of them would have to wait.
    pub fn seat<'a>(&self, run: &Run, calls: impl Iterator<Item = &'a mut Call>) {
        for call in calls {
            let Plan::Run { tool, .. } = &call.plan else { continue };
            let Ok(place) = Arc::clone(&self.free).try_acquire_many_owned(self.takes(tool)) else { return };
            let Some(held) = Share::try_take(&run.scope.gate, self.weight(tool)) else { return };
            call.place = Some(Place { _place: Some(place), held });
        }
    }

    /// Waits for a place, unless the call must end first.
    pub async fn wait(&self, call: super::Place<'_>, tool: &Registered) -> Result<Place, Over> {
        let place = tokio::select! {
            biased;
            over = call.over() => return Err(over),
            // It is never closed; were it, the calls would run all at once.
            place = Arc::clone(&self.free).acquire_many_owned(self.takes(tool)) => place.ok(),
        };
        let held = Share::take(&call.run.scope.gate, self.weight(tool), call.over()).await?;
        Ok(Place { _place: place, held })
    }

    /// What a call takes of the session's gate. Of the loop's own tools some wait for others alone, and take nothing.
    fn weight(&self, tool: &Registered) -> u32 {
        let weight = tool.spec().annotations.weight;
        if tool.is_core() { weight } else { weight.clamp(1, self.most) }
    }

    fn takes(&self, tool: &Registered) -> u32 {
        if tool.spec().annotations.exclusive { self.all } else { 1 }
    }
}
