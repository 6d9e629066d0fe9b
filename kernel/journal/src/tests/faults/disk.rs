//! A disk that refuses: SQLite's own way to files, which fails for the files of one folder when a test wants it to.
//!
//! All other files are as they were, so tests beside this one notice nothing.

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_int, c_void},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use rusqlite::ffi;

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

/// SQLite's own way to files.
static SYSTEM: OnceLock<usize> = OnceLock::new();

/// The methods of a file that may fail: those that SQLite calls, and behind them those of the system.
#[repr(C)]
struct Methods {
    failing: ffi::sqlite3_io_methods,
    system: ffi::sqlite3_io_methods,
}

/// From now on a folder's files can be made to fail.
pub fn begin() {
    SYSTEM.get_or_init(|| {
        // SAFETY: without a name it is the default one, which SQLite keeps for ever.
        let system = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
        // SAFETY: SQLite has given a pointer to one, and nobody writes to it but for its place in the list of all.
        let mut failing = unsafe { *system };
        failing.zName = c"failing".as_ptr();
        failing.xOpen = Some(open);
        // SAFETY: what is registered is never freed, and its methods are those of the system but for one of the same form.
        let registered = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(failing)), 1) };
        assert_eq!(registered, ffi::SQLITE_OK);
        system as usize
    });
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

/// The system's methods of a file.
///
/// # Safety
/// Its methods are the first of a [`Methods`].
unsafe fn system_methods(file: *mut ffi::sqlite3_file) -> &'static ffi::sqlite3_io_methods {
    // SAFETY: as this function demands; what stands there lives for ever.
    unsafe { &(*(*file).pMethods.cast::<Methods>()).system }
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let system = *SYSTEM.get().expect("it has begun") as *mut ffi::sqlite3_vfs;
    // SAFETY: SQLite hands over what it would hand to the system's own way, which is asked with the same.
    let opened = unsafe { ((*system).xOpen.expect("every way opens"))(system, name, file, flags, out) };
    let may_fail = flags & (ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL) != 0;
    if opened != ffi::SQLITE_OK || name.is_null() || !may_fail {
        return opened;
    }
    // SAFETY: SQLite's names end with a zero byte and live as long as the file is open.
    let path = PathBuf::from(
        unsafe { CStr::from_ptr(name.cast::<c_char>()) }.to_str().expect("a path of this test"),
    );
    let Some(folder) = path.parent() else { return opened };
    // SAFETY: what was opened has methods.
    let system = unsafe { *(*file).pMethods };
    let failing = ffi::sqlite3_io_methods {
        xClose: Some(close),
        xRead: Some(read),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        xShmMap: Some(map),
        // Pages would be read without asking.
        xFetch: None,
        xUnfetch: None,
        iVersion: system.iVersion.min(2),
        ..system
    };
    // Some files are opened; none of them is forgotten before the process ends.
    let methods = Box::leak(Box::new(Methods { failing, system }));
    // SAFETY: they live for ever, and those that are not ours are the file's own.
    unsafe { (*file).pMethods = &raw const methods.failing };
    disk().open.insert(file as usize, folder.to_owned());
    opened
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    disk().open.remove(&(file as usize));
    // SAFETY: the method of the system, with its own file.
    unsafe { (system_methods(file).xClose.expect("a method"))(file) }
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, to: *mut c_void, length: c_int, at: i64) -> c_int {
    if fails(file, |fault| fault == Fault::Read).is_some() {
        return ffi::SQLITE_IOERR_READ;
    }
    // SAFETY: the method of the system, with its own file and what SQLite handed over.
    unsafe { (system_methods(file).xRead.expect("a method"))(file, to, length, at) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    length: c_int,
    at: i64,
) -> c_int {
    let write_method = |length| {
        // SAFETY: the method of the system, with its own file and no more than what SQLite handed over.
        unsafe { (system_methods(file).xWrite.expect("a method"))(file, from, length, at) }
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

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: the method of the system, with its own file.
    unsafe { (system_methods(file).xTruncate.expect("a method"))(file, length) }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    if fails(file, |fault| fault == Fault::Sync).is_some() {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    // SAFETY: the method of the system, with its own file.
    unsafe { (system_methods(file).xSync.expect("a method"))(file, flags) }
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
    unsafe { (system_methods(file).xShmMap.expect("a method"))(file, piece, size, extend, out) }
}
