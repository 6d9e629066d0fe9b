//! The kernel's side begins: maps the page and hooks onto whatever ends the process.

use std::{
    io,
    os::fd::OwnedFd,
    process, ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering},
};

use rustix::{
    fs::{fcntl_get_seals, fstat},
    mm::{MapFlags, ProtFlags, mmap, mmap_anonymous},
    process::getpid,
};

use crate::{
    death,
    layout::{Layout, MAGIC},
    own_threads,
    page::{SEALS, SIZE},
};

/// The mapped page; null until it is installed, then the same for ever.
static PAGE: AtomicPtr<Layout> = AtomicPtr::new(ptr::null_mut());
/// Whether somebody installs or has installed a page.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether the process ends in order.
static DISARMED: AtomicBool = AtomicBool::new(false);
/// The process that installed the page: what it forks off shares the page at first and must not write into it.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Whether threads that plugins create are seen.
static SEES_THREADS: AtomicBool = AtomicBool::new(false);

/// Maps the page that the supervisor passed and hooks onto deadly signals and `exit`; once a process, early in `main`.
///
/// The descriptor is closed, so that no plugin and no child gets it. Fails if a page is installed already and if the
/// descriptor is no page of this size that is sealed against shrinking, both without any effect; and if the system
/// refuses a mapping or a hook, after which the kernel may run on, with less to be known of its end.
pub fn install(page: OwnedFd) -> io::Result<()> {
    check(&page)?;
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a blame page is installed already"));
    }
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping at a place that the system chooses touches nothing that exists. The file is as long as the
    // mapping and sealed so that it stays so.
    let mapped = unsafe { mmap(ptr::null_mut(), SIZE, protection, flags, &page, 0) }?.cast::<Layout>();
    PROCESS.store(process::id(), Ordering::Relaxed);
    PAGE.store(mapped, Ordering::Release);
    if let Some(page) = self::page() {
        page.magic.store(MAGIC, Ordering::Release);
    }
    SEES_THREADS.store(own_threads::interposed(), Ordering::Relaxed);
    forget_in_forks()?;
    death::catch_exit()?;
    death::catch_signals()
}

/// From here on the process ends in order, and `exit` is nobody's fault. Deadly signals are still noted.
pub fn disarm() {
    DISARMED.store(true, Ordering::Release);
}

/// Whether threads that plugins create are known as theirs: the program's own `pthread_create` is the one that a plugin
/// gets. `false` before [`install()`].
pub fn sees_threads() -> bool {
    SEES_THREADS.load(Ordering::Relaxed)
}

pub(crate) fn page() -> Option<&'static Layout> {
    // SAFETY: null, or a mapping of this size that is never unmapped, aligned to a page of memory. It holds atomic
    // integers only, for which every content is valid, also when another process writes it.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

/// Whether a death of this process is noted; at the end of a process (`exit`) only until it is disarmed.
pub(crate) fn armed(exit: bool) -> bool {
    let ours = getpid().as_raw_pid().cast_unsigned() == PROCESS.load(Ordering::Relaxed);
    ours && !(exit && DISARMED.load(Ordering::Acquire))
}

fn check(page: &OwnedFd) -> io::Result<()> {
    let size = fstat(page)?.st_size;
    let sealed = fcntl_get_seals(page).is_ok_and(|seals| seals.contains(SEALS));
    if sealed && usize::try_from(size).is_ok_and(|size| size == SIZE) {
        return Ok(());
    }
    let message = format!(
        "the descriptor is no blame page of this version ({size} bytes instead of {SIZE}, or not sealed); start the \
         supervisor and the kernel from the same drupe"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Gives a forked child a page of its own: its threads would write into the slots of the parent's.
fn forget_in_forks() -> io::Result<()> {
    // SAFETY: the handler is part of the program, which is never unloaded, and makes one system call.
    match unsafe { libc::pthread_atfork(None, None, Some(in_fork)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

extern "C" fn in_fork() {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
    let at = PAGE.load(Ordering::Acquire).cast();
    // SAFETY: replaces exactly the mapping that `install` made by zeros, which are valid there. The one thread of the new
    // process is here. If the system refuses, the old mapping stays.
    let _ = unsafe { mmap_anonymous(at, SIZE, protection, flags) };
}
