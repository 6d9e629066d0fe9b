//! The handles that are open, by the instance that opened them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use drupe_agent::Chain;
use drupe_extension_api::{
    ExtensionId, Fault, FaultCode,
    wire::{HandleNext, LARGEST_PUT},
};
use tokio_util::sync::CancellationToken;

use crate::{Credit, Given, Sink, Source};

/// Handles that one instance may hold at once. Each may have a question waiting, and a process of its own may have twice
/// as many calls under way, so that others still go on. An idle handle costs less than a kilobyte.
pub const MOST: usize = 2048;

/// The most that a reader is given at once, whatever it asks for: an answer is made in memory.
const LARGEST: Credit = Credit { items: 1024, bytes: 1024 * 1024 };

/// Who holds a handle: an extension, and which of its instances.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    pub extension: ExtensionId,
    /// The instance: the next one of the same extension has another number.
    pub instance: u64,
}

/// The handles of all instances.
#[derive(Default)]
pub struct Handles {
    next: AtomicU64,
    open: Mutex<HashMap<Holder, HashMap<u64, Open>>>,
}

/// One handle. Whoever uses it holds a clone, and gives up when it is closed.
#[derive(Clone)]
struct Open {
    end: End,
    closed: CancellationToken,
}

/// One reader, or one writer, at a time; another waits for it.
#[derive(Clone)]
enum End {
    Source(Arc<tokio::sync::Mutex<Reading>>),
    Sink(Arc<tokio::sync::Mutex<Box<dyn Sink>>>),
}

enum Reading {
    Goes(Box<dyn Source>),
    /// What it gave last, for those who ask again. What stood behind it is gone.
    Ended(Given),
}

impl Reading {
    async fn next(&mut self, credit: Credit) -> Result<Given, Fault> {
        let source = match self {
            Self::Goes(source) => source,
            Self::Ended(last) => return Ok(last.clone()),
        };
        let given = source.next(credit).await;
        match &given {
            Ok(given) if given.is_end() => *self = Self::Ended(given.clone()),
            Err(_) => *self = Self::Ended(Given::Items(Vec::new())),
            Ok(_) => {}
        }
        given
    }

    fn chain(&self) -> Option<Chain> {
        match self {
            Self::Goes(source) => source.chain(),
            Self::Ended(_) => None,
        }
    }
}

impl Handles {
    /// A holder for a new instance. It opens handles until [`close_all`](Self::close_all), and none after it: a call that
    /// is still under way then, or that comes from code which was told to end, leaves nothing behind.
    pub fn holder(&self, extension: ExtensionId) -> Holder {
        let holder = Holder { extension, instance: self.number() };
        self.lock().insert(holder.clone(), HashMap::new());
        holder
    }

    /// Refuses an instance that would hold too many with `more`. For what is costly to open: [`open`](Self::open) asks
    /// again.
    pub fn check_room(&self, owner: &Holder, more: usize) -> Result<(), Fault> {
        let held = self.lock().get(owner).map_or(0, HashMap::len);
        if held + more <= MOST {
            return Ok(());
        }
        let message = format!("extension `{}` holds {held} handles; {MOST} are the most", owner.extension);
        Err(Fault::denied(message).help("close some of them"))
    }

    /// A handle to pull from.
    pub fn open(&self, owner: &Holder, source: Box<dyn Source>) -> Result<u64, Fault> {
        self.insert(owner, End::Source(Arc::new(tokio::sync::Mutex::new(Reading::Goes(source)))))
    }

    /// A handle to put something into.
    pub fn open_sink(&self, owner: &Holder, sink: Box<dyn Sink>) -> Result<u64, Fault> {
        self.insert(owner, End::Sink(Arc::new(tokio::sync::Mutex::new(sink))))
    }

    fn insert(&self, owner: &Holder, end: End) -> Result<u64, Fault> {
        self.check_room(owner, 1)?;
        let number = self.number();
        let open = Open { end, closed: CancellationToken::new() };
        self.lock().get_mut(owner).ok_or_else(|| ended(owner))?.insert(number, open);
        Ok(number)
    }

    /// What comes next; nothing at the end, also where it is asked again.
    pub async fn next(&self, owner: &Holder, ask: HandleNext) -> Result<Given, Fault> {
        let Open { end, closed } = self.find(owner, ask.handle)?;
        let End::Source(source) = end else {
            return Err(Fault::invalid(format!("handle {} is written to, not read", ask.handle)));
        };
        let credit = Credit {
            items: (ask.credit as usize).clamp(1, LARGEST.items),
            bytes: (ask.bytes as usize).clamp(1, LARGEST.bytes),
        };
        let next = async { source.lock().await.next(credit).await };
        tokio::select! {
            given = next => given,
            () = closed.cancelled() => Err(missing(ask.handle)),
        }
    }

    /// Puts something into a handle.
    pub async fn put(&self, owner: &Holder, handle: u64, content: Vec<u8>) -> Result<(), Fault> {
        let Open { end, closed } = self.find(owner, handle)?;
        let End::Sink(sink) = end else {
            return Err(Fault::invalid(format!("handle {handle} is read, not written to")));
        };
        if content.len() > LARGEST_PUT {
            let message = format!("`handle.put` takes at most {LARGEST_PUT} bytes at once");
            return Err(Fault::invalid(message).help("put it in parts"));
        }
        let put = async { sink.lock().await.put(content).await };
        tokio::select! {
            done = put => done,
            () = closed.cancelled() => Err(missing(handle)),
        }
    }

    /// What set off the items that an instance works on now. One that waits for the next has none.
    pub fn chains(&self, owner: &Holder) -> Vec<Chain> {
        let sources: Vec<_> = match self.lock().get(owner) {
            Some(open) => open.values().map(|open| open.end.clone()).collect(),
            None => Vec::new(),
        };
        let chain = |end: End| match end {
            End::Source(source) => source.try_lock().ok()?.chain(),
            End::Sink(_) => None,
        };
        sources.into_iter().filter_map(chain).collect()
    }

    /// Ends one handle; nothing where it is not open.
    pub fn close(&self, owner: &Holder, handle: u64) {
        let mut open = self.lock();
        let Some(held) = open.get_mut(owner) else { return };
        let ended = held.remove(&handle);
        drop(open);
        // Outside the lock: what stands behind it ends here.
        ended.into_iter().for_each(Open::end);
    }

    /// Ends all handles of an instance, for good.
    pub fn close_all(&self, owner: &Holder) {
        let ended = self.lock().remove(owner);
        ended.into_iter().flat_map(HashMap::into_values).for_each(Open::end);
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn find(&self, owner: &Holder, handle: u64) -> Result<Open, Fault> {
        let open = self.lock();
        open.get(owner).and_then(|held| held.get(&handle)).cloned().ok_or_else(|| missing(handle))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Holder, HashMap<u64, Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Whoever waits on it is told; who uses it right now drops it when that is done.
    fn end(self) {
        self.closed.cancel();
    }
}

fn ended(owner: &Holder) -> Fault {
    let message = format!("this instance of extension `{}` has ended", owner.extension);
    Fault::new(FaultCode::Cancelled, message)
}

fn missing(handle: u64) -> Fault {
    Fault::not_found(format!("handle {handle} is not open"))
}
