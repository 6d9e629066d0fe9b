//! One backup: copied, packed, checked, and only then under its own name.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Cursor, Read, Write},
    path::{Path, PathBuf},
};

use drupe_journal::{StoreError, copy as copy_journal};
use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};
use tar::{Builder, EntryType, Header};

use crate::{
    BackupError, BackupManifest, Omitted, apart, check,
    covered::{self, Covered, Item, JOURNAL, Wanted, covered},
    crypt::Crypt,
    databases,
    error::At,
    files::{Unfinished, copy_hashed, create, sync_folder},
    manifest::{FORM, NAME, Packed},
    swap,
};

/// How the name of the folder ends in which a backup is made, beside what it will be.
const PART: &str = ".drupe-part";

/// Larger files are copied before they are packed: an archive says first how long a file is, and it may grow meanwhile.
const SMALL: u64 = 1 << 20;

/// Texts are what a home is full of: a faster level packs them nearly as well.
const LEVEL: u32 = 4;

/// What is to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub home: PathBuf,
    /// The file, which must not be there.
    pub file: PathBuf,
    /// For whom it is encrypted: keys of age or files of such; for nobody, it is not.
    #[serde(default)]
    pub encrypt: Vec<String>,
    #[serde(default)]
    pub secrets: bool,
    #[serde(default)]
    pub workspace: bool,
    /// Folders and files of the home that hold backups.
    #[serde(default)]
    pub except: Vec<PathBuf>,
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeBackup {
    pub file: PathBuf,
    pub bytes: u64,
    pub made: Timestamp,
    /// The version of the journal in it; none where there was none.
    pub journal: Option<u32>,
    pub files: u64,
    pub secrets: bool,
    pub workspace: bool,
    pub left_out: Vec<Omitted>,
    /// What somebody should know, a sentence each.
    pub remarks: Vec<String>,
}

/// Makes a backup of a home, whether a daemon serves it or not.
///
/// Whatever ends it before its end leaves at most a hidden folder beside the file, which the next one there removes.
pub fn make(order: &Order) -> Result<MadeBackup, BackupError> {
    let Order { home, file, .. } = order;
    if !home.is_dir() {
        return Err(BackupError::NoHome(home.clone()));
    }
    let _read = apart::while_read(home)?;
    if swap::is_cut_off(home) {
        return Err(BackupError::CutOff(home.clone()));
    }
    let unnamed = || BackupError::unusable(file, "it names no file");
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return Err(unnamed()) };
    if fs::symlink_metadata(file).is_ok() {
        return Err(BackupError::Exists(file.clone()));
    }
    sweep(folder);
    let mut part = OsStr::new(".").to_owned();
    part.push(name);
    part.push(PART);
    let part = folder.join(part);
    let work = Unfinished::begin(part.clone()).at(&part)?.ok_or_else(|| BackupError::AtWork(file.clone()))?;
    let archive = work.path.join("archive");
    let out = create(&archive).at(file)?;
    let (crypt, pipe): (Option<Crypt>, Box<dyn Write>) = match order.encrypt.as_slice() {
        [] => (None, Box::new(out)),
        recipients => {
            let (crypt, pipe) = Crypt::encrypt(recipients, out)?;
            (Some(crypt), Box::new(pipe))
        }
    };
    // Where it is made in the home itself.
    let inside = Order { except: [order.except.as_slice(), &[part, file.clone()]].concat(), ..order.clone() };
    let packed = Packing::new(&inside, &work.path, pipe).pack();
    // It says better why its pipe broke than the pipe does.
    if let Some(crypt) = crypt {
        crypt.finish()?;
    }
    let (manifest, remarks) = packed?;
    let whole = File::open(&archive).at(file)?;
    whole.sync_all().at(file)?;
    let bytes = whole.metadata().at(file)?.len();
    if order.encrypt.is_empty() {
        // As a restore would read it; what is encrypted cannot be read without its key.
        check::check(&archive, None)?;
    }
    renameat_with(CWD, &archive, CWD, file, RenameFlags::NOREPLACE).at(file)?;
    sync_folder(folder).at(folder)?;
    let BackupManifest { made, journal, secrets, workspace, left_out, entries, .. } = manifest;
    let files = entries.values().filter(|content| matches!(content, Packed::File { .. })).count() as u64;
    Ok(MadeBackup { file: file.clone(), bytes, made, journal, files, secrets, workspace, left_out, remarks })
}

