//! Reading a backup: every byte of it, and nothing counts before the last one was read.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::{self, DirBuilder, File, Permissions},
    io::{self, BufRead, BufReader, Read, Seek},
    os::unix::fs::{DirBuilderExt, PermissionsExt, symlink},
    path::{Component, Path},
};

use drupe_journal::schema;
use flate2::bufread::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};

use crate::{
    BackupError, BackupManifest,
    covered::{JOURNAL, is_apart},
    crypt::{Crypt, beginning, is_encrypted},
    error::At,
    files::{copy_hashed, create},
    manifest::{FORM, LONGEST, NAME, Packed},
};

/// How a file of gzip begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads a backup as a restore would, and writes nothing. `identity` is the file with the key of one that is encrypted.
pub fn check(file: &Path, identity: Option<&Path>) -> Result<BackupManifest, BackupError> {
    read(file, identity, None)
}

/// The same, and writes what is in it beneath a folder that is empty. What is there after an error is of no use.
pub(crate) fn read(
    file: &Path,
    identity: Option<&Path>,
    into: Option<&Path>,
) -> Result<BackupManifest, BackupError> {
    let mut source = File::open(file).at(file)?;
    let begin = beginning(&source).at(file)?;
    source.rewind().at(file)?;
    let (crypt, source): (Option<Crypt>, Box<dyn Read>) = match (is_encrypted(&begin), identity) {
        (false, _) => (None, Box::new(source)),
        (true, None) => return Err(BackupError::NeedsIdentity(file.to_owned())),
        (true, Some(identity)) => {
            let (crypt, pipe) = Crypt::decrypt(source, identity)?;
            (Some(crypt), Box::new(pipe))
        }
    };
    let mut source = BufReader::new(source);
    let packed = source.fill_buf().is_ok_and(|begin| begin.starts_with(&GZIP));
    let plain: Box<dyn Read> = if packed { Box::new(MultiGzDecoder::new(source)) } else { Box::new(source) };
    let mut reading =
        Reading { file, into, found: BTreeMap::new(), manifest: None, cut_off: Cell::new(false) };
    let outcome = reading.all(plain);
    match (outcome, crypt.map(Crypt::finish)) {
        // The program that decrypts says better why there was less to read than the archive does.
        (Ok(()), Some(Err(age))) => return Err(age),
        (Err(_), Some(Err(age))) if reading.cut_off.get() => return Err(age),
        (outcome, _) => outcome?,
    }
    reading.finish()
}

struct Reading<'a> {
    file: &'a Path,
    into: Option<&'a Path>,
    found: BTreeMap<String, Packed>,
    manifest: Option<BackupManifest>,
    /// Whether there was less to read than there should be.
    cut_off: Cell<bool>,
}

