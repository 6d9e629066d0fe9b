//! Gives memory back that a process has, but does not need while it is idle.
//!
//! A start passes through most of a program once, and the system keeps what was passed through mapped, in pieces of 64
//! KiB, for as long as the process lives: most of what a daemon at rest holds is code that it will not run again. Those
//! pages are the same in their files, so they can go at any time; whoever needs one again gets it from the system's
//! cache within a microsecond. With them goes what the allocator has free.
//!
//! When a process is idle is for its owner to say, or for [`Rest`] to see. Nothing here changes what a process can do.

mod rest;

use std::ffi::{c_int, c_void};

use rustix::mm::{Advice, madvise};

pub use self::rest::Rest;

/// Entries of an object's dynamic section that tell of code which the loader changed: a tag, or a bit of the flags.
const END: u64 = 0;
const CHANGED_CODE: u64 = 22;
const FLAGS: u64 = 30;
const CHANGED_CODE_FLAG: u64 = 4;

/// The size from which a block of memory is mapped by itself, and what an arena may have free at its end, in bytes.
#[cfg(target_env = "gnu")]
const LARGE: c_int = 1024 * 1024;
#[cfg(target_env = "gnu")]
const FREE_AT_END: c_int = 256 * 1024;

/// Has the allocator map large blocks by themselves, so that they are given back when they are freed. Without it the first
/// block of many megabytes that is freed makes it keep the next ones in arenas, whose free ends nobody can give back.
fn keep_no_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: both may be set at any time, from any thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_AT_END);
    }
}

/// Gives back what can be had again for little: code and constants of the program and its libraries, and free memory of
/// the allocator. It takes about a millisecond, in which other threads go on.
pub fn give_back() {
    // SAFETY: `object` has the form that is asked for, and takes no argument.
    unsafe { libc::dl_iterate_phdr(Some(object), std::ptr::null_mut()) };
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives back the pages of one loaded object. While it is called the loader neither loads nor unloads anything.
extern "C" fn object(info: *mut libc::dl_phdr_info, _size: usize, _: *mut c_void) -> c_int {
    // SAFETY: the loader hands out a valid description, whose headers are valid for as long as the object is loaded.
    let (info, headers) = unsafe {
        let info = &*info;
        (info, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
    };
    // SAFETY: it reads the vector that the system gave to the process.
    let of_the_system = info.dlpi_addr == unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    if !of_the_system && !changed(info.dlpi_addr, headers) {
        headers.iter().filter_map(|header| pages(info.dlpi_addr, header)).for_each(drop_pages);
    }
    0
}

/// Whether the loader changed this object's code, so that it is not the same in its file.
fn changed(base: u64, headers: &[libc::Elf64_Phdr]) -> bool {
    let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else { return false };
    let mut entry = (base + dynamic.p_vaddr) as *const [u64; 2];
    for _ in 0..dynamic.p_memsz / 16 {
        // SAFETY: the section has so many entries of two words, and is mapped for as long as the object is loaded.
        let [tag, value] = unsafe { entry.read() };
        match tag {
            END => break,
            CHANGED_CODE => return true,
            FLAGS if value & CHANGED_CODE_FLAG != 0 => return true,
            // SAFETY: at most one behind the last entry.
            _ => entry = unsafe { entry.add(1) },
        }
    }
    false
}

/// The address and length of the whole pages of a part that is never written to.
fn pages(base: u64, header: &libc::Elf64_Phdr) -> Option<(u64, u64)> {
    if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
        return None;
    }
    let page = rustix::param::page_size() as u64;
    let begin = (base + header.p_vaddr).next_multiple_of(page);
    let end = (base + header.p_vaddr + header.p_filesz) / page * page;
    (begin < end).then(|| (begin, end - begin))
}

fn drop_pages((begin, length): (u64, u64)) {
    // SAFETY: whole pages of a loaded object's read-only part, which the loader mapped from a file, privately, and did not
    // change: the next use of each reads the same bytes from that file. The object is not unloaded meanwhile.
    let _ = unsafe { madvise(begin as *mut c_void, length as usize, Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use std::{fs, hint::black_box};

    use super::*;

    /// Kibibytes of this process that are mapped from files.
    fn from_files() -> u64 {
        let status = fs::read_to_string("/proc/self/status").expect("the system tells");
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).expect("a line for it");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    #[test]
    fn what_is_read_again_is_the_same_and_what_is_written_stays() {
        static CONSTANTS: [u64; 4096] = [7; 4096];
        let written = vec![black_box(5_u8); 1 << 20];
        let before = from_files();
        for _ in 0..3 {
            give_back();
            assert_eq!(black_box(&CONSTANTS).iter().sum::<u64>(), 7 * 4096);
            assert!(black_box(&written).iter().all(|byte| *byte == 5));
        }
        give_back();
        let after = from_files();
        assert!(after < before, "{before} kB before, {after} kB after");
    }

    #[test]
    fn only_whole_pages_that_are_never_written_to_go() {
        let check = |kind, flags, at, bytes, expected| {
            let header = libc::Elf64_Phdr {
                p_type: kind,
                p_flags: flags,
                p_offset: 0,
                p_vaddr: at,
                p_paddr: at,
                p_filesz: bytes,
                p_memsz: bytes,
                p_align: 4096,
            };
            assert_eq!(pages(0x10_0000, &header), expected, "{kind} {flags} {at} {bytes}");
        };
        let (read, run, write) = (libc::PF_R, libc::PF_R | libc::PF_X, libc::PF_R | libc::PF_W);
        let page = rustix::param::page_size() as u64;
        check(libc::PT_LOAD, run, 0, 3 * page, Some((0x10_0000, 3 * page)));
        check(libc::PT_LOAD, read, 1, 3 * page, Some((0x10_0000 + page, 2 * page)));
        check(libc::PT_LOAD, run, 0, page - 1, None);
        check(libc::PT_LOAD, write, 0, 3 * page, None);
        check(libc::PT_DYNAMIC, read, 0, 3 * page, None);
    }

    #[test]
    fn code_that_the_loader_changed_stays() {
        let check = |entries: &[[u64; 2]], expected| {
            let header = libc::Elf64_Phdr {
                p_type: libc::PT_DYNAMIC,
                p_flags: libc::PF_R,
                p_offset: 0,
                p_vaddr: 0,
                p_paddr: 0,
                p_filesz: 0,
                p_memsz: size_of_val(entries) as u64,
                p_align: 8,
            };
            assert_eq!(changed(entries.as_ptr() as u64, &[header]), expected, "{entries:?}");
        };
        check(&[[1, 1], [END, 0]], false);
        check(&[[1, 1], [CHANGED_CODE, 0], [END, 0]], true);
        check(&[[FLAGS, 8 | CHANGED_CODE_FLAG], [END, 0]], true);
        check(&[[FLAGS, 8], [END, 0], [CHANGED_CODE, 0]], false);
        check(&[[1, 1]], false);
    }
}
