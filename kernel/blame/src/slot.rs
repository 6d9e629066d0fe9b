//! The slot of a thread: claimed when the thread first runs an extension's code, freed when the thread ends.

use std::{
    cell::{Cell, OnceCell},
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering, compiler_fence},
    time::Duration,
};

use rustix::thread::gettid;

use crate::{
    alternate_stack::AlternateStack,
    clock,
    install::page,
    layout::{OWN_SLOTS, Slot, Word, owner, owner_parts},
    operation::Operation,
    reading::Running,
    table::{Who, names},
};

thread_local! {
    // These two are read in a signal handler: initialised at compile time and without a destructor, reading them is a
    // load and nothing else.

    /// The slot of this thread, if it has one.
    static SLOT: Cell<Option<&'static Slot>> = const { Cell::new(None) };

    /// Takes the place of the slot while the thread has none: when all slots are taken, while a thread of an extension
    /// begins, and while any thread ends, because `exit` runs a thread's destructors before the hooks that read the slot.
    static SPARE: Slot = const { Slot { owner: AtomicU64::new(0), word: AtomicU64::new(0) } };

    /// Frees the slot when the thread ends. The first of the destructors to be registered is the last to run.
    static END: End = const { End { stack: OnceCell::new() } };
}

/// What a thread holds besides its slot.
struct End {
    stack: OnceCell<Option<AlternateStack>>,
}

impl Drop for End {
    fn drop(&mut self) {
        let Some(slot) = SLOT.get() else { return };
        SPARE.with(|spare| copy(slot, spare));
        SLOT.set(None);
        slot.word.store(0, Ordering::Relaxed);
        slot.owner.store(0, Ordering::Release);
    }
}

/// Says who runs on this thread until it is dropped; then whoever ran before does so again.
#[derive(Debug)]
#[must_use = "nothing is noted once this is dropped"]
pub struct Entered {
    before: u64,
    /// The slot is this thread's.
    _here: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// Notes that this thread runs an extension's code, until the guard is dropped. Calls nest.
///
/// Costs one atomic store and a look at a clock; [`Who::NOBODY`] is the same as [`leave`].
pub fn enter(who: Who, operation: Operation) -> Entered {
    if who == Who::NOBODY {
        return leave();
    }
    if SLOT.get().is_none() {
        claim();
    }
    let word = Word { who: who.number(), operation, since: clock::now() };
    Entered { before: set(word.pack()), _here: PhantomData }
}

/// Notes that the plugin called back into the kernel's own code: nobody runs on this thread until the guard is dropped.
pub fn leave() -> Entered {
    Entered { before: set(0), _here: PhantomData }
}

/// What has been running for longer than `limit` on threads that no extension owns: polls that do not return.
pub fn overdue(limit: Duration) -> Vec<Running> {
    let Some(page) = page() else { return Vec::new() };
    let now = clock::now();
    let theirs = page.slots.iter().filter(|slot| {
        let (thread, who) = owner_parts(slot.owner.load(Ordering::Acquire));
        thread != 0 && who == Who::NOBODY.number()
    });
    theirs
        .filter_map(|slot| {
            let word = Word::unpack(slot.word.load(Ordering::Acquire));
            let since = Duration::from_millis(now.saturating_sub(word.since));
            let (extension, hash) = names(word.who).filter(|_| since > limit)?;
            Some(Running { extension, hash, operation: word.operation, since, own_thread: false })
        })
        .collect()
}

/// Makes this new thread an extension's own, for its whole life.
pub(crate) fn own(who: u16) {
    SPARE.with(|spare| spare.owner.store(owner(thread(), who), Ordering::Relaxed));
    set(Word { who, operation: Operation::Thread, since: clock::now() }.pack());
    claim();
}

/// Word and owner of this thread. Does only what a signal handler may do.
pub(crate) fn here() -> (u64, u64) {
    with(|slot| (slot.word.load(Ordering::Relaxed), slot.owner.load(Ordering::Relaxed)))
}

/// This thread's id in the system.
pub(crate) fn thread() -> u32 {
    gettid().as_raw_pid().cast_unsigned()
}

/// This thread's slot, or what stands in for it.
fn with<R>(act: impl FnOnce(&Slot) -> R) -> R {
    match SLOT.get() {
        Some(slot) => act(slot),
        None => SPARE.with(act),
    }
}

/// Sets this thread's word and returns the one before. The compiler moves no code of an extension across it: a fault is
/// no use of the slot that it could see.
fn set(word: u64) -> u64 {
    with(|slot| {
        let before = slot.word.load(Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        slot.word.store(word, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        before
    })
}

fn copy(from: &Slot, to: &Slot) {
    to.owner.store(from.owner.load(Ordering::Relaxed), Ordering::Relaxed);
    to.word.store(from.word.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Moves this thread into a free slot, if there is one; not while its destructors run, since nothing would free it again.
#[cold]
fn claim() {
    let Some(page) = page() else { return };
    if END.try_with(|end| end.stack.get_or_init(AlternateStack::install).is_some()).is_err() {
        return;
    }
    let (word, owned) = here();
    let (_, who) = owner_parts(owned);
    let mine = owner(thread(), who);
    let free = |slot: &&Slot| {
        slot.owner.load(Ordering::Relaxed) == 0
            && slot.owner.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    // From opposite ends, so that the kernel's threads find one at the first look.
    let slot = match who {
        0 => page.slots.iter().rev().find(free),
        _ => page.slots[..OWN_SLOTS].iter().find(free),
    };
    if let Some(slot) = slot {
        slot.word.store(word, Ordering::Release);
        SLOT.set(Some(slot));
    }
}