/// Removes what processes left in a folder that were killed while they made a backup.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(PART)) {
            // One at which another process works is left to it, and goes with it.
            let _ = Unfinished::begin(entry.path());
        }
    }
}

/// An archive that is being written.
struct Packing<'a> {
    order: &'a Order,
    /// The folder for copies of files.
    work: &'a Path,
    tar: Builder<GzEncoder<Box<dyn Write>>>,
    manifest: BackupManifest,
    remarks: Vec<String>,
}

impl<'a> Packing<'a> {
    fn new(order: &'a Order, work: &'a Path, out: Box<dyn Write>) -> Self {
        let manifest = BackupManifest {
            form: FORM,
            drupe: env!("CARGO_PKG_VERSION").into(),
            journal: None,
            made: Timestamp::now(),
            home: order.home.display().to_string(),
            secrets: order.secrets || !order.encrypt.is_empty(),
            workspace: order.workspace,
            left_out: Vec::new(),
            entries: Default::default(),
        };
        let tar = Builder::new(GzEncoder::new(out, Compression::new(LEVEL)));
        Self { order, work, tar, manifest, remarks: Vec::new() }
    }

    fn pack(mut self) -> Result<(BackupManifest, Vec<String>), BackupError> {
        self.journal()?;
        let wanted = Wanted {
            secrets: self.manifest.secrets,
            workspace: self.manifest.workspace,
            except: &self.order.except,
        };
        let Covered { items, left_out } = covered(&self.order.home, &wanted);
        self.manifest.left_out = left_out;
        for item in &items {
            self.item(item)?;
        }
        let manifest =
            serde_json::to_vec_pretty(&self.manifest).map_err(io::Error::from).at(&self.order.file)?;
        let mut header = header(EntryType::Regular, 0o600, manifest.len() as u64, self.manifest.made);
        self.tar.append_data(&mut header, NAME, &*manifest).at(&self.order.file)?;
        let gzip = self.tar.into_inner().at(&self.order.file)?;
        gzip.finish().and_then(|mut out| out.flush()).at(&self.order.file)?;
        Ok((self.manifest, self.remarks))
    }

    fn journal(&mut self) -> Result<(), BackupError> {
        let journal = self.order.home.join(JOURNAL);
        if !journal.exists() {
            self.remarks.push("the home has no journal: no daemon has kept one in it".into());
            return Ok(());
        }
        let copy = self.work.join(JOURNAL);
        self.manifest.journal = Some(copy_journal(&journal, &copy).map_err(|error| match error {
            // It is the copy that there is no room for.
            StoreError::Full(why) => {
                BackupError::Full { path: self.order.file.clone(), error: io::Error::other(why) }
            }
            other => other.into(),
        })?);
        self.file(JOURNAL, 0o600, &copy)?;
        databases::remove(&copy);
        Ok(())
    }

