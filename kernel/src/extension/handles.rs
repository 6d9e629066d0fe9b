//! Handles: what lasts between calls. An extension pulls items from a handle, so that its pace bounds the kernel's.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use drupe_agent::Chain;
use drupe_bus::{Pull, Subscription};
use drupe_extension_api::{
    ExtensionId, Fault,
    wire::{BusMessage, HandleItems, HandleNext},
};
use drupe_journal::DueMessage;

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

/// From where the items of a handle come.
#[derive(Clone)]
pub enum Messages {
    /// A topic, from the moment at which it was opened.
    Live(Arc<Subscription>),
    /// A topic whose messages wait.
    Durable(Arc<Pull>),
}

impl Messages {
    async fn next(&self, credit: u32) -> Result<HandleItems, Fault> {
        let credit = credit.max(1);
        let messages = match self {
            Self::Live(subscription) => subscription.next(credit).await,
            Self::Durable(pull) => pull.next(credit).await.into_iter().map(bus_message).collect(),
        };
        // There is always one to wait for, unless the handle has ended.
        let ended = messages.is_empty();
        let items = messages.into_iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        Ok(HandleItems { items, ended })
    }

    fn chain(&self) -> Option<Chain> {
        match self {
            Self::Live(subscription) => subscription.chain(),
            Self::Durable(pull) => pull.chain(),
        }
    }

    fn close(&self) {
        if let Self::Durable(pull) = self {
            pull.close();
        }
    }
}

fn bus_message(message: DueMessage) -> BusMessage {
    BusMessage {
        topic: message.topic,
        payload: message.payload,
        correlation_id: message.correlation,
        id: Some(message.id),
        skipped: 0,
    }
}

/// The handles of all instances.
#[derive(Default)]
pub struct Handles {
    next: AtomicU64,
    open: Mutex<HashMap<u64, (Holder, Messages)>>,
}

impl Handles {
    /// A holder for a new instance.
    pub fn holder(&self, extension: ExtensionId) -> Holder {
        Holder { extension, instance: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// Refuses an instance that holds too many.
    pub fn check_room(&self, owner: &Holder) -> Result<(), Fault> {
        match self.lock().values().filter(|(of, _)| of == owner).count() >= MOST {
            true => Err(Fault::denied(format!(
                "extension `{}` holds {MOST} handles; close some",
                owner.extension
            ))),
            false => Ok(()),
        }
    }

    /// A handle over messages.
    pub fn open(&self, owner: &Holder, from: Messages) -> Result<u64, Fault> {
        self.check_room(owner)?;
        let mut open = self.lock();
        let handle = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        open.insert(handle, (owner.clone(), from));
        Ok(handle)
    }

    /// The next items: waits for the first, then takes what is there, up to the reader's credit.
    pub async fn next(&self, owner: &Holder, ask: HandleNext) -> Result<HandleItems, Fault> {
        let from = match self.lock().get(&ask.handle) {
            Some((of, from)) if of == owner => from.clone(),
            _ => return Err(Fault::not_found(format!("handle {} is not open", ask.handle))),
        };
        from.next(ask.credit).await
    }

    /// What set off the messages that an instance works on now.
    pub fn chains(&self, owner: &Holder) -> Vec<Chain> {
        self.lock().values().filter(|(of, _)| of == owner).filter_map(|(_, from)| from.chain()).collect()
    }

    /// Ends one handle.
    pub fn close(&self, owner: &Holder, handle: u64) {
        self.close_where(|at, of| at == handle && of == owner);
    }

    /// Ends all handles of an instance.
    pub fn close_all(&self, owner: &Holder) {
        self.close_where(|_, of| of == owner);
    }

    fn close_where(&self, mut ends: impl FnMut(u64, &Holder) -> bool) {
        let ended: Vec<_> = self.lock().extract_if(|&at, (of, _)| ends(at, of)).collect();
        // Outside the lock: what a handle held goes back to the bus.
        for (_, (_, from)) in ended {
            from.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (Holder, Messages)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