impl Reading<'_> {
    fn unusable(&self, why: impl Into<String>) -> BackupError {
        BackupError::unusable(self.file, why)
    }

    /// What went wrong while it was read and written: a disk that is full is not the backup's fault.
    fn failed(&self, error: io::Error) -> BackupError {
        match Err::<(), _>(error).at(self.into.unwrap_or(self.file)) {
            Err(BackupError::Io { error, .. }) => {
                self.cut_off.set(true);
                self.unusable(format!("it is cut off or damaged ({error})"))
            }
            Err(other) => other,
            Ok(()) => self.unusable("it is cut off or damaged"),
        }
    }

    fn all(&mut self, source: Box<dyn Read>) -> Result<(), BackupError> {
        let mut archive = Archive::new(source);
        let entries = archive.entries().map_err(|error| self.failed(error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.failed(error))?;
            self.entry(entry)?;
        }
        // What is behind the last entry belongs to the checksum of the whole.
        let mut rest = archive.into_inner();
        io::copy(&mut rest, &mut io::sink()).map_err(|error| self.failed(error))?;
        Ok(())
    }

    fn entry(&mut self, mut entry: Entry<'_, Box<dyn Read>>) -> Result<(), BackupError> {
        if self.manifest.is_some() {
            return Err(self.unusable("something stands behind its manifest"));
        }
        let name = entry.path().ok().and_then(|path| named(&path));
        let Some(name) = name else { return Err(self.unusable("a path in it leads out of the home")) };
        if name == NAME {
            let mut text = Vec::new();
            (&mut entry).take(LONGEST).read_to_end(&mut text).map_err(|error| self.failed(error))?;
            let form: Form = serde_json::from_slice(&text)
                .map_err(|error| self.unusable(format!("its manifest cannot be read: {error}")))?;
            if form.form != FORM {
                let why = format!("it was made by a newer drupe ({}); restore it with that", form.drupe);
                return Err(self.unusable(why));
            }
            let manifest = serde_json::from_slice(&text)
                .map_err(|error| self.unusable(format!("its manifest cannot be read: {error}")))?;
            self.manifest = Some(manifest);
            return Ok(());
        }
        let top = name.split('/').next().unwrap_or(&name);
        if is_apart(top) || (top.starts_with(JOURNAL) && name != JOURNAL) {
            return Err(self.unusable(format!("it holds `{name}`, which is no part of a backup")));
        }
        let mode = entry.header().mode().unwrap_or(0o600) & 0o777;
        let content = match entry.header().entry_type() {
            EntryType::Directory => {
                self.make_folder(&name)?;
                Packed::Folder { mode }
            }
            EntryType::Symlink => {
                let target = entry.link_name().ok().flatten().and_then(|to| to.to_str().map(str::to_owned));
                let target =
                    target.ok_or_else(|| self.unusable(format!("the link `{name}` leads nowhere")))?;
                Packed::Link { target }
            }
            EntryType::Regular | EntryType::Continuous => self.file(&name, mode, &mut entry)?,
            _ => return Err(self.unusable(format!("`{name}` is no file"))),
        };
        match self.found.insert(name.clone(), content) {
            None => Ok(()),
            Some(_) => Err(self.unusable(format!("`{name}` is in it twice"))),
        }
    }

    fn file(&self, name: &str, mode: u32, content: &mut impl Read) -> Result<Packed, BackupError> {
        let Some(into) = self.into else {
            let (bytes, sha256) =
                copy_hashed(content, &mut io::sink(), u64::MAX).map_err(|error| self.failed(error))?;
            return Ok(Packed::File { bytes, sha256, mode });
        };
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.make_folder(folder)?;
        }
        let path = into.join(name);
        let mut file = create(&path).at(&path)?;
        let (bytes, sha256) =
            copy_hashed(content, &mut file, u64::MAX).map_err(|error| self.failed(error))?;
        file.set_permissions(Permissions::from_mode(mode)).at(&path)?;
        Ok(Packed::File { bytes, sha256, mode })
    }

    fn make_folder(&self, name: &str) -> Result<(), BackupError> {
        let Some(into) = self.into else { return Ok(()) };
        let path = into.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path).at(&path)
    }

    /// Compares what was found with what the manifest says, and then makes links: before, one could lead elsewhere what is
    /// written beneath it.
    fn finish(self) -> Result<BackupManifest, BackupError> {
        let Some(manifest) = &self.manifest else {
            return Err(self.unusable("it has no manifest: it is cut off, or no backup of drupe"));
        };
        if let Some(found) = manifest.journal.filter(|found| *found > schema::version()) {
            let (path, by, known) = (self.file.to_owned(), manifest.drupe.clone(), schema::version());
            return Err(BackupError::Newer { path, by, found, known });
        }
        for (name, said) in &manifest.entries {
            match self.found.get(name) {
                Some(found) if found == said => {}
                Some(_) => return Err(self.unusable(format!("`{name}` is not what its manifest says"))),
                None => return Err(self.unusable(format!("`{name}` is missing in it"))),
            }
        }
        if let Some(name) = self.found.keys().find(|name| !manifest.entries.contains_key(*name)) {
            return Err(self.unusable(format!("it holds `{name}`, of which its manifest says nothing")));
        }
        if manifest.journal.is_some() != manifest.entries.contains_key(JOURNAL) {
            return Err(self.unusable("its manifest contradicts itself about the journal"));
        }
        if let Some(into) = self.into {
            // What is in a folder before the folder, which may not be writable then.
            for (name, content) in manifest.entries.iter().rev() {
                let path = into.join(name);
                match content {
                    Packed::Link { target } => {
                        if let Some((folder, _)) = name.rsplit_once('/') {
                            self.make_folder(folder)?;
                        }
                        symlink(target, &path).at(&path)?;
                    }
                    Packed::Folder { mode } => {
                        fs::set_permissions(&path, Permissions::from_mode(*mode)).at(&path)?;
                    }
                    Packed::File { .. } => {}
                }
            }
        }
        self.manifest.ok_or_else(|| BackupError::unusable(self.file, "it has no manifest"))
    }
}

/// What every form of a manifest has.
#[derive(serde::Deserialize)]
struct Form {
    form: u32,
    #[serde(default)]
    drupe: String,
}

/// A path beneath a home, with `/`; none for any other.
fn named(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}