    fn item(&mut self, item: &Item) -> Result<(), BackupError> {
        let Item { name, path, found } = item;
        let mode = covered::mode(found);
        if found.is_dir() {
            let mut header = header(EntryType::Directory, mode, 0, self.manifest.made);
            self.tar.append_data(&mut header, format!("{name}/"), io::empty()).at(&self.order.file)?;
            self.manifest.entries.insert(name.clone(), Packed::Folder { mode });
        } else if found.is_symlink() {
            let Some(target) = fs::read_link(path).ok().and_then(|to| to.to_str().map(str::to_owned)) else {
                self.left_out(name, "where the link leads cannot be read, or is not valid UTF-8");
                return Ok(());
            };
            let mut header = header(EntryType::Symlink, 0o777, 0, self.manifest.made);
            self.tar.append_link(&mut header, name, &target).at(&self.order.file)?;
            if !self.is_inside(path) {
                self.left_out(
                    name,
                    &format!("it is a link, and `{target}`, to which it leads, is not taken along"),
                );
            }
            self.manifest.entries.insert(name.clone(), Packed::Link { target });
        } else if databases::is_database(path) {
            let copy = self.work.join("database");
            if let Err(error) = create(&copy)
                .map_err(|error| error.to_string())
                .and_then(|_| databases::copy(path, &copy).map_err(|error| error.to_string()))
            {
                databases::remove(&copy);
                self.remarks.push(format!(
                    "`{name}` cannot be copied as a database ({error}); it is in the backup as it is"
                ));
                return self.plain(name, mode, path, found.len());
            }
            self.file(name, mode, &copy)?;
            databases::remove(&copy);
        } else {
            self.plain(name, mode, path, found.len())?;
        }
        Ok(())
    }

    /// Whether a link leads to what the home has itself.
    fn is_inside(&self, link: &Path) -> bool {
        let home = self.order.home.canonicalize();
        home.is_ok_and(|home| link.canonicalize().is_ok_and(|real| real.starts_with(home)))
    }

    /// A file that others may write to meanwhile.
    fn plain(&mut self, name: &str, mode: u32, path: &Path, bytes: u64) -> Result<(), BackupError> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.left_out(name, &format!("it cannot be read: {error}"));
                return Ok(());
            }
        };
        if bytes <= SMALL {
            let mut content = Vec::new();
            let read = (&mut file).take(SMALL + 1).read_to_end(&mut content);
            match read {
                Ok(read) if read as u64 <= SMALL => {
                    let length = content.len() as u64;
                    return self.append(name, mode, length, &mut Cursor::new(content));
                }
                Ok(_) => {}
                Err(error) => {
                    self.left_out(name, &format!("it cannot be read: {error}"));
                    return Ok(());
                }
            }
        }
        let copy = self.work.join("file");
        let mut still = create(&copy).at(&self.order.file)?;
        let copied = File::open(path).and_then(|mut file| copy_hashed(&mut file, &mut still, u64::MAX));
        copied.at(path)?;
        self.file(name, mode, &copy)?;
        fs::remove_file(&copy).at(&copy)
    }

    /// A file that does not change.
    fn file(&mut self, name: &str, mode: u32, path: &Path) -> Result<(), BackupError> {
        let mut file = File::open(path).at(path)?;
        let length = file.metadata().at(path)?.len();
        self.append(name, mode, length, &mut file)
    }

    fn append(
        &mut self,
        name: &str,
        mode: u32,
        length: u64,
        content: &mut dyn Read,
    ) -> Result<(), BackupError> {
        let mut header = header(EntryType::Regular, mode, length, self.manifest.made);
        let mut hashed = Hashed::new(content.take(length));
        self.tar.append_data(&mut header, name, &mut hashed).at(&self.order.file)?;
        let (bytes, sha256) = hashed.finish();
        if bytes != length {
            return Err(io::Error::other(format!("it became shorter than {length} bytes"))).at(name);
        }
        self.manifest.entries.insert(name.to_owned(), Packed::File { bytes, sha256, mode });
        Ok(())
    }

    fn left_out(&mut self, path: &str, why: &str) {
        self.manifest.left_out.push(Omitted { path: path.to_owned(), why: why.to_owned(), secret: false });
    }
}

fn header(kind: EntryType, mode: u32, bytes: u64, made: Timestamp) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_mtime(made.as_second().unsigned_abs());
    header
}

/// A reader whose bytes are hashed on their way.
struct Hashed<R> {
    reader: R,
    hash: sha2::Sha256,
    bytes: u64,
}

impl<R: Read> Hashed<R> {
    fn new(reader: R) -> Self {
        Self { reader, hash: sha2::Digest::new(), bytes: 0 }
    }

    fn finish(self) -> (u64, String) {
        (self.bytes, crate::files::hex(&sha2::Digest::finalize(self.hash)))
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        sha2::Digest::update(&mut self.hash, &buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}
