//! Background work of extensions: runs, and is started again when it ends by itself.

use std::{sync::Arc, time::Instant};

use drupe_extension_api::{Fault, FaultCode, wire::op};
use drupe_host::{Faults, Header, Instance};
use drupe_wiring::Part;

use super::{Key, Record, Roster, recovery, state::State};

/// Runs an extension's service until the kernel ends. One that cannot be kept running breaks its extension.
pub fn supervise(roster: &Arc<Roster>, key: &Key, part: &Part) {
    let Some(instance) = part.instance.as_ref().map(Arc::downgrade) else { return };
    let (roster, key, id) = (Arc::clone(roster), key.clone(), part.id().clone());
    roster.clone().life.tasks.spawn(async move {
        let mut faults = Faults::default();
        loop {
            // Held only while it runs, so that an extension that is taken out ends.
            let Some(running) = instance.upgrade() else { return };
            let result = tokio::select! {
                result = running.call::<serde_json::Value>(op::SERVICE_RUN, &(), Header::default()) => result,
                () = roster.life.closing.cancelled() => return,
            };
            drop(running);
            let fault = match result {
                Err(fault) => fault,
                // One that returns while the kernel ends was told to.
                Ok(_) if roster.life.ending.decided().is_some() => return,
                Ok(_) => Fault::new(FaultCode::Other, "it returned, though nothing had told it to stop"),
            };
            // What its process did is heard elsewhere; one that was taken out was told to end.
            let this = |present: &Arc<Instance>| std::ptr::eq(Arc::as_ptr(present), instance.as_ptr());
            let active = |r: &mut Record| r.state == State::Active && r.instance().is_some_and(this);
            let works = roster.extensions.with(&key, active);
            if fault.code == FaultCode::Crashed || works != Some(true) {
                return;
            }
            let Some(wait) = faults.again(Instant::now()) else {
                let why = format!("its service failed {} times in a row, at last with: {fault}", faults.count());
                return recovery::broke(&roster, &key, this, why).await;
            };
            tracing::warn!(extension = %id, %fault, ?wait, "the service ended with a fault and is started again");
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = roster.life.closing.cancelled() => return,
            }
        }
    });
}
