//! What the supervisor remembers: `HOME/state`.
//!
//! Plain files, because this must be readable when the journal is not. A write that fails costs the memory of one
//! thing and never the supervision.

use std::{
    collections::VecDeque,
    fs,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use drupe_extension_api::control::ExitRecord;
use drupe_link::Home;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ledger::{self, CrashLedger};

/// Exits that `status` shows.
const EXITS: usize = 10;
/// Size at which the log is set aside; one older log is kept.
const LOG: u64 = 512 * 1024;
/// The ledger of extensions that crash.
const LEDGER: &str = "quarantine.json";
/// The name of the last set of extensions with which a kernel became ready, and its longest.
const GOOD_EXTENSIONS: &str = "extensions.good";
const NAME: usize = 128;
/// What is read of a log at the start: ten exits with all their lines fit.
const READ: u64 = 256 * 1024;

/// One line of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry {
    Begin { time: Timestamp, pid: u32, version: String },
    Start { time: Timestamp, generation: u64, pid: u32, safe_mode: bool },
    Ready { time: Timestamp, generation: u64, after_ms: u64 },
    Exit(ExitRecord),
    Note { time: Timestamp, text: String },
    End { time: Timestamp, status: u8 },
}

/// The memory of a home.
#[derive(Debug)]
pub struct Record {
    folder: PathBuf,
    generation: u64,
    exits: VecDeque<ExitRecord>,
}

impl Record {
    /// Reads what is there. Damaged lines and files are skipped: a memory with holes is better than no start.
    pub fn open(home: &Home) -> Self {
        let folder = home.state();
        let mut record = Self { folder, generation: 0, exits: VecDeque::new() };
        for log in [record.old_log(), record.log()] {
            for line in tail(&log).unwrap_or_default().lines() {
                match serde_json::from_str(line) {
                    Ok(Entry::Exit(exit)) => record.remember(exit),
                    Ok(Entry::Start { generation, .. }) => {
                        record.generation = record.generation.max(generation)
                    }
                    _ => {}
                }
            }
        }
        // The log may have been deleted, the number torn by a power loss: the higher one is right.
        let counter = fs::read_to_string(record.folder.join("generation")).ok();
        let counter = counter.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        record.generation = record.generation.max(counter);
        record
    }

    /// The number of the next start.
    pub fn next_generation(&mut self) -> (u64, io::Result<()>) {
        self.generation += 1;
        let written = self.replace("generation", format!("{}\n", self.generation).as_bytes());
        (self.generation, written)
    }

    /// The number of the last start.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The last ends of kernels, newest first.
    pub fn exits(&self) -> Vec<ExitRecord> {
        self.exits.iter().cloned().collect()
    }

    /// Keeps a configuration with which a kernel became ready.
    pub fn keep_config(&self, home: &Home, text: &str) -> io::Result<()> {
        if fs::read(home.good_config()).is_ok_and(|known| known == text.as_bytes()) {
            return Ok(());
        }
        self.replace("drupe.good.yaml", text.as_bytes())
    }

    /// Keeps the name of a set of extensions with which a kernel became ready: a word of at most 128 characters.
    pub fn keep_extensions(&self, name: &str) -> io::Result<()> {
        if self.good_extensions().is_some_and(|known| known == name) {
            return Ok(());
        }
        self.replace(GOOD_EXTENSIONS, format!("{name}\n").as_bytes())
    }

    /// The last name that was kept, if it can be read.
    pub fn good_extensions(&self) -> Option<String> {
        let text = fs::read_to_string(self.folder.join(GOOD_EXTENSIONS)).ok()?;
        let name = text.trim_end();
        is_name(name).then(|| name.to_owned())
    }

    pub fn keep_ledger(&self, ledger: &CrashLedger) -> io::Result<()> {
        self.replace(LEDGER, &ledger.to_bytes()?)
    }

    /// The ledger as it was kept; an empty one with a remark for the operator if that cannot be read.
    pub fn ledger(&self) -> (CrashLedger, Option<String>) {
        let path = self.folder.join(LEDGER);
        let damaged = |error: &str| {
            let path = path.display();
            let text =
                format!("`{path}` {error}: which extensions have crashed, and are quarantined, is forgotten");
            (CrashLedger::default(), Some(text))
        };
        let mut bytes = Vec::new();
        // One byte more than is accepted, so that a longer file is not mistaken for its beginning.
        let read =
            fs::File::open(&path).and_then(|file| file.take(ledger::FILE as u64 + 1).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (CrashLedger::default(), None),
            Err(error) => damaged(&format!("cannot be read ({error})")),
            Ok(_) => CrashLedger::read(&bytes).map_or_else(|| damaged("is damaged"), |ledger| (ledger, None)),
        }
    }

    pub fn write(&mut self, entry: Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        if let Entry::Exit(exit) = entry {
            self.remember(exit);
        }
        let path = self.log();
        if fs::metadata(&path).is_ok_and(|found| found.len() + line.len() as u64 > LOG) {
            fs::rename(&path, self.old_log())?;
        }
        fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?.write_all(&line)
    }

