//! A disk that keeps what it was told to sync, and of the rest whatever it likes: SQLite's [own way to files](vfs), with an eye on
//! what is written between two syncs.
//!
//! The methods of SQLite's file for this system stay in place; those that write, cut and sync are told to [`Disk`] as well. A
//! loss of power is played by writing files anew as they may be found afterwards: all that was synced, and of what was written
//! since then nothing, a beginning, or any of it in pieces of 512 bytes and in any order.

use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use rusqlite::ffi;

use super::super::vfs;

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
        vfs::begin(c"seen", open);
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

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let seen = |system: ffi::sqlite3_io_methods| ffi::sqlite3_io_methods {
        xClose: Some(close),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        ..system
    };
    // SAFETY: what SQLite handed over.
    let (opened, path) = unsafe { vfs::open(name, file, flags, out, seen) };
    if let Some(path) = path {
        let mut disk = disk();
        // What was there before is taken to be safe: whoever made it has synced it.
        let there = |path: &PathBuf| Kept { synced: fs::read(path).unwrap_or_default(), since: Vec::new() };
        disk.files.entry(path.clone()).or_insert_with_key(there);
        disk.open.insert(file as usize, path);
    }
    opened
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    disk().open.remove(&(file as usize));
    // SAFETY: the method of the system, with its own file.
    unsafe { (vfs::system(file).xClose.expect("a method"))(file) }
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
    let written = unsafe { (vfs::system(file).xWrite.expect("a method"))(file, from, length, at) };
    if written == ffi::SQLITE_OK {
        // SAFETY: SQLite hands over so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length as usize) };
        disk().changed(file as usize, Change::Write(at as usize, bytes.to_vec()));
    }
    written
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: the method of the system, with its own file.
    let cut = unsafe { (vfs::system(file).xTruncate.expect("a method"))(file, length) };
    if cut == ffi::SQLITE_OK {
        disk().changed(file as usize, Change::Cut(length as usize));
    }
    cut
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the method of the system, with its own file.
    let synced = unsafe { (vfs::system(file).xSync.expect("a method"))(file, flags) };
    if synced == ffi::SQLITE_OK {
        disk().synced(file as usize);
    }
    synced
}
