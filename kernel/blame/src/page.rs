//! The supervisor's side: creates the page, hands it out, and reads what is left. Safe code only.

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create},
    io::{Errno, pread},
};

use crate::{
    clock,
    layout::Layout,
    reading::{Reading, decode},
};

pub(crate) const SIZE: usize = size_of::<Layout>();

/// The seals that a page bears: a mapping of it never faults, since nobody can cut it short.
pub(crate) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The page, which lives as long as this and the processes that map it.
#[derive(Debug)]
pub struct Page {
    file: OwnedFd,
}

impl Page {
    /// Makes an empty page of about half a megabyte, of which only what is written takes memory. It closes on `exec`.
    pub fn create() -> io::Result<Page> {
        let file = memfd_create("drupe-blame", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, SIZE as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(Page { file })
    }

    /// The descriptor to pass to the kernel, which gives it to [`install`](crate::install()).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Empties the page; before each start of a kernel, and never while one runs.
    pub fn clear(&self) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, 0, SIZE as u64)?)
    }

    /// What the kernel left, after its end.
    ///
    /// Whatever the page holds, this does not panic; what makes no sense is skipped, and a page of another version
    /// reads as empty.
    pub fn read(&self) -> io::Result<Reading> {
        let mut bytes = vec![0; SIZE];
        let mut filled = 0;
        while filled < SIZE {
            match pread(&self.file, &mut bytes[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(decode(&bytes[..filled], clock::now()))
    }
}

#[cfg(test)]
mod tests {
    use rustix::{
        fs::{fcntl_get_seals, fstat},
        io::{FdFlags, fcntl_getfd, pwrite},
    };

    use super::*;

    #[test]
    fn a_page_cannot_be_cut_short_and_is_not_leaked_to_children() {
        let page = Page::create().expect("a page");
        assert!(fcntl_get_seals(page.fd()).expect("seals").contains(SEALS));
        assert_eq!(ftruncate(page.fd(), 0), Err(Errno::PERM));
        assert!(fcntl_getfd(page.fd()).expect("flags").contains(FdFlags::CLOEXEC));
    }

    #[test]
    fn a_new_page_and_a_cleared_one_are_empty() {
        let page = Page::create().expect("a page");
        assert_eq!(page.read().expect("it reads"), Reading::default());
        pwrite(page.fd(), &[0xa5; SIZE], 0).expect("written over");
        page.clear().expect("cleared");
        let mut bytes = vec![1; SIZE];
        pread(page.fd(), &mut bytes, 0).expect("it reads");
        assert!(bytes.iter().all(|byte| *byte == 0));
        assert_eq!(fstat(page.fd()).expect("a size").st_size, SIZE as i64);
    }
}
