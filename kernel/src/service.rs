//! Background work of extensions: runs, and is started again when it ends by itself.

use std::{sync::Arc, time::Duration};

use drupe_extension_api::{Fault, FaultCode, wire::op};

use crate::{
    extension::{instance::Header, state::Event},
    kernel::Kernel,
    wiring::Part,
};

/// Waits between one end and the next start; the last repeats.
const BACKOFF: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(60),
];

/// A service that ran this long has recovered: its next fault counts as the first.
const RECOVERED: Duration = Duration::from_secs(300);

/// Faults in a row after which the extension counts as failed.
const MOST: usize = 8;

/// Runs an extension's service until the kernel ends.
pub fn supervise(kernel: &Arc<Kernel>, part: &Part) {
    let Some(instance) = part.instance.as_ref().map(Arc::downgrade) else { return };
    let (kernel, id) = (Arc::clone(kernel), part.id().clone());
    kernel.clone().tasks.spawn(async move {
        let mut faults = 0;
        loop {
            // Held only while it runs, so that an extension that is taken out ends.
            let Some(running) = instance.upgrade() else { return };
            let began = tokio::time::Instant::now();
            let result = tokio::select! {
                result = running.call::<serde_json::Value>(op::SERVICE_RUN, &(), Header::default()) => result,
                () = kernel.closing.cancelled() => return,
            };
            drop(running);
            let fault = match result {
                Err(fault) => fault,
                // One that returns while the kernel ends was told to.
                Ok(_) if kernel.ending.decided().is_some() => return,
                Ok(_) => Fault::new(FaultCode::Other, "it returned, though nothing had told it to stop"),
            };
            if began.elapsed() >= RECOVERED {
                faults = 0;
            }
            faults += 1;
            if faults >= MOST {
                let why = format!("its service failed {faults} times in a row, at last with: {fault}");
                crate::boot::take_out(&kernel, id.as_str(), Event::Failed(why)).await;
                return;
            }
            let wait = BACKOFF[(faults - 1).min(BACKOFF.len() - 1)];
            tracing::warn!(extension = %id, %fault, ?wait, "the service ended with a fault and is started again");
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = kernel.closing.cancelled() => return,
            }
        }
    });
}
