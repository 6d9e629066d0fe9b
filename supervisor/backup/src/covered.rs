//! Which files of a home cannot be made again.
//!
//! Everything is covered but what is named here, so that a file that an operator put into the home is not forgotten.

use std::{
    fs::{self, Metadata},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use crate::{FOLDER, databases, manifest::Omitted, swap};

/// Of what the supervisor keeps: extensions that crash, the number of the last start, the last good configuration. The
/// rest of it is logs, and names of what is not in a backup.
const STATE: [&str; 3] = ["quarantine.json", "generation", "drupe.good.yaml"];

/// What cargo keeps below `target`, beside what it built.
const COMPILED: [&str; 7] = [".fingerprint", "build", "deps", "doc", "examples", "incremental", "tmp"];

/// The last word in the name of a file that is secret, in the singular, and how keys end.
const SECRETS: [&str; 7] = ["authorization", "cookie", "credential", "key", "password", "secret", "token"];
const KEY_FILES: [&str; 3] = ["key", "p12", "pem"];

/// How deep folders are followed: deeper ones are somebody's mistake.
const DEEPEST: usize = 64;

/// The journal, whose files are never taken as they are.
pub(crate) const JOURNAL: &str = "journal.db";

/// The folder of the file tools.
const WORKSPACE: &str = "workspace";

/// A file, a folder or a link.
pub(crate) struct Item {
    /// In the home, with `/`.
    pub name: String,
    pub path: PathBuf,
    pub found: Metadata,
}

/// What is to be taken, folders before what is in them, and what is not.
#[derive(Default)]
pub(crate) struct Covered {
    pub items: Vec<Item>,
    pub left_out: Vec<Omitted>,
}

/// What beside the usual is wanted.
pub(crate) struct Wanted<'a> {
    pub secrets: bool,
    pub workspace: bool,
    /// Folders and files that hold backups.
    pub except: &'a [PathBuf],
}

/// Whether a name at the top of a home is never a part of a backup, and is left where it is by a restore.
pub(crate) fn is_apart(name: &str) -> bool {
    ["run", FOLDER, swap::FOLDER].contains(&name) || name.starts_with(swap::ASIDE)
}

/// Whether a name at the top of a home is that of secrets.
pub(crate) fn is_environment(name: &str) -> bool {
    name == ".env" || name.starts_with(".env.")
}

/// Whether a name at the top of a home belongs to the workspace.
pub(crate) fn is_workspace(name: &str) -> bool {
    name == WORKSPACE
}

pub(crate) fn covered(home: &Path, wanted: &Wanted<'_>) -> Covered {
    let mut all = Covered::default();
    all.folder(home, "", 0, wanted);
    all
}

impl Covered {
    fn folder(&mut self, path: &Path, name: &str, depth: usize, wanted: &Wanted<'_>) {
        let found = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut found = match found {
            Ok(found) => found,
            Err(error) => return self.unread(name, &error),
        };
        found.sort_by_key(fs::DirEntry::file_name);
        for entry in found {
            let own = entry.file_name();
            let Some(own) = own.to_str() else {
                self.left_out(
                    &format!("{name}/{}", own.to_string_lossy()),
                    "its name is not valid UTF-8",
                    false,
                );
                continue;
            };
            let whole = if name.is_empty() { own.to_owned() } else { format!("{name}/{own}") };
            self.entry(entry.path(), whole, own, depth, wanted);
        }
    }

    fn entry(&mut self, path: PathBuf, name: String, own: &str, depth: usize, wanted: &Wanted<'_>) {
        if passed_over(&name) || wanted.except.contains(&path) {
            return;
        }
        if depth == 0 && is_workspace(own) && !wanted.workspace {
            return self.left_out(&name, "`--with-workspace` takes it along", false);
        }
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            // It went meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => return self.unread(&name, &error),
        };
        let kind = found.file_type();
        if !kind.is_dir() && is_secret(&name, own) && !wanted.secrets {
            return self.left_out(
                &name,
                "it holds secrets: `--encrypt` or `--with-secrets` takes it along",
                true,
            );
        }
        if kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device() {
            return self.left_out(&name, "it is no file", false);
        }
        if kind.is_file() && databases::is_beside(&path) {
            return;
        }
        self.items.push(Item { name: name.clone(), path: path.clone(), found });
        if !kind.is_dir() {
            return;
        }
        match depth < DEEPEST {
            true => self.folder(&path, &name, depth + 1, wanted),
            false => self.left_out(&name, "it is too deep", false),
        }
    }

    pub fn left_out(&mut self, path: &str, why: &str, secret: bool) {
        self.left_out.push(Omitted { path: path.to_owned(), why: why.to_owned(), secret });
    }

    pub fn unread(&mut self, path: &str, error: &std::io::Error) {
        self.left_out(path, &format!("it cannot be read: {error}"), false);
    }
}

/// What is not a part of a backup, and nobody misses.
fn passed_over(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [top] => is_apart(top) || top.starts_with(JOURNAL),
        ["state", file] => !STATE.contains(&file),
        // What the kernel and cargo keep beside the extensions' own folders can be made again.
        ["data", folder] => folder.starts_with('.'),
        // Of what a compiler left, the libraries are what an extension is loaded from.
        ["extensions", _, .., folder] if parts.contains(&"target") => COMPILED.contains(&folder),
        _ => false,
    }
}

/// Whether a file holds what opens something else. Of what extensions keep, the name has to say so.
fn is_secret(name: &str, own: &str) -> bool {
    if is_environment(own) {
        return true;
    }
    if !name.starts_with("data/") && name.contains('/') {
        return false;
    }
    let own = own.to_ascii_lowercase();
    let (stem, ending) = own.split_once('.').unwrap_or((&own, ""));
    let last = stem.rsplit(|sign: char| !sign.is_ascii_alphanumeric()).next().unwrap_or(stem);
    SECRETS.contains(&last.strip_suffix('s').unwrap_or(last)) || KEY_FILES.contains(&ending)
}

/// Permissions as they are kept.
pub(crate) fn mode(found: &Metadata) -> u32 {
    found.mode() & 0o777
}
