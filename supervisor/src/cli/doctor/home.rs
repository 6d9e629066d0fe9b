//! The folder: whose it is, who else may reach it, where it lies, and whether there is room.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use drupe_kernel::disk;
use drupe_link::Home;
use rustix::{
    fs::{FsWord, statfs},
    process::geteuid,
};

use super::finding::{Finding, Repair};

const HOME: &str = "home";

/// File systems of other machines, by the numbers that Linux gives them (`linux/magic.h`; read on 2026-11-27), which keep no
/// promise about locks and shared memory.
const REMOTE: [(FsWord, &str); 6] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
];

/// What is secret in a home, beside the folder itself, which keeps others out.
const PRIVATE: [&str; 4] = [".env", "run/token", "journal.db", "data"];

/// What an attempt to make a journal, or to bring it to another version, leaves behind where it is cut off.
const CUT_OFF: [&str; 4] =
    ["journal.db.new", "journal.db.new-wal", "journal.db.new-shm", "journal.db.upgrading"];

/// The least room in bytes with which a daemon can be left alone.
const ROOM: u64 = 256 << 20;

pub fn look(home: &Home, exe: &Path) -> Vec<Finding> {
    let path = home.path();
    let shown = path.display();
    let found = match fs::metadata(path) {
        Ok(found) if found.is_dir() => found,
        Ok(_) => {
            let fault = Finding::fault(HOME, format!("`{shown}` is a file, and a home is a folder"));
            return vec![fault.fix("name another one with `--home` or `DRUPE_HOME`").last()];
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let none = Finding::remark(HOME, format!("`{shown}` is not there yet"));
            return vec![none.fix("`drupe run` makes it; or name another one with `--home`").last()];
        }
        Err(error) => {
            let fault = Finding::fault(HOME, format!("`{shown}` cannot be looked at: {error}"));
            return vec![fault.fix("run this as the user whose home it is").last()];
        }
    };
    if drupe_backup::is_cut_off(path) {
        let message =
            format!("a restore of `{shown}` is not finished, so that a part of the home lies aside");
        let fix = "`drupe run` finishes it, and so does another `drupe restore`, unless one is at work";
        return vec![Finding::fault(HOME, message).fix(fix).last()];
    }
    let mut findings = Vec::new();
    let user = geteuid().as_raw();
    if found.uid() != user {
        let message = format!("`{shown}` belongs to user {}, and this is user {user}", found.uid());
        findings.push(
            Finding::fault(HOME, message)
                .fix(format!("run drupe as that user, or make the folder yours: `chown -R {user} {shown}`")),
        );
    }
    if found.mode() & 0o077 != 0 {
        let message = format!("`{shown}` is open to others (mode {:o})", found.mode() & 0o777);
        let open =
            Finding::warning(HOME, message).fix(format!("`chmod 700 {shown}`, or `drupe doctor --fix`"));
        findings.push(open.repair(Repair::Close(path.to_owned())));
    }
    findings.extend(PRIVATE.iter().filter_map(|name| private(&path.join(name), user)));
    if let Some(remote) = remote(path) {
        let message = format!("`{shown}` is on a file system of another machine ({remote})");
        findings.push(Finding::fault(HOME, message).fix(
            "neither its lock nor its journal can be relied on there: move the home to a disk of this machine",
        ));
    }
    findings.extend(room(path));
    findings.extend(unwritable(path));
    for name in CUT_OFF.iter().filter(|name| path.join(name).exists()) {
        // A daemon that begins just now may be writing it.
        if home.is_held() {
            continue;
        }
        let message = format!(
            "`{}` is left of an attempt to make or upgrade a journal that was cut off",
            path.join(name).display()
        );
        let left =
            Finding::remark(HOME, message).fix("the next start removes it, as does `drupe doctor --fix`");
        findings.push(left.repair(Repair::Remove(path.join(name))));
    }
    if findings.is_empty() {
        findings.push(Finding::fine(HOME, format!("`{shown}`, by `{}`", exe.display())));
    }
    findings
}

/// Whether somebody else may read, or owns, what is secret.
fn private(path: &Path, user: u32) -> Option<Finding> {
    let shown = path.display();
    let found = fs::symlink_metadata(path).ok()?;
    if found.is_symlink() {
        let Ok(real) = fs::metadata(path) else {
            let fault = Finding::fault(HOME, format!("`{shown}` is a link that leads nowhere"));
            return Some(fault.fix("remove it, or put back what it led to"));
        };
        let open = real.mode() & 0o077 != 0;
        let message =
            format!("`{shown}` leads to a file that others may reach (mode {:o})", real.mode() & 0o777);
        return open.then(|| Finding::warning(HOME, message).fix("take their rights from that file"));
    }
    if found.uid() != user {
        let message = format!("`{shown}` belongs to user {}", found.uid());
        return Some(Finding::fault(HOME, message).fix(format!("`chown -R {user} {shown}`")));
    }
    // The folder keeps others out; what is secret keeps them out by itself, too, since copies keep the mode of a file.
    let secret = found.is_file() && found.mode() & 0o077 != 0;
    secret.then(|| {
        let message = format!("`{shown}` can be reached by others (mode {:o})", found.mode() & 0o777);
        let open =
            Finding::warning(HOME, message).fix(format!("`chmod 600 {shown}`, or `drupe doctor --fix`"));
        open.repair(Repair::Close(path.to_owned()))
    })
}

fn remote(path: &Path) -> Option<&'static str> {
    let kind = statfs(path).ok()?.f_type;
    REMOTE.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

fn room(path: &Path) -> Option<Finding> {
    if let Some(remark) = disk::remark(path) {
        return Some(
            Finding::fault(HOME, remark).fix("free some space, or move the home; service returns by itself"),
        );
    }
    let free = disk::free(path)?;
    if let Some(message) = disk::without_names(path) {
        return Some(Finding::fault(HOME, message).fix("delete files on it that nobody needs"));
    }
    (free < ROOM).then(|| {
        let message = format!("the disk of `{}` has {} MiB left", path.display(), free >> 20);
        Finding::warning(HOME, message)
            .fix("free some space; `journal.retention` bounds how far the journal grows")
    })
}

/// Whether this user may write where a daemon writes.
fn unwritable(path: &Path) -> Vec<Finding> {
    let folders = ["", "state", "run", "data", "extensions", "workspace"];
    let folders = folders.iter().map(|name| path.join(name)).filter(|folder| folder.exists());
    let refused = folders.filter_map(|folder| {
        let shown = folder.display().to_string();
        if !folder.is_dir() {
            let fault = Finding::fault(HOME, format!("`{shown}` is no folder, and a daemon needs one there"));
            return Some(fault.fix("move it away"));
        }
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        let refused = rustix::fs::access(&folder, access).err()?;
        let fault = Finding::fault(HOME, format!("`{shown}` cannot be written: {refused}"));
        Some(fault.fix(format!("`chmod u+rwx {shown}`, or make its file system writable")))
    });
    refused.collect()
}
