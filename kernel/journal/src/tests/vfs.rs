//! SQLite's own way to files of this system, with other methods of a file in the place of some: what stand-ins of a disk are made of.

use std::{
    ffi::{CStr, c_char, c_int},
    path::PathBuf,
    sync::OnceLock,
};

use rusqlite::ffi;

/// SQLite's own way to files.
static SYSTEM: OnceLock<usize> = OnceLock::new();

/// The methods of a file: those that SQLite calls, and behind them those of the system, which differ between the database and its log.
#[repr(C)]
struct Methods {
    called: ffi::sqlite3_io_methods,
    system: ffi::sqlite3_io_methods,
}

type Open = unsafe extern "C" fn(
    *mut ffi::sqlite3_vfs,
    ffi::sqlite3_filename,
    *mut ffi::sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;

/// From now on SQLite opens files by `open`. A process has one such way: a second call changes nothing.
pub fn begin(name: &'static CStr, open: Open) {
    SYSTEM.get_or_init(|| {
        // SAFETY: without a name it is the default one, which SQLite keeps for ever.
        let system = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
        // SAFETY: SQLite has given a pointer to one, and nobody writes to it but for its place in the list of all.
        let mut own = unsafe { *system };
        own.zName = name.as_ptr();
        own.xOpen = Some(open);
        // SAFETY: what is registered is never freed, and its methods are those of the system but for one of the same form.
        let registered = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(own)), 1) };
        assert_eq!(registered, ffi::SQLITE_OK);
        system as usize
    });
}

/// Opens a file as the system does, and gives its path where it is a database or its log. The methods of such a one are those of the
/// system, but for what `other` puts in their place.
///
/// # Safety
/// The arguments are what SQLite hands to an [`Open`].
pub unsafe fn open(
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
    other: impl FnOnce(ffi::sqlite3_io_methods) -> ffi::sqlite3_io_methods,
) -> (c_int, Option<PathBuf>) {
    let system = *SYSTEM.get().expect("it has begun") as *mut ffi::sqlite3_vfs;
    // SAFETY: SQLite hands over what it would hand to the system's own way, which is asked with the same.
    let opened = unsafe { ((*system).xOpen.expect("every way opens"))(system, name, file, flags, out) };
    let of_journal = flags & (ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL) != 0;
    if opened != ffi::SQLITE_OK || name.is_null() || !of_journal {
        return (opened, None);
    }
    // SAFETY: what was opened has methods.
    let system = unsafe { *(*file).pMethods };
    // Some files are opened; none of them is forgotten before the process ends.
    let methods = Box::leak(Box::new(Methods { called: other(system), system }));
    // SAFETY: they live for ever, and those that are not ours are the file's own.
    unsafe { (*file).pMethods = &raw const methods.called };
    // SAFETY: SQLite's names end with a zero byte and live as long as the file is open.
    let path = unsafe { CStr::from_ptr(name.cast::<c_char>()) }.to_str().expect("a path of this test");
    (opened, Some(PathBuf::from(path)))
}

/// The system's methods of a file.
///
/// # Safety
/// It was opened by [`open`], which gave a path.
pub unsafe fn system(file: *mut ffi::sqlite3_file) -> &'static ffi::sqlite3_io_methods {
    // SAFETY: as this function demands; what stands there lives for ever.
    unsafe { &(*(*file).pMethods.cast::<Methods>()).system }
}
