//! The log as a file of the home that is begun anew when it is large, where the configuration asks for it.
//!
//! The supervisor alone writes it, a whole line at a time, so no line is torn and nobody holds a file that was put aside. A disk that is
//! full, or a file that cannot be written, costs lines and nothing else.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::PathBuf,
};

use drupe_link::LogFileSpec;
use rustix::fs::OFlags;

/// Its name in `HOME/state`. Older ones have a number behind it, the newest of them 1.
pub const NAME: &str = "drupe.log";
/// A line that is longer is written in pieces.
const LONGEST_LINE: usize = 64 * 1024;
/// The most older files that anybody can ask for.
const MOST_KEPT: u32 = 100;

#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    spec: LogFileSpec,
    /// None before the first line, and after a failure.
    file: Option<File>,
    size: u64,
    /// The beginning of a line of the kernel's.
    line: Vec<u8>,
    /// Bytes that were not written since it failed.
    lost: u64,
}

impl LogFile {
    pub fn new(folder: PathBuf, spec: LogFileSpec) -> Self {
        Self { path: folder.join(NAME), spec, file: None, size: 0, line: Vec::new(), lost: 0 }
    }

    /// Another size and number from now on.
    pub fn set(&mut self, spec: LogFileSpec) {
        self.spec = spec;
    }

    /// A line of the supervisor's. Gives what is to be said of the file itself, where it begins to fail or can be written again.
    pub fn say(&mut self, line: &[u8]) -> Option<String> {
        self.write(line)
    }

