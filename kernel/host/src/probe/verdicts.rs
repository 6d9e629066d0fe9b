//! The verdicts so far, kept in a file: which library, as it was then, may be opened.
//!
//! A verdict holds for one content and for the program that gave it: another release of drupe asks again. The hash of
//! an original is looked up by what tells one build of a file from another without reading it. A copy is read once in each
//! boot of the machine: a disk that lost power may hold it under its name with another content, and opening a truncated one
//! kills. Within a boot what changed a copy changed its times.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use drupe_confine::make_beneath;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Judgement, judge};

/// Where verdicts and copies are.
#[derive(Debug, Clone)]
pub struct Caches {
    /// The file of the verdicts; one that cannot be read only costs a probe for each library.
    pub verdicts_file: PathBuf,
    /// The folder of the copies. Nothing else may be in it.
    pub copies: PathBuf,
    /// drupe's own program.
    pub exe: PathBuf,
    /// Whether to look at nothing where the system cannot confine whoever looks: its constructors would run with the
    /// rights of this process.
    pub strict: bool,
}

/// A library that is known to be sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub file: PathBuf,
    /// The content's SHA-256, in 64 hexadecimal digits.
    pub hash: String,
}

/// What tells one build of a file from another without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    size: u64,
    inode: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Identity {
    fn of(file: &Path) -> io::Result<Self> {
        let meta = fs::metadata(file)?;
        let ns = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Ok(Self {
            size: meta.len(),
            inode: meta.ino(),
            modified_ns: ns(meta.mtime(), meta.mtime_nsec()),
            changed_ns: ns(meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// What is known of one library.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    identity: Identity,
    hash: String,
    /// The program that gave the verdict.
    judge: Identity,
    /// Why it is refused; none if it is sound.
    refused: Option<String>,
    /// Its copy, as it was read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    copy: Option<ReadCopy>,
}

/// A copy that was read and had the content that its name says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ReadCopy {
    identity: Identity,
    /// The boot of the machine in which that was.
    boot: String,
}

impl ReadCopy {
    /// The copy as it is now; none where nobody knows which boot this is.
    fn of(copy: &Path) -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Self { identity: Identity::of(copy).ok()?, boot: boot.trim().to_owned() })
    }
}

/// The file to open in place of `library`, and its content's hash, once it is known to be sound. With `copy` it is a
/// copy named by its content, since an operator may replace the original while it is in use. An error says why it is
/// refused, and what to do.
pub async fn checked(caches: &Caches, library: &Path, copy: bool) -> Result<Checked, String> {
    let (caches, library) = (caches.clone(), library.to_owned());
    let work = move || check(&caches, &library, copy);
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
}

/// The hash of a file's content, in 64 hexadecimal digits. Reads it as a whole.
pub fn hash(file: &Path) -> io::Result<String> {
    let mut digest = Sha256::new();
    io::copy(&mut fs::File::open(file)?, &mut Digesting(&mut digest))?;
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Removes copies that no verdict names any more. Before any library is opened: a copy may be in use later.
pub fn sweep(caches: &Caches) {
    let kept = kept(caches);
    for entry in fs::read_dir(&caches.copies).into_iter().flatten().flatten() {
        if !kept.values().any(|kept| entry.path() == caches.copy(&kept.hash)) {
            // One that stays only costs its space.
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Caches {
    fn copy(&self, hash: &str) -> PathBuf {
        self.copies.join(format!("{hash}.so"))
    }
}

fn check(caches: &Caches, library: &Path, copy: bool) -> Result<Checked, String> {
    let failed = |what: &str, error: &io::Error| format!("`{}` cannot be {what}: {error}", library.display());
    let identity = Identity::of(library).map_err(|error| failed("read", &error))?;
    let judged_by = Identity::of(&caches.exe)
        .map_err(|error| format!("`{}` cannot be read: {error}", caches.exe.display()))?;
    let known = kept(caches).remove(library).filter(|kept| kept.identity == identity);
    // Before it is read: whatever changes it from here on changes this.
    let mut read_copy =
        known.as_ref().filter(|_| copy).and_then(|kept| ReadCopy::of(&caches.copy(&kept.hash)));
    let read_before = |kept: &Kept| kept.copy.is_some() && kept.copy == read_copy;
    let hash = match &known {
        Some(kept) if !copy || read_before(kept) || is_whole(&caches.copy(&kept.hash), &kept.hash) => {
            kept.hash.clone()
        }
        _ if copy => {
            let hash = copied(caches, library).map_err(|error| failed("copied", &error))?;
            read_copy = ReadCopy::of(&caches.copy(&hash));
            hash
        }
        _ => hash(library).map_err(|error| failed("read", &error))?,
    };
    let file = if copy { caches.copy(&hash) } else { library.to_owned() };
    let refused = match known.filter(|kept| kept.judge == judged_by && kept.hash == hash) {
        Some(kept) => {
            let refused = kept.refused.clone();
            if copy && kept.copy != read_copy {
                keep(caches, library.to_owned(), Kept { copy: read_copy, ..kept });
            }
            refused
        }
        None => {
            let refused = match judge(caches, &file, library) {
                Judgement::Sound => None,
                Judgement::Refused(why) => Some(why),
                Judgement::Unknown(why) => return Err(why),
            };
            let verdict = Kept {
                identity,
                hash: hash.clone(),
                judge: judged_by,
                refused: refused.clone(),
                copy: read_copy,
            };
            keep(caches, library.to_owned(), verdict);
            refused
        }
    };
    refused.map_or_else(|| Ok(Checked { file, hash }), Err)
}

/// Whether a copy has the content that its name says.
fn is_whole(copy: &Path, expected: &str) -> bool {
    hash(copy).is_ok_and(|found| found == expected)
}

/// Copies a library to where its hash says, and gives the hash of what was copied. A name that is there after a loss of
/// power stands for the whole content.
fn copied(caches: &Caches, library: &Path) -> io::Result<String> {
    /// Several libraries are copied at once, perhaps the same one twice.
    static PARTS: AtomicU64 = AtomicU64::new(0);
    /// A copy that is whole is never replaced: a confined process may hold a rule for that very file.
    static PLACING: Mutex<()> = Mutex::new(());
    make_beneath(caches.copies.parent().unwrap_or(&caches.copies), &caches.copies)?;
    let number = PARTS.fetch_add(1, Ordering::Relaxed);
    let part = caches.copies.join(format!(".{}-{number}", std::process::id()));
    fs::copy(library, &part)?;
    let hash = hash(&part)?;
    let copy = caches.copy(&hash);
    let _placing = PLACING.lock().unwrap_or_else(PoisonError::into_inner);
    if is_whole(&copy, &hash) {
        fs::remove_file(&part)?;
    } else {
        fs::File::open(&part)?.sync_all()?;
        // Who has a damaged one open keeps it: it is replaced, not written to.
        fs::rename(&part, copy)?;
        fs::File::open(&caches.copies)?.sync_all()?;
    }
    Ok(hash)
}

fn kept(caches: &Caches) -> BTreeMap<PathBuf, Kept> {
    let read = fs::read(&caches.verdicts_file).ok();
    read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn keep(caches: &Caches, library: PathBuf, verdict: Kept) {
    // Several libraries are probed at once, each of which adds its line to the same file.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all = kept(caches);
    all.retain(|file, _| file.exists());
    all.insert(library, verdict);
    let file = &caches.verdicts_file;
    let part = file.with_extension("part");
    let written = serde_json::to_vec(&all).map_err(io::Error::other).and_then(|bytes| {
        let folder = file.parent().unwrap_or(file);
        make_beneath(folder.parent().unwrap_or(folder), folder)?;
        fs::write(&part, bytes)?;
        fs::rename(&part, file)
    });
    if let Err(error) = written {
        tracing::warn!(%error, "verdicts about libraries could not be kept; they are probed again at the next start");
    }
}

struct Digesting<'a>(&'a mut Sha256);

impl io::Write for Digesting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
