//! A disk that keeps what it was told to sync, and of the rest whatever it likes: SQLite's own way to files, with an eye on
//! what is written between two syncs.
//!
//! The methods of SQLite's file for this system stay in place; those that write, cut and sync are told to [`Disk`] as well. A
//! loss of power is played by writing files anew as they may be found afterwards: all that was synced, and of what was written
//! since then nothing, a beginning, or any of it in pieces of 512 bytes and in any order.

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char, c_int, c_void},
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use rusqlite::ffi;

/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// What is seen, and when the power goes.
pub struct Disk {
    files: BTreeMap<PathBuf, Kept>,
    /// Which file stands behind each of SQLite's.
    open: BTreeMap<usize, PathBuf>,
    chance: Chance,
    /// Writes, cuts and syncs until the next loss of power.
    left: u64,
    /// Writes that there is room for.
    room: u64,
    /// Does with the files as they are then what it likes.
    lost: Box<dyn FnMut(&AfterLoss<'_>) + Send>,
}

/// A file: as it was synced, and what was done to it since.
#[derive(Default)]
struct Kept {
    synced: Vec<u8>,
    since: Vec<Change>,
}

enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

/// Files after a loss of power.
pub struct AfterLoss<'a> {
    files: &'a BTreeMap<PathBuf, Vec<u8>>,
}

impl AfterLoss<'_> {
    /// Writes them into a folder, under their names.
    pub fn write_to(&self, folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        for (path, bytes) in self.files {
            fs::write(folder.join(path.file_name().unwrap()), bytes).unwrap();
        }
    }
}

/// A row of numbers that follows from its beginning.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// One below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

static DISK: OnceLock<Mutex<Disk>> = OnceLock::new();

/// The methods of a file that is seen: those that SQLite calls, and behind them those of the system, which differ between the
/// database and its log.
#[repr(C)]
struct Methods {
    seen: ffi::sqlite3_io_methods,
    system: ffi::sqlite3_io_methods,
}

/// SQLite's own way to files.
static SYSTEM: OnceLock<usize> = OnceLock::new();

impl Disk {
    /// Has all files that SQLite opens from now on in this process seen; the power is lost again and again.
    pub fn begin(chance: Chance, lost: impl FnMut(&AfterLoss<'_>) + Send + 'static) {
        let disk = Self {
            files: BTreeMap::new(),
            open: BTreeMap::new(),
            chance,
            left: 1,
            room: u64::MAX,
            lost: Box::new(lost),
        };
        assert!(DISK.set(Mutex::new(disk)).is_ok(), "there is one disk a process");
        // SAFETY: without a name it is the default one, which SQLite keeps for ever.
        let system = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
        SYSTEM.set(system as usize).unwrap();
        // SAFETY: SQLite has given a pointer to one, and nobody writes to it but for its place in the list of all.
        let mut seen = unsafe { *system };
        seen.zName = c"seen".as_ptr();
        seen.xOpen = Some(open);
        // SAFETY: what is registered is never freed, and its methods are those of the system but for one of the same form.
        let registered = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(seen)), 1) };
        assert_eq!(registered, ffi::SQLITE_OK);
    }

    /// From now on the disk takes so many writes and no more, and no power is lost.
    pub fn has_room_for(writes: u64) {
        let mut disk = disk();
        (disk.room, disk.left) = (writes, u64::MAX);
        disk.files.clear();
    }

    fn changed(&mut self, file: usize, change: Change) {
        let Some(path) = self.open.get(&file) else { return };
        self.files.entry(path.clone()).or_default().since.push(change);
        self.perhaps_lose_power();
    }

    fn synced(&mut self, file: usize) {
        // Before it has happened, nothing of it is sure.
        self.perhaps_lose_power();
        let Some(kept) = self.open.get(&file).and_then(|path| self.files.get_mut(path)) else { return };
        for change in kept.since.drain(..) {
            change.apply(&mut kept.synced);
        }
    }

    fn perhaps_lose_power(&mut self) {
        self.left -= 1;
        if self.left > 0 {
            return;
        }
        self.left = 1 + self.chance.below(12);
        let how = self.chance.below(3);
        let chance = &mut self.chance;
        let found = self.files.iter().map(|(path, kept)| (path.clone(), kept.found(how, chance))).collect();
        (self.lost)(&AfterLoss { files: &found });
    }
}