    /// Bytes of the kernel's, of which whole lines are written.
    pub fn pass(&mut self, bytes: &[u8]) -> Option<String> {
        self.line.extend_from_slice(bytes);
        let whole = self.line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole = if whole == 0 && self.line.len() > LONGEST_LINE {
            self.line.push(b'\n');
            self.line.len()
        } else {
            whole
        };
        let rest = self.line.split_off(whole);
        let lines = std::mem::replace(&mut self.line, rest);
        let mut failed = None;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            failed = self.write(line).or(failed);
        }
        failed
    }

    /// What a kernel that ended left of a line.
    pub fn end_line(&mut self) -> Option<String> {
        if self.line.is_empty() {
            return None;
        }
        self.pass(b"\n")
    }

    fn write(&mut self, line: &[u8]) -> Option<String> {
        let lost = self.lost;
        match self.try_write(line) {
            Ok(()) => {
                self.lost = 0;
                (lost > 0).then(|| format!("{lost} bytes of the log are lost: its file could not be written"))
            }
            Err(error) => {
                self.file = None;
                self.lost += line.len() as u64;
                let path = self.path.display();
                (lost == 0).then(|| format!("the log cannot be written to `{path}`: {error}"))
            }
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_there() {
            self.open()?;
        }
        if self.size > 0 && self.size + bytes.len() as u64 > self.spec.max_bytes {
            self.begin_anew()?;
        }
        let Some(file) = &mut self.file else { return Err(ErrorKind::NotFound.into()) };
        match file.write_all(bytes) {
            Ok(()) => self.size += bytes.len() as u64,
            Err(error) => {
                // What came of the line is cut off, so that the next one begins a line.
                let _ = file.set_len(self.size);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the open file is the one of that name: somebody may have moved it away.
    fn is_there(&self) -> bool {
        let of = |found: fs::Metadata| (found.dev(), found.ino());
        let open = self.file.as_ref().and_then(|file| file.metadata().ok()).map(of);
        open.is_some() && open == fs::symlink_metadata(&self.path).ok().map(of)
    }

    fn open(&mut self) -> io::Result<()> {
        self.file = None;
        // A link would lead out of the home, and a pipe nobody reads would hold the supervisor up.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(i32::try_from(flags.bits()).unwrap_or_default())
            .open(&self.path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        if found.mode() & 0o077 != 0 {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        self.size = found.len();
        self.file = Some(file);
        Ok(())
    }

    /// Puts the file aside and begins another. Where it cannot be put aside its lines are given up: it has a bound.
    fn begin_anew(&mut self) -> io::Result<()> {
        let older = |number: u32| self.path.with_file_name(format!("{NAME}.{number}"));
        for number in self.spec.keep + 1..=MOST_KEPT {
            if fs::remove_file(older(number)).is_err() {
                break;
            }
        }
        for number in (1..self.spec.keep).rev() {
            // Most of them are not there at first.
            let _ = fs::rename(older(number), older(number + 1));
        }
        if self.spec.keep > 0 {
            let _ = fs::rename(&self.path, older(1));
        }
        self.open()?;
        if let Some(file) = self.file.as_ref().filter(|_| self.size > 0) {
            file.set_len(0)?;
            self.size = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use super::*;

    fn log(folder: &tempfile::TempDir, max_bytes: u64, keep: u32) -> LogFile {
        LogFile::new(folder.path().to_owned(), LogFileSpec { max_bytes, keep })
    }

    fn content(folder: &tempfile::TempDir, name: &str) -> Option<String> {
        fs::read_to_string(folder.path().join(name)).ok()
    }

    #[test]
    fn a_large_file_is_put_aside_whole_lines_at_a_time_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log(&folder, 20, 2);
        for number in 0..9 {
            // In pieces, between which the supervisor says something.
            assert_eq!(log.pass(format!("kernel {number}").as_bytes()), None);
            assert_eq!(log.say(b"super\n"), None);
            assert_eq!(log.pass(b"!\n"), None);
        }
        let read = |name: &str| content(&folder, name).unwrap();
        assert_eq!(read("drupe.log"), "super\nkernel 8!\n");
        assert_eq!(read("drupe.log.1"), "super\nkernel 7!\n");
        assert_eq!(read("drupe.log.2"), "super\nkernel 6!\n");
        assert_eq!(content(&folder, "drupe.log.3"), None);
        let mode = fs::metadata(folder.path().join("drupe.log")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        log.set(LogFileSpec { max_bytes: 20, keep: 0 });
        log.say(b"alone\n");
        assert_eq!(read("drupe.log"), "alone\n");
        assert_eq!(content(&folder, "drupe.log.1"), None, "what is not kept any more goes");
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_again_and_what_others_may_read_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drupe.log");
        fs::write(&path, "before\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let mut log = log(&folder, 1_000, 1);
        log.say(b"one\n");
        assert_eq!(content(&folder, "drupe.log").unwrap(), "before\none\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        log.say(b"two\n");
        assert_eq!(content(&folder, "drupe.log").unwrap(), "two\n");
        log.pass(b"cut off");
        log.end_line();
        assert_eq!(content(&folder, "drupe.log").unwrap(), "two\ncut off\n");
    }

    #[test]
    fn what_cannot_be_written_is_said_once_counted_and_told_when_it_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drupe.log");
        std::os::unix::fs::symlink(folder.path().join("target"), &path).unwrap();
        let mut log = log(&folder, 1_000, 1);
        let said = log.say(b"one\n").unwrap();
        assert!(said.contains("cannot be written") && said.contains("drupe.log"), "{said}");
        assert_eq!(log.say(b"two\n"), None, "it was said");
        assert_eq!(content(&folder, "target"), None, "a link is not followed");
        fs::remove_file(&path).unwrap();
        let said = log.say(b"three\n").unwrap();
        assert!(said.starts_with("8 bytes of the log are lost"), "{said}");
        assert_eq!(content(&folder, "drupe.log").unwrap(), "three\n");
    }

    #[test]
    fn a_disk_without_room_leaves_no_part_of_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log(&folder, 1_000, 1);
        log.say(b"one\n");
        // It takes nothing, as a disk that is full.
        log.file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let found = log.file.as_mut().unwrap().write_all(b"x").unwrap_err();
        assert_eq!(found.kind(), ErrorKind::StorageFull);
        log.say(b"two\n");
        log.say(b"three\n");
        assert_eq!(
            content(&folder, "drupe.log").unwrap(),
            "one\ntwo\nthree\n",
            "it opens its own file again"
        );
    }
}