    fn remember(&mut self, exit: ExitRecord) {
        self.exits.push_front(exit);
        self.exits.truncate(EXITS);
    }

    /// Replaces a file so that a reader, a crash or a power loss finds the old or the new one, whole.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let fresh = self.folder.join(format!("{name}.new"));
        let options = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh);
        let mut file = options?;
        file.write_all(bytes)?;
        // The content before the name, and the name before anybody relies on it.
        file.sync_all()?;
        fs::rename(&fresh, self.folder.join(name))?;
        fs::File::open(&self.folder)?.sync_all()
    }

    fn log(&self) -> PathBuf {
        self.folder.join("supervisor.log")
    }

    fn old_log(&self) -> PathBuf {
        self.folder.join("supervisor.log.1")
    }
}

/// Whether it is a word that can stand in a message: what names a set of extensions is the kernel's affair.
pub fn is_name(text: &str) -> bool {
    (1..=NAME).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The end of a file, from the beginning of a line.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(READ)))?;
    let mut bytes = Vec::new();
    file.take(READ).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if length <= READ {
        return Ok(text);
    }
    Ok(text.split_once('\n').map(|(_, whole)| whole.to_owned()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path()).unwrap();
        (folder, home)
    }

    fn exit(generation: u64) -> Entry {
        let how = "exit status 1".to_owned();
        let last_lines = vec!["z".repeat(300); 40];
        Entry::Exit(ExitRecord {
            time: Timestamp::UNIX_EPOCH,
            pid: 1,
            generation,
            how,
            crash: true,
            last_lines,
            blamed: Vec::new(),
        })
    }

    fn generations(record: &Record) -> Vec<u64> {
        record.exits().iter().map(|exit| exit.generation).collect()
    }

    #[test]
    fn the_last_ten_exits_survive_and_the_log_stays_small() {
        let (_folder, home) = home();
        let mut record = Record::open(&home);
        for generation in 1..=200 {
            record.write(exit(generation)).unwrap();
        }
        let newest: Vec<u64> = (191..=200).rev().collect();
        assert_eq!(generations(&record), newest);
        assert_eq!(generations(&Record::open(&home)), newest);
        for log in ["supervisor.log", "supervisor.log.1"] {
            assert!(fs::metadata(home.state().join(log)).unwrap().len() <= LOG);
        }
    }

    #[test]
    fn generations_go_on_whichever_file_is_lost() {
        for lost in ["generation", "supervisor.log"] {
            let (_folder, home) = home();
            let mut record = Record::open(&home);
            for expected in 1..=3 {
                let (generation, written) = record.next_generation();
                written.unwrap();
                assert_eq!(generation, expected);
                let start =
                    Entry::Start { time: Timestamp::UNIX_EPOCH, generation, pid: 1, safe_mode: false };
                record.write(start).unwrap();
            }
            fs::write(home.state().join(lost), "\0\0 damaged").unwrap();
            assert_eq!(Record::open(&home).next_generation().0, 4, "without {lost}");
        }
    }

    #[test]
    fn the_name_of_a_set_of_extensions_is_kept_and_what_is_none_is_not() {
        let (_folder, home) = home();
        let record = Record::open(&home);
        assert_eq!(record.good_extensions(), None);
        record.keep_extensions("set-1").unwrap();
        assert_eq!(Record::open(&home).good_extensions(), Some("set-1".to_owned()));
        for damaged in ["", "two words", "\0", &"x".repeat(NAME + 1)] {
            fs::write(home.state().join(GOOD_EXTENSIONS), damaged).unwrap();
            assert_eq!(record.good_extensions(), None, "{damaged:?}");
        }
    }

    #[test]
    fn a_ledger_that_cannot_be_read_is_an_empty_one_with_a_remark() {
        let (_folder, home) = home();
        let record = Record::open(&home);
        assert_eq!(record.ledger(), (CrashLedger::default(), None));
        record.keep_ledger(&CrashLedger::default()).unwrap();
        assert_eq!(record.ledger(), (CrashLedger::default(), None));
        let path = home.state().join(LEDGER);
        for damaged in [b"{".to_vec(), b"\xff".to_vec(), vec![b' '; 2 * ledger::FILE]] {
            fs::write(&path, damaged).unwrap();
            let (found, remark) = record.ledger();
            assert_eq!(found, CrashLedger::default());
            assert!(remark.unwrap().contains("is damaged"));
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(record.ledger().1.unwrap().contains("cannot be read"));
    }

    #[test]
    fn a_disk_that_cannot_be_written_forgets_nothing_that_is_in_memory() {
        let (_folder, home) = home();
        let mut record = Record::open(&home);
        fs::remove_dir_all(home.state()).unwrap();
        assert!(record.write(exit(1)).is_err());
        assert_eq!(generations(&record), [1]);
        let (first, _) = record.next_generation();
        let (second, written) = record.next_generation();
        assert!(written.is_err() && second == first + 1);
    }
}
