//! A disk that refuses: SQLite's [own way to files](vfs), which fails for the files of one folder when a test wants it to.
//!
//! All other files are as they were, so tests beside this one notice nothing.

use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rusqlite::ffi;

use super::super::vfs;

/// How it fails, as SQLite tells it of this system's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing more is written (`ENOSPC`).
    Full,
    /// Half of it is written, and nothing more.
    Short,
    /// A write fails for another reason (`EIO`).
    Write,
    /// It is written, and the disk does not say that it has it (`EIO` of `fsync`).
    Sync,
    /// There is no room for more of the log's index.
    Index,
    /// It cannot be read (`EIO`).
    Read,
}

/// What is to become of a folder's files.
#[derive(Debug, Clone, Copy)]
struct Plan {
    fault: Fault,
    /// Operations of its kind until it comes.
    left: u32,
    /// Whether all that follow fail, too.
    lasts: bool,
    failed: u32,
}

#[derive(Default)]
struct Disk {
    plans: BTreeMap<PathBuf, Plan>,
    /// In which folder each open file is.
    open: BTreeMap<usize, PathBuf>,
}

static DISK: Mutex<Disk> = Mutex::new(Disk { plans: BTreeMap::new(), open: BTreeMap::new() });

/// From now on a folder's files can be made to fail.
pub fn begin() {
    vfs::begin(c"failing", open);
}

/// Has the files of a folder fail after so many operations that may: once, or from then on.
pub fn fail(folder: &Path, fault: Fault, after: u32, lasts: bool) {
    disk().plans.insert(folder.to_owned(), Plan { fault, left: after, lasts, failed: 0 });
}

/// Has them work again; how many operations have failed.
pub fn heal(folder: &Path) -> u32 {
    disk().plans.remove(folder).map_or(0, |plan| plan.failed)
}

fn disk() -> MutexGuard<'static, Disk> {
    DISK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an operation on a file is one that fails; `of` says of what kind it is.
fn fails(file: *mut ffi::sqlite3_file, of: impl Fn(Fault) -> bool) -> Option<Fault> {
    let Disk { plans, open } = &mut *disk();
    let plan = plans.get_mut(open.get(&(file as usize))?)?;
    if !of(plan.fault) {
        return None;
    }
    if plan.left > 0 {
        plan.left -= 1;
        return None;
    }
    if plan.failed > 0 && !plan.lasts {
        return None;
    }
    plan.failed += 1;
    Some(plan.fault)
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let failing = |system: ffi::sqlite3_io_methods| ffi::sqlite3_io_methods {
        xClose: Some(close),
        xRead: Some(read),
        xWrite: Some(write),
        xSync: Some(sync),
        xShmMap: Some(map),
        // Pages would be read without asking.
        xFetch: None,
        xUnfetch: None,
        iVersion: system.iVersion.min(2),
        ..system
    };
    // SAFETY: what SQLite handed over.
    let (opened, path) = unsafe { vfs::open(name, file, flags, out, failing) };
    if let Some(folder) = path.as_deref().and_then(Path::parent) {
        disk().open.insert(file as usize, folder.to_owned());
    }
    opened
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    disk().open.remove(&(file as usize));
    // SAFETY: the method of the system, with its own file.
    unsafe { (vfs::system(file).xClose.expect("a method"))(file) }
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, to: *mut c_void, length: c_int, at: i64) -> c_int {
    if fails(file, |fault| fault == Fault::Read).is_some() {
        return ffi::SQLITE_IOERR_READ;
    }
    // SAFETY: the method of the system, with its own file and what SQLite handed over.
    unsafe { (vfs::system(file).xRead.expect("a method"))(file, to, length, at) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    length: c_int,
    at: i64,
) -> c_int {
    let write_method = |length| {
        // SAFETY: the method of the system, with its own file and no more than what SQLite handed over.
        unsafe { (vfs::system(file).xWrite.expect("a method"))(file, from, length, at) }
    };
    match fails(file, |fault| matches!(fault, Fault::Full | Fault::Short | Fault::Write)) {
        Some(Fault::Short) => {
            write_method(length / 2);
            ffi::SQLITE_FULL
        }
        Some(Fault::Write) => ffi::SQLITE_IOERR_WRITE,
        Some(_) => ffi::SQLITE_FULL,
        None => write_method(length),
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    if fails(file, |fault| fault == Fault::Sync).is_some() {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    // SAFETY: the method of the system, with its own file.
    unsafe { (vfs::system(file).xSync.expect("a method"))(file, flags) }
}

/// The index of the log, which grows by pieces that are mapped.
unsafe extern "C" fn map(
    file: *mut ffi::sqlite3_file,
    piece: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // The first piece is there as long as the file is open.
    if extend != 0 && piece > 0 && fails(file, |fault| matches!(fault, Fault::Full | Fault::Index)).is_some()
    {
        return ffi::SQLITE_IOERR_SHMSIZE;
    }
    // SAFETY: the method of the system, with its own file and what SQLite handed over.
    unsafe { (vfs::system(file).xShmMap.expect("a method"))(file, piece, size, extend, out) }
}
