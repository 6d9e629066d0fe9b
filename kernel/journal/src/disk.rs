//! Whether there is room on the disk for what must be recorded.

use std::{fs, path::Path};

use rustix::fs::{StatVfs, StatVfsMountFlags, statvfs};

use crate::StoreError;

/// The least room that counts as some, in bytes. The journal grows by less than this within a turn.
const LEAST: u64 = 16 * 1024 * 1024;

/// What an operator should know of the disk of a folder; none while all is well. It is looked at anew each time.
pub fn remark(folder: &Path) -> Option<String> {
    let (disk, free) = room(folder)?;
    told(folder, free, disk.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Bytes that are left on the disk of a folder; none where it does not say.
pub fn free(folder: &Path) -> Option<u64> {
    room(folder).map(|(_, free)| free)
}

/// That the disk of a folder has room, but none for the name of another file.
pub fn without_names(folder: &Path) -> Option<String> {
    let (disk, _) = room(folder)?;
    let none = disk.f_files > 0 && disk.f_favail == 0;
    none.then(|| format!("the disk of `{}` has no room for another file's name (inodes)", folder.display()))
}

/// Why the disk takes no more of anything, as it says of a file that is made for that and removed; none where it takes that.
pub(crate) fn refusal(file: &Path) -> Option<StoreError> {
    let tried = fs::write(file, [0; 4096]);
    // Where it cannot be removed it could not be made, or is overwritten the next time.
    let _ = fs::remove_file(file);
    let error = StoreError::from(tried.err()?);
    matches!(error, StoreError::Full(_) | StoreError::ReadOnly(_)).then_some(error)
}

fn room(folder: &Path) -> Option<(StatVfs, u64)> {
    // One without blocks does not say how much room it has.
    let disk = statvfs(folder).ok().filter(|disk| disk.f_blocks > 0)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    Some((disk, free))
}

fn told(folder: &Path, free: u64, read_only: bool) -> Option<String> {
    let (folder, refused) = (folder.display(), "messages are refused while they cannot be recorded");
    if read_only {
        return Some(format!("the file system of `{folder}` is read-only: {refused}; make it writable"));
    }
    (free < LEAST).then(|| {
        let kilobytes = free / 1024;
        format!("the disk of `{folder}` has only {kilobytes} KiB left: {refused}; free some space on it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_takes_nothing_says_why_and_one_that_does_keeps_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("room");
        assert!(refusal(&file).is_none() && !file.exists());
        // The way to a file that is always full.
        std::os::unix::fs::symlink("/dev/full", &file).expect("a link");
        assert!(matches!(refusal(&file), Some(StoreError::Full(_))));
        assert_eq!(refusal(&folder.path().join("nowhere/room")), None, "that says nothing of room");
    }

    #[test]
    fn a_disk_that_is_full_or_read_only_is_told_with_its_folder_and_one_with_room_is_not() {
        let told = |free, read_only| told(Path::new("/home/ada/.drupe"), free, read_only);
        assert_eq!(told(LEAST, false), None);
        let full = told(LEAST - 1, false).expect("a remark");
        assert!(full.contains("`/home/ada/.drupe`") && full.contains("free some space"), "{full}");
        let read_only = told(LEAST, true).expect("a remark");
        assert!(read_only.contains("`/home/ada/.drupe`") && read_only.contains("writable"), "{read_only}");
        assert_eq!(remark(Path::new("/proc")), None, "it does not say");
    }
}
