//! Handles: what lasts between calls. An extension pulls items from a handle, so that its pace bounds the kernel's.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use drupe_extension_api::{
    ExtensionId, Fault,
    wire::{BusMessage, HandleItems, HandleNext},
};
use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};

/// Handles that one extension may hold at once; more is a leak.
const MOST: usize = 256;

/// Who holds a handle: an extension, and which of its instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The extension.
    pub extension: ExtensionId,
    /// The instance: the next one of the same extension has another number.
    pub instance: u64,
}

type Subscription = Arc<tokio::sync::Mutex<broadcast::Receiver<BusMessage>>>;

/// The handles of all instances.
#[derive(Default)]
pub struct Handles {
    next: AtomicU64,
    open: Mutex<HashMap<u64, (Holder, Subscription, String)>>,
}

impl Handles {
    /// A holder for a new instance.
    pub fn holder(&self, extension: ExtensionId) -> Holder {
        Holder { extension, instance: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// A handle over the messages of one topic.
    pub fn open(
        &self,
        owner: &Holder,
        topic: String,
        from: broadcast::Receiver<BusMessage>,
    ) -> Result<u64, Fault> {
        let mut open = self.lock();
        if open.values().filter(|(of, ..)| of == owner).count() >= MOST {
            return Err(Fault::denied(format!(
                "extension `{}` holds {MOST} handles; close some",
                owner.extension
            )));
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        open.insert(handle, (owner.clone(), Arc::new(tokio::sync::Mutex::new(from)), topic));
        Ok(handle)
    }

    /// The next items: waits for the first, then takes what is there, up to the reader's credit.
    pub async fn next(&self, owner: &Holder, ask: HandleNext) -> Result<HandleItems, Fault> {
        let found = match self.lock().get(&ask.handle) {
            Some((of, from, topic)) if of == owner => (Arc::clone(from), topic.clone()),
            _ => return Err(Fault::not_found(format!("handle {} is not open", ask.handle))),
        };
        let (from, topic) = found;
        let mut from = from.lock().await;
        let mut items = Vec::new();
        let mut skipped = 0;
        loop {
            let message = if items.is_empty() {
                match from.recv().await {
                    Ok(message) => message,
                    Err(RecvError::Lagged(n)) => {
                        skipped += n;
                        continue;
                    }
                    Err(RecvError::Closed) => return Ok(HandleItems { items, ended: true }),
                }
            } else {
                match from.try_recv() {
                    Ok(message) => message,
                    Err(TryRecvError::Lagged(n)) => {
                        skipped += n;
                        continue;
                    }
                    Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                }
            };
            if message.topic == topic {
                let message = BusMessage { skipped: std::mem::take(&mut skipped), ..message };
                items.push(serde_json::to_value(message)?);
                if items.len() >= ask.credit.max(1) as usize {
                    break;
                }
            }
        }
        Ok(HandleItems { items, ended: false })
    }

    /// Ends one handle.
    pub fn close(&self, owner: &Holder, handle: u64) {
        self.lock().retain(|&at, (of, ..)| at != handle || of != owner);
    }

    /// Ends all handles of an instance.
    pub fn close_all(&self, owner: &Holder) {
        self.lock().retain(|_, (of, ..)| of != owner);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (Holder, Subscription, String)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
