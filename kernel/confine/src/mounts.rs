//! Keeps files and folders as they are, although what is around them may be changed.
//!
//! Landlock only adds rights: who may change a folder may change all that is beneath it. A mount that cannot be written takes
//! the right back for one place in it. Nor does Landlock know of modes, owners and times: where these may be changed by path,
//! all mounts but those of what may be written are closed, too. This is done in a namespace of mounts of the program's own, so
//! that nobody else sees it; the program itself can neither make mounts nor take them away.

use std::{
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    fs::{Mode, OFlags},
    process::{DumpableBehavior, getgid, getuid, set_dumpable_behavior},
};

use crate::{Profile, restrict::unlinked};

/// Of a mount that cannot be written.
const UNCHANGED: libc::mount_attr = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, ..NOTHING };

/// No attribute of a mount changed.
const NOTHING: libc::mount_attr = libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: 0, userns_fd: 0 };

/// Keeps for this process and those that it starts what a profile says shall stay as it is, and, where they may change
/// attributes by path, all that they may not write. Whether what is to stay is kept: some systems let nobody but root have
/// mounts.
///
/// For a process with one thread that is about to become a program. An error means that it must not become one.
pub fn keep(profile: &Profile) -> io::Result<bool> {
    if needs_none(profile) {
        return Ok(true);
    }
    // Nothing that is done here comes to where this was copied from.
    let apart = libc::mount_attr { propagation: libc::MS_PRIVATE, ..NOTHING };
    let done = match namespace()? && change(libc::AT_FDCWD, c"/", &apart).is_ok() {
        true => lay(profile),
        false => return Ok(profile.keep.is_empty()),
    };
    match done {
        // Where a policy of the system takes what a namespace gives.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(profile.keep.is_empty()),
        done => done.map(|()| true),
    }
}

/// Whether a profile asks for nothing that only a mount can do.
pub fn needs_none(profile: &Profile) -> bool {
    profile.keep.is_empty() && !profile.attributes
}

fn lay(profile: &Profile) -> io::Result<()> {
    if profile.attributes {
        // Opened only now: a mount is copied from those of the own namespace.
        let write: Vec<OwnedFd> = profile.write.iter().filter_map(|path| linked(path).ok()).collect();
        let write: Vec<OwnedFd> = write.into_iter().chain(unlinked(&profile.write_unlinked)?).collect();
        let copies = write.iter().map(copy).collect::<io::Result<Vec<_>>>()?;
        change(libc::AT_FDCWD, c"/", &UNCHANGED)?;
        for (copy, place) in copies.iter().zip(&write) {
            cover(place, copy)?;
        }
    }
    for place in unlinked(&profile.keep)? {
        let copy = copy(&place)?;
        change(copy.as_raw_fd(), c"", &UNCHANGED)?;
        cover(&place, &copy)?;
    }
    Ok(())
}

fn linked(path: &PathBuf) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Enters a namespace of mounts: by the rights of root, else by those that a namespace of users gives.
fn namespace() -> io::Result<bool> {
    if unshare(libc::CLONE_NEWNS).is_ok() {
        return Ok(true);
    }
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    if unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS).is_err() {
        return Ok(false);
    }
    // The three files belong to root while the process is closed to debuggers, as drupe's are. What is open for the moment is
    // a copy of what the program will be given.
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(true)
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes a number and touches no memory. The process has one thread and no signal handlers that depend on
    // what is unshared.
    answer(unsafe { libc::unshare(flags) }.into()).map(drop)
}

/// A copy of the mounts at what a descriptor names, which is nowhere yet.
fn copy(place: &OwnedFd) -> io::Result<OwnedFd> {
    let whole = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    let flags = libc::OPEN_TREE_CLONE as i32 | libc::OPEN_TREE_CLOEXEC as i32 | whole;
    // SAFETY: the kernel reads a text that ends with zero; the descriptor is open.
    let copy = answer(unsafe { libc::syscall(libc::SYS_open_tree, place.as_raw_fd(), c"".as_ptr(), flags) })?;
    let copy = i32::try_from(copy).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened it for this function, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Lays a copy over what a descriptor names.
fn cover(place: &OwnedFd, copy: &OwnedFd) -> io::Result<()> {
    let (place, copy, none) = (place.as_raw_fd(), copy.as_raw_fd(), c"".as_ptr());
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: the kernel reads two texts that end with zero; both descriptors are open.
    answer(unsafe { libc::syscall(libc::SYS_move_mount, copy, none, place, none, flags) }).map(drop)
}

/// Changes the attributes of a mount and of all beneath it.
fn change(at: libc::c_int, path: &std::ffi::CStr, attributes: &libc::mount_attr) -> io::Result<()> {
    let flags = libc::AT_RECURSIVE | if path.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    let size = size_of::<libc::mount_attr>();
    // SAFETY: the kernel reads a text that ends with zero and so many bytes of attributes, and writes nothing.
    let changed = unsafe {
        libc::syscall(libc::SYS_mount_setattr, at, path.as_ptr(), flags, std::ptr::from_ref(attributes), size)
    };
    answer(changed).map(drop)
}

fn answer(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
