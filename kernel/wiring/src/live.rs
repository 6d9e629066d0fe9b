//! The instances that work now, by extension. A call that was cut off by a crash finds here what took the place of the
//! one that it was made to.

use std::{collections::HashMap, sync::Arc};

use drupe_extension_api::ExtensionId;
use drupe_host::Instance;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::rests::Rests;

#[derive(Clone)]
enum Now {
    Works(Arc<Instance>),
    /// It comes back by itself.
    Away,
    Gone,
}

/// The instances that work now.
#[derive(Default)]
pub struct Live {
    instances: Mutex<HashMap<String, watch::Sender<Now>>>,
    /// Those that are not asked for a while.
    pub(crate) rests: Rests,
}

impl Live {
    pub fn works(&self, id: &ExtensionId, instance: Arc<Instance>) {
        self.rests.forget(id);
        self.set(id.as_str(), Now::Works(instance));
    }

    /// None works, for a while.
    pub fn away(&self, id: &str) {
        self.set(id, Now::Away);
    }

    /// None works, and nobody need wait for one.
    pub fn gone(&self, id: &str) {
        self.set(id, Now::Gone);
    }

    /// Waits for an instance that is not `old`; none if there will be none. The caller bounds the wait.
    pub async fn replacement(&self, id: &ExtensionId, old: &Arc<Instance>) -> Option<Arc<Instance>> {
        let mut now = self.instances.lock().get(id.as_str())?.subscribe();
        let settled = now.wait_for(|now| match now {
            Now::Works(instance) => !Arc::ptr_eq(instance, old),
            Now::Away => false,
            Now::Gone => true,
        });
        match settled.await.ok()?.clone() {
            Now::Works(instance) => Some(instance),
            Now::Away | Now::Gone => None,
        }
    }

    fn set(&self, id: &str, now: Now) {
        let mut all = self.instances.lock();
        match all.get(id) {
            Some(known) => drop(known.send_replace(now)),
            None => drop(all.insert(id.to_owned(), watch::channel(now).0)),
        }
    }
}
