//! What was there before a change, so that it can be taken back.
//!
//! A change is a file in the extension's data folder: a line of JSON that says what was changed, and behind it all that the file
//! held before. It is there, safe, before the change is made. Its name says when, in which conversation, and how far it came:
//!
//! ```text
//! <milliseconds since 1970>.<conversation>.begun            the change may have been made
//! <milliseconds since 1970>.<conversation>.done             it was
//! <milliseconds since 1970>.<conversation>.undoing-<call>   it may have been taken back
//! <milliseconds since 1970>.<conversation>.undone-<call>    it was
//! ```
//!
//! So each step is a rename. Where the process ended between two, the file itself tells which of them holds: what it holds is
//! what was there before, or not. This is settled before anything else is done.
//!
//! It deliberately keeps nothing in memory and makes no change itself.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use drupe_extension_api::{EffectId, Fault, FaultCode, SessionId, ToolName, TurnId};
use serde::{Deserialize, Serialize};

use crate::change::{FileContent, FileState, hash};

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct UndoBounds {
    /// Bytes of all that is kept.
    pub bytes: u64,
    pub days: u64,
}

/// Changes that are kept: some weeks of work, and few enough to look through.
const CHANGES: usize = 1_000;

/// The longest line of JSON that is read: paths, hashes, and what the model was told.
const HEADER: u64 = 64 << 10;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// How far a change came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeStage {
    Begun,
    Done,
    /// By which call, as [`short`] has it.
    Undoing(String),
    Undone(String),
}

/// What is known of a change without what was there before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeFacts {
    pub session: SessionId,
    pub turn: TurnId,
    pub effect: EffectId,
    pub tool: ToolName,
    /// The root from which `path` leads.
    pub workspace: PathBuf,
    pub path: PathBuf,
    /// What was there; none where nothing was.
    pub before: Option<Before>,
    /// The hash of what was written; none where the file was deleted.
    pub after: Option<String>,
    /// What the file was called before, from the same root; none where it kept its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// What the model was told.
    pub said: String,
    /// Folders that were made for it, the outermost first.
    pub folders: Vec<PathBuf>,
}

/// What was there before a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    pub bytes: u64,
    /// None where it was too long to be kept.
    pub hash: Option<String>,
    pub strangers: bool,
}

/// A change that is kept.
#[derive(Debug, Clone)]
pub struct KeptChange {
    pub at_ms: u64,
    pub stage: ChangeStage,
    file: PathBuf,
    pub facts: ChangeFacts,
}

impl KeptChange {
    /// As a call names it.
    pub fn id(&self) -> String {
        format!("c-{}", self.at_ms)
    }

    /// What the file held before, as a state that it can be given again.
    pub fn content(&self) -> Result<Option<FileContent>, Fault> {
        let Some(before) = &self.facts.before else { return Ok(None) };
        let Some(expected) = &before.hash else {
            let message =
                format!("what was there before had {} bytes, which is too long to be kept", before.bytes);
            return Err(Fault::new(FaultCode::Other, message));
        };
        let mut file = BufReader::new(File::open(&self.file)?);
        file.by_ref().take(HEADER).skip_until(b'\n')?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        if hash(&bytes) != *expected {
            let message = format!("`{}` is damaged", self.file.display());
            return Err(Fault::new(FaultCode::Other, message));
        }
        Ok(Some(FileContent { bytes, strangers: before.strangers }))
    }
}

/// The folder of all changes.
pub struct UndoStore {
    folder: PathBuf,
    bounds: UndoBounds,
    /// Whether those of earlier processes are settled.
    settled: bool,
}

impl UndoStore {
    pub fn new(data_folder: &Path, bounds: UndoBounds) -> Self {
        Self { folder: data_folder.join("undo"), bounds, settled: false }
    }

    /// Decides about all that an earlier process left open, by what `look` says that the file holds.
    pub fn settle(&mut self, look: impl Fn(&ChangeFacts) -> Option<FileState>) -> Result<(), Fault> {
        if self.settled {
            return Ok(());
        }
        for name in self.names()? {
            if matches!(name.stage, ChangeStage::Done | ChangeStage::Undone(_)) {
                continue;
            }
            // What cannot be read was cut off while it was written, before the change was made.
            let Some(change) = read(&name)? else {
                fs::remove_file(&name.file)?;
                continue;
            };
            let Some(now) = look(&change.facts) else { continue };
            let is_before = match &change.facts.before {
                None => now == FileState::Absent,
                // Of one that was too long to be kept nothing can be taken back, so it is enough that it is there.
                Some(Before { hash: None, .. }) => matches!(now, FileState::Long { .. }),
                Some(before) => now.hash() == before.hash,
            };
            match (change.stage.clone(), is_before) {
                (ChangeStage::Begun, true) => fs::remove_file(&change.file)?,
                (ChangeStage::Undoing(by), true) => drop(self.advance(&change, ChangeStage::Undone(by))?),
                (_, _) => drop(self.advance(&change, ChangeStage::Done)?),
            }
        }
        self.settled = true;
        Ok(())
    }