impl Kept {
    /// As it may be found after a loss of power.
    fn found(&self, how: u64, chance: &mut Chance) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        let count = match how {
            0 => 0,
            1 => chance.below(self.since.len() as u64 + 1) as usize,
            _ => self.since.len(),
        };
        for change in &self.since[..count] {
            match change {
                _ if how == 1 => change.apply(&mut bytes),
                Change::Cut(_) if chance.below(2) == 0 => change.apply(&mut bytes),
                Change::Cut(_) => {}
                Change::Write(at, written) => {
                    for (number, piece) in written.chunks(SECTOR).enumerate() {
                        if chance.below(2) == 0 {
                            Change::Write(at + number * SECTOR, piece.to_vec()).apply(&mut bytes);
                        }
                    }
                }
            }
        }
        bytes
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Cut(length) => bytes.truncate(*length),
            Self::Write(at, written) => {
                let end = at + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at..end].copy_from_slice(written);
            }
        }
    }
}

fn disk() -> MutexGuard<'static, Disk> {
    DISK.get().expect("it has begun").lock().unwrap_or_else(PoisonError::into_inner)
}

/// The system's methods of a file that is seen.
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
    let seen = flags & (ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL) != 0;
    if opened != ffi::SQLITE_OK || name.is_null() || !seen {
        return opened;
    }
    // SAFETY: SQLite's names end with a zero byte and live as long as the file is open.
    let path = PathBuf::from(
        unsafe { CStr::from_ptr(name.cast::<c_char>()) }.to_str().expect("a path of this test"),
    );
    // SAFETY: what was opened has methods.
    let system_of_file = unsafe { *(*file).pMethods };
    let seen = ffi::sqlite3_io_methods {
        xClose: Some(close),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        ..system_of_file
    };
    // A few files are opened; none of them is forgotten before the process ends.
    let methods = Box::leak(Box::new(Methods { seen, system: system_of_file }));
    // SAFETY: they live for ever, and those that are not ours are the file's own.
    unsafe { (*file).pMethods = &raw const methods.seen };
    let mut disk = disk();
    // What was there before is taken to be safe: whoever made it has synced it.
    disk.files
        .entry(path.clone())
        .or_insert_with_key(|path| Kept { synced: fs::read(path).unwrap_or_default(), since: Vec::new() });
    disk.open.insert(file as usize, path);
    opened
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    disk().open.remove(&(file as usize));
    // SAFETY: the method of the system, with its own file.
    unsafe { (system_methods(file).xClose.expect("a method"))(file) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    length: c_int,
    at: i64,
) -> c_int {
    {
        let mut disk = disk();
        let Some(room) = disk.room.checked_sub(1) else { return ffi::SQLITE_FULL };
        disk.room = room;
    }
    // SAFETY: the method of the system, with its own file and what SQLite handed over.
    let written = unsafe { (system_methods(file).xWrite.expect("a method"))(file, from, length, at) };
    if written == ffi::SQLITE_OK {
        // SAFETY: SQLite hands over so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length as usize) };
        disk().changed(file as usize, Change::Write(at as usize, bytes.to_vec()));
    }
    written
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: the method of the system, with its own file.
    let cut = unsafe { (system_methods(file).xTruncate.expect("a method"))(file, length) };
    if cut == ffi::SQLITE_OK {
        disk().changed(file as usize, Change::Cut(length as usize));
    }
    cut
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the method of the system, with its own file.
    let synced = unsafe { (system_methods(file).xSync.expect("a method"))(file, flags) };
    if synced == ffi::SQLITE_OK {
        disk().synced(file as usize);
    }
    synced
}
