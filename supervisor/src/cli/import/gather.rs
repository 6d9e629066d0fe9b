//! Looks into folders of strangers: follows no link, opens nothing but regular files, and reads no more than there is room for.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

/// Entries of one folder that are looked at.
const MOST_ENTRIES: usize = 1024;

/// Folders below one another that are looked into.
const DEEPEST: usize = 8;

/// Bytes of a file with settings: histories lie in some of them.
const LARGEST_SETTINGS: u64 = 16 << 20;

const MOST_FILES: usize = 512;
const LARGEST_SKILL: u64 = 16 << 20;

/// Why something does not come over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotImported(pub String);

impl fmt::Display for NotImported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NotImported {
    fn unread(path: &Path, error: &io::Error) -> Self {
        Self(format!("`{}` cannot be read: {error}", path.display()))
    }
}

/// A folder of somebody's, beneath which all that is looked at lies.
pub struct Beneath<'a> {
    pub root: &'a Path,
}

/// A file of a skill, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillPart {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    pub executable: bool,
}

impl Beneath<'_> {
    /// What a path beneath the folder is, where it is there. No part of the path may be a link.
    pub fn look(&self, path: &Path) -> Result<Option<fs::Metadata>, NotImported> {
        let mut whole = self.root.to_owned();
        let mut seen = None;
        for part in path {
            whole.push(part);
            match whole.symlink_metadata() {
                Ok(meta) if meta.is_symlink() => {
                    let message = format!(
                        "`{}` is a symbolic link, and none is followed: name the folder to which it leads",
                        whole.display()
                    );
                    return Err(NotImported(message));
                }
                Ok(meta) => seen = Some(meta),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(NotImported::unread(&whole, &error)),
            }
        }
        Ok(seen)
    }

    /// The names in a folder, sorted, and whether there are more.
    pub fn list(&self, folder: &Path) -> Result<(Vec<PathBuf>, bool), NotImported> {
        let whole = self.root.join(folder);
        let unread = |error: io::Error| NotImported::unread(&whole, &error);
        let mut names = Vec::new();
        let mut more = false;
        for entry in fs::read_dir(&whole).map_err(unread)? {
            if names.len() == MOST_ENTRIES {
                more = true;
                break;
            }
            names.push(folder.join(entry.map_err(unread)?.file_name()));
        }
        names.sort();
        Ok((names, more))
    }

    /// Files with an ending, in a folder and those below.
    pub fn files(
        &self,
        folder: &Path,
        ending: &str,
        found: &mut Vec<PathBuf>,
        passed: &mut Vec<(PathBuf, NotImported)>,
    ) {
        if folder.components().count() > DEEPEST {
            passed.push((
                folder.to_owned(),
                NotImported(format!("more than {DEEPEST} folders lie within one another")),
            ));
            return;
        }
        let (names, more) = match self.list(folder) {
            Ok(listed) => listed,
            Err(why) => return passed.push((folder.to_owned(), why)),
        };
        if more {
            let why = NotImported(format!("more than {MOST_ENTRIES} entries; the rest is not looked at"));
            passed.push((folder.to_owned(), why));
        }
        for path in names {
            let named = path.extension().is_some_and(|given| given == ending);
            match self.look(&path) {
                Ok(Some(meta)) if meta.is_dir() => self.files(&path, ending, found, passed),
                Ok(Some(_)) if named => found.push(path),
                Ok(_) => {}
                // A link to a file of another kind is nobody's agent.
                Err(why) if named || path.extension().is_none() => passed.push((path, why)),
                Err(_) => {}
            }
        }
    }

    /// The text of a file with settings.
    pub fn settings(&self, path: &Path) -> Result<String, NotImported> {
        let whole = self.root.join(path);
        let bytes = self.read(path, LARGEST_SETTINGS)?;
        String::from_utf8(bytes).map_err(|_| NotImported(format!("`{}` is not valid UTF-8", whole.display())))
    }

    fn read(&self, path: &Path, most: u64) -> Result<Vec<u8>, NotImported> {
        let whole = self.root.join(path);
        self.look(path)?;
        let file = open(&whole).map_err(|error| NotImported::unread(&whole, &error))?;
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(|error| NotImported::unread(&whole, &error))?;
        match bytes.len() as u64 > most {
            true => Err(NotImported(format!("`{}` is larger than {} KiB", whole.display(), most >> 10))),
            false => Ok(bytes),
        }
    }

    /// All files of a skill. One that holds a link, or what is no file, does not come over: half of it would be another skill.
    pub fn skill(&self, folder: &Path) -> Result<Vec<SkillPart>, NotImported> {
        let mut parts = Vec::new();
        let mut left = LARGEST_SKILL;
        let mut waiting = vec![(folder.to_owned(), 0)];
        while let Some((within, depth)) = waiting.pop() {
            let (names, more) = self.list(&within)?;
            if more || depth > DEEPEST || parts.len() + names.len() > MOST_FILES {
                let message =
                    format!("it has more than {MOST_FILES} files, or {DEEPEST} folders within one another");
                return Err(NotImported(message));
            }
            for path in names {
                let Some(meta) = self.look(&path)? else { continue };
                if meta.is_dir() {
                    waiting.push((path, depth + 1));
                    continue;
                }
                if !meta.is_file() {
                    return Err(NotImported(format!(
                        "`{}` is no regular file",
                        self.root.join(&path).display()
                    )));
                }
                let bytes = self.read(&path, left).map_err(|_| {
                    NotImported(format!(
                        "it cannot be read whole, or is larger than {} MiB",
                        LARGEST_SKILL >> 20
                    ))
                })?;
                left -= bytes.len() as u64;
                let within = path.strip_prefix(folder).unwrap_or(&path).to_owned();
                parts.push(SkillPart { path: within, bytes, executable: meta.mode() & 0o111 != 0 });
            }
        }
        parts.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(parts)
    }
}

/// Opens a regular file without following a link at its end, and without waiting.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}