    /// Keeps what is there before a change. When this returns it survives whatever happens.
    pub fn begin(&mut self, facts: ChangeFacts, before: &FileState) -> Result<KeptChange, Fault> {
        let bytes: &[u8] = match before {
            FileState::Held(content) => &content.bytes,
            FileState::Absent | FileState::Long { .. } => &[],
        };
        let mut header = serde_json::to_vec(&facts)?;
        if header.len() as u64 >= HEADER {
            return Err(Fault::invalid("the path is too long to be kept"));
        }
        header.push(b'\n');
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let room = header.len() as u64 + bytes.len() as u64;
        let last = self.prune(room)?;
        let at_ms = now_ms().max(last + 1);
        let name = Name {
            at_ms,
            session: short(facts.session.as_str()),
            stage: ChangeStage::Begun,
            file: PathBuf::new(),
        };
        let file = self.folder.join(name.text());
        let written = (|| {
            let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
            out.write_all(&header)?;
            out.write_all(bytes)?;
            out.sync_all()?;
            File::open(&self.folder)?.sync_all()
        })();
        match written {
            Ok(()) => Ok(KeptChange { at_ms, stage: ChangeStage::Begun, file, facts }),
            Err(error) => {
                // What is left of it is of no use; the fault that matters is the first.
                let _ = fs::remove_file(&file);
                Err(error.into())
            }
        }
    }

    /// Says how far a change came.
    pub fn advance(&self, change: &KeptChange, stage: ChangeStage) -> Result<KeptChange, Fault> {
        let session = short(change.facts.session.as_str());
        let name = Name { at_ms: change.at_ms, session, stage: stage.clone(), file: PathBuf::new() };
        let file = self.folder.join(name.text());
        fs::rename(&change.file, &file)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(KeptChange { file, stage, ..change.clone() })
    }

    /// Forgets a change that was not made.
    pub fn forget(&self, change: &KeptChange) -> Result<(), Fault> {
        Ok(fs::remove_file(&change.file)?)
    }

    /// The changes of a conversation, the latest first, at most so many.
    pub fn of(&self, session: &SessionId, most: usize) -> Result<Vec<KeptChange>, Fault> {
        let wanted = short(session.as_str());
        let mut found = Vec::new();
        for name in self.names()?.iter().rev().filter(|name| name.session == wanted) {
            // What cannot be read can neither be told nor taken back.
            let Some(change) = read(name)? else { continue };
            if change.facts.session == *session {
                found.push(change);
            }
            if found.len() == most {
                break;
            }
        }
        Ok(found)
    }

    /// The change that a call made, or the one that it took back.
    pub fn by_effect(&self, effect: &EffectId) -> Result<Option<KeptChange>, Fault> {
        let by = short(effect.as_str());
        for name in self.names()?.iter().rev() {
            let took_back =
                matches!(&name.stage, ChangeStage::Undoing(call) | ChangeStage::Undone(call) if *call == by);
            if let Some(change) = read(name)?
                && (took_back || change.facts.effect == *effect)
            {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    /// Makes room for so many bytes more; the time of the latest change.
    fn prune(&self, room: u64) -> Result<u64, Fault> {
        let names = self.names()?;
        let oldest = now_ms().saturating_sub(self.bounds.days * DAY_MS);
        let sizes = names.iter().map(|name| fs::metadata(&name.file).map_or(0, |found| found.len()));
        let sizes: Vec<u64> = sizes.collect();
        let mut bytes = sizes.iter().sum::<u64>().saturating_add(room);
        let mut left = names.len() + 1;
        for (name, size) in names.iter().zip(sizes) {
            if bytes <= self.bounds.bytes && left <= CHANGES && name.at_ms >= oldest {
                break;
            }
            fs::remove_file(&name.file)?;
            bytes -= size;
            left -= 1;
        }
        Ok(names.last().map_or(0, |name| name.at_ms))
    }

    /// All of them, the oldest first. What somebody else put there is passed over.
    fn names(&self) -> Result<Vec<Name>, Fault> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            names.extend(Name::parse(&entry.file_name().to_string_lossy(), entry.path()));
        }
        names.sort_by_key(|name| name.at_ms);
        Ok(names)
    }
}

/// The name of a file, read.
struct Name {
    at_ms: u64,
    session: String,
    stage: ChangeStage,
    file: PathBuf,
}

impl Name {
    fn parse(name: &str, file: PathBuf) -> Option<Self> {
        let mut parts = name.splitn(3, '.');
        let (at_ms, session, how) = (parts.next()?.parse().ok()?, parts.next()?.to_owned(), parts.next()?);
        let stage = match how.split_once('-') {
            None if how == "begun" => ChangeStage::Begun,
            None if how == "done" => ChangeStage::Done,
            Some(("undoing", by)) => ChangeStage::Undoing(by.to_owned()),
            Some(("undone", by)) => ChangeStage::Undone(by.to_owned()),
            _ => return None,
        };
        Some(Self { at_ms, session, stage, file })
    }

    fn text(&self) -> String {
        let how = match &self.stage {
            ChangeStage::Begun => "begun".to_owned(),
            ChangeStage::Done => "done".to_owned(),
            ChangeStage::Undoing(by) => format!("undoing-{by}"),
            ChangeStage::Undone(by) => format!("undone-{by}"),
        };
        format!("{}.{}.{how}", self.at_ms, self.session)
    }
}

/// The change in a file; none where it cannot be read.
fn read(name: &Name) -> Result<Option<KeptChange>, Fault> {
    let file = match File::open(&name.file) {
        // Let go meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut header = Vec::new();
    BufReader::new(file).take(HEADER).read_until(b'\n', &mut header)?;
    let Ok(facts) = serde_json::from_slice(&header) else { return Ok(None) };
    let (at_ms, stage) = (name.at_ms, name.stage.clone());
    Ok(Some(KeptChange { at_ms, stage, file: name.file.clone(), facts }))
}

/// An id as a part of a name: what it is made of may stand in none.
pub fn short(id: &str) -> String {
    /// Digits by which no two are taken for each other but by intent.
    const DIGITS: usize = 16;
    let mut hash = hash(id.as_bytes());
    hash.truncate(DIGITS);
    hash
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
