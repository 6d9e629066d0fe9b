//! The instances of servers: one for each conversation and server, or one for all where the operator shares it. There are so many
//! at most; for one more, the one that has been idle for the longest is ended. Who uses one holds it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::prelude::*;

use crate::connection::Connection;

/// A server and a conversation; none for one that is shared.
pub type PlaceKey = (String, Option<SessionId>);

/// One place for a connection. Whoever comes while it is made waits for it.
#[derive(Default)]
pub struct Place {
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    users: AtomicUsize,
    /// When it was used last, as the number of that use among all.
    used: AtomicU64,
    /// Calls in a row that got no answer in their time.
    late: AtomicUsize,
}

#[derive(Default)]
pub struct Instances {
    all: Arc<Mutex<BTreeMap<PlaceKey, Arc<Place>>>>,
    uses: AtomicU64,
}

/// An instance that somebody uses: it is not ended for being idle.
pub struct Lease(Arc<Place>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lease {
    /// The connection, made where there is none that works.
    pub async fn connection<F>(&self, connect: impl FnOnce() -> F) -> Result<Arc<Connection>, Fault>
    where
        F: Future<Output = Result<Arc<Connection>, Fault>>,
    {
        let mut held = self.0.connection.lock().await;
        if let Some(connection) = held.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        // The old one ends before there is a new one, so that they do not work on the same files.
        *held = None;
        let connection = connect().await?;
        self.0.late.store(0, Ordering::Relaxed);
        Ok(Arc::clone(held.insert(connection)))
    }

    /// Ends the connection, for those who come later.
    pub async fn end(&self) {
        *self.0.connection.lock().await = None;
    }

    /// Counts a call without an answer; how many there are in a row.
    pub fn late(&self) -> usize {
        self.0.late.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts anew, since there was an answer.
    pub fn answered(&self) {
        self.0.late.store(0, Ordering::Relaxed);
    }
}

impl Instances {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PlaceKey, Arc<Place>>> {
        lock(&self.all)
    }

    /// The instance of a key, to use it.
    pub fn take(
        &self,
        host: &Host,
        key: PlaceKey,
        most: usize,
        idle: Option<Duration>,
    ) -> Result<Lease, Fault> {
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        let mut all = self.lock();
        let instance = match all.get(&key) {
            Some(instance) => Arc::clone(instance),
            None => {
                let gone = if all.len() >= most { Some(make_room(&mut all, most)?) } else { None };
                let instance = Arc::<Place>::default();
                all.insert(key.clone(), Arc::clone(&instance));
                if let Some(idle) = idle {
                    let watch =
                        watch(host.clone(), Arc::clone(&self.all), key, Arc::downgrade(&instance), idle);
                    host.spawn(watch)?;
                }
                // Ending a connection may take a moment.
                drop(gone);
                instance
            }
        };
        instance.users.fetch_add(1, Ordering::Relaxed);
        instance.used.store(now, Ordering::Relaxed);
        Ok(Lease(instance))
    }

    /// How many of a server run, or begin.
    pub fn of(&self, server: &str) -> usize {
        let works = |instance: &Place| match instance.connection.try_lock() {
            Ok(held) => held.as_ref().is_some_and(|connection| !connection.is_closed()),
            Err(_) => true,
        };
        self.lock().iter().filter(|((name, _), instance)| name == server && works(instance)).count()
    }

    /// Ends all of a server.
    pub fn end(&self, server: &str) {
        let gone: Vec<_> = self.lock().extract_if(.., |(name, _), _| name == server).collect();
        drop(gone);
    }

    pub fn clear(&self) {
        let gone = std::mem::take(&mut *self.lock());
        drop(gone);
    }
}

fn lock(all: &Mutex<BTreeMap<PlaceKey, Arc<Place>>>) -> MutexGuard<'_, BTreeMap<PlaceKey, Arc<Place>>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes out the one that has been idle for the longest.
fn make_room(all: &mut BTreeMap<PlaceKey, Arc<Place>>, most: usize) -> Result<Arc<Place>, Fault> {
    let idle = all.iter().filter(|(_, instance)| instance.users.load(Ordering::Relaxed) == 0);
    let oldest =
        idle.min_by_key(|(_, instance)| instance.used.load(Ordering::Relaxed)).map(|(key, _)| key.clone());
    oldest.and_then(|key| all.remove(&key)).ok_or_else(|| {
        Fault::new(FaultCode::Busy, format!("{most} MCP servers are at work, which is the most"))
            .help("try again later; `extensions.mcp.instances` of drupe.yaml says how many there may be")
    })
}

/// Ends an instance that nobody has used for as long as that.
async fn watch(
    host: Host,
    all: Arc<Mutex<BTreeMap<PlaceKey, Arc<Place>>>>,
    key: PlaceKey,
    instance: Weak<Place>,
    idle: Duration,
) {
    let mut seen = None;
    loop {
        if host.sleep(idle).await.is_err() {
            return;
        }
        let Some(instance) = instance.upgrade() else { return };
        let used = Some(instance.used.load(Ordering::Relaxed));
        if instance.users.load(Ordering::Relaxed) > 0 || seen != used {
            seen = used;
            continue;
        }
        let mut all = lock(&all);
        // Somebody may have come, or another one may have its place.
        let same = all.get(&key).is_some_and(|current| Arc::ptr_eq(current, &instance));
        let gone = (same && instance.users.load(Ordering::Relaxed) == 0).then(|| all.remove(&key));
        drop(all);
        drop(gone);
        return;
    }
}
