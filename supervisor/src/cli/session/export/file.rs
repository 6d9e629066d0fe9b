//! A file that holds what was said in private: for its owner alone, and never by accident over another one.

use std::{
    fmt::Display,
    fs,
    io::{self, BufWriter, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::cli::failure::{Failure, status};

/// Refuses where there is something already.
pub fn refuse_existing(file: &Path) -> Result<(), Failure> {
    match file.symlink_metadata() {
        Ok(_) => Err(exists(file)),
        Err(_) => Ok(()),
    }
}

/// The system follows no more of them in a row.
const MOST_LINKS: usize = 40;

/// Makes a file, and has it filled. With `force` it takes the place of another one, as a whole and with rights of its
/// own: of the one that a symbolic link leads to, and of no pipe or device, which is written to. Gives how many bytes were
/// written. What fails leaves no file behind.
pub fn write(
    file: &Path,
    force: bool,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    if !force {
        return make(file, file, fill);
    }
    let whole = end_of_links(file);
    match file.metadata() {
        Ok(found) if !is_replaceable(&found, &whole) => return pour(file, fill),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(file, &error)),
        _ => {}
    }
    let mut part = whole.as_os_str().to_owned();
    part.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let part = Path::new(&part);
    let size = make(part, file, fill)?;
    fs::rename(part, &whole).map_err(|error| {
        let _ = fs::remove_file(part);
        failed(file, &error)
    })?;
    Ok(size)
}

/// The path to which symbolic links lead; there need not be anything.
fn end_of_links(file: &Path) -> PathBuf {
    let mut end = file.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(next) = fs::read_link(&end) else { break };
        end = end.parent().map_or_else(|| next.clone(), |folder| folder.join(&next));
    }
    end
}

/// Whether what was found is a regular file, and the one at this path: a descriptor's link below `/proc` may lead to a
/// file without one.
fn is_replaceable(found: &fs::Metadata, path: &Path) -> bool {
    let place = |found: &fs::Metadata| (found.dev(), found.ino());
    found.is_file() && path.symlink_metadata().is_ok_and(|there| place(&there) == place(found))
}

/// Fills what is there and stays: a pipe, a device.
fn pour(file: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>) -> Result<u64, Failure> {
    let opened = fs::OpenOptions::new().write(true).truncate(true).open(file);
    let opened = opened.map_err(|error| failed(file, &error))?;
    filled(opened, file, fill)
}

/// Makes `part`, which is to be `file`.
fn make(
    part: &Path,
    file: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(part);
    let made = made.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(file),
        _ => failed(file, &error),
    })?;
    filled(made, file, fill).inspect_err(|_| {
        // Half an export is of no use.
        let _ = fs::remove_file(part);
    })
}

/// Has what was opened for `file` filled; how many bytes that were.
fn filled(
    opened: fs::File,
    file: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut out = BufWriter::new(CountingWriter { file: opened, bytes: 0 });
    let filled = fill(&mut out).and_then(|()| Ok(out.flush()?));
    match filled {
        Ok(()) => Ok(out.get_ref().bytes),
        Err(failure) if failure.status == status::IO => Err(failed(file, &failure)),
        Err(failure) => Err(failure),
    }
}

/// Counts what is written: a pipe or a device has no size that would tell.
struct CountingWriter {
    file: fs::File,
    bytes: u64,
}

impl Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn exists(file: &Path) -> Failure {
    let message = format!("`{}` exists already", file.display());
    Failure::new(status::CANNOT_CREATE, message).help("name another file, or replace it with `--force`")
}

fn failed(file: &Path, error: &impl Display) -> Failure {
    let message = format!("`{}` cannot be written: {error}", file.display());
    Failure::new(status::CANNOT_CREATE, message).help("name a file in a folder that exists and that is yours")
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::unix::fs::{FileTypeExt, PermissionsExt, symlink},
    };

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn mode(file: &Path) -> u32 {
        fs::metadata(file).expect("a file").permissions().mode() & 0o777
    }

    fn text(content: &'static str) -> impl FnOnce(&mut dyn Write) -> Result<(), Failure> {
        move |out| Ok(out.write_all(content.as_bytes())?)
    }

    #[test]
    fn an_export_is_for_its_owner_alone_and_takes_no_file_by_accident() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("out.json");
        refuse_existing(&file).expect("there is none yet");
        assert_eq!(write(&file, false, text("one")).expect("it is written"), 3);
        assert_eq!(mode(&file), 0o600);
        for refused in [refuse_existing(&file), write(&file, false, text("two")).map(drop)] {
            assert_eq!(refused.expect_err("it exists").status, 73);
        }
        assert_eq!(fs::read(&file).expect("a file"), b"one");
    }

    #[test]
    fn a_replaced_file_does_not_keep_the_rights_of_the_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("out.json");
        fs::write(&file, "old").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("rights");
        write(&file, true, text("new")).expect("it is replaced");
        assert_eq!((mode(&file), fs::read(&file).expect("a file")), (0o600, b"new".to_vec()));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
    }

    #[test]
    fn a_pipe_is_written_to_and_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        // Open both ways, so that neither side waits for the other.
        let mut reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).expect("a pipe");
        assert_eq!(write(&pipe, true, text("whole")).expect("it is written"), 5);
        assert!(fs::symlink_metadata(&pipe).expect("it is there").file_type().is_fifo());
        let mut read = [0; 5];
        reader.read_exact(&mut read).expect("it was written");
        assert_eq!(&read, b"whole");
        assert_eq!(write(&pipe, false, text("x")).expect_err("it exists").status, 73);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
    }

    #[test]
    fn a_device_that_takes_nothing_says_so_and_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("full");
        symlink("/dev/full", &link).expect("a link");
        let failure = write(&link, true, text("x")).expect_err("it is full");
        assert_eq!(failure.status, 73);
        assert!(failure.to_string().contains("No space left"), "{failure}");
        assert!(fs::metadata(&link).expect("it is there").file_type().is_char_device());
        assert!(link.is_symlink());
    }

    #[test]
    fn a_symbolic_link_is_followed_to_the_file_that_is_replaced_or_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let (below, link) = (folder.path().join("below"), folder.path().join("link"));
        fs::create_dir(&below).expect("a folder");
        symlink("below/second", &link).expect("a link");
        symlink("file", below.join("second")).expect("a link");
        for content in ["made", "replaced"] {
            write(&link, true, text(content)).expect("it is written");
            let file = below.join("file");
            assert_eq!(fs::read(&file).expect("a file"), content.as_bytes());
            assert!(link.is_symlink() && below.join("second").is_symlink() && !file.is_symlink());
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("rights");
        }
        write(&link, true, text("private")).expect("it is written");
        assert_eq!(mode(&below.join("file")), 0o600);
        assert_eq!(fs::read_dir(&below).expect("a folder").count(), 2, "nothing else is left");
        for (from, to) in [("round", "round"), ("folder", "below")] {
            symlink(to, folder.path().join(from)).expect("a link");
            let failure = write(&folder.path().join(from), true, text("x")).expect_err("it is no file");
            assert_eq!(failure.status, 73, "{failure}");
            assert!(folder.path().join(from).is_symlink());
        }
    }

    #[test]
    fn a_file_that_has_no_path_any_more_is_written_to() {
        let mut gone = tempfile::tempfile().expect("a file");
        gone.write_all(b"older and longer").expect("it is written");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&gone));
        write(Path::new(&path), true, text("new")).expect("it is written");
        assert_eq!(fs::read(&path).expect("it is open"), b"new");
    }

    #[test]
    fn what_fails_in_the_middle_leaves_no_file_and_keeps_the_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("out.json");
        let fails = |force, error: Failure| {
            let half = |out: &mut dyn Write| {
                out.write_all(b"half")?;
                Err(error)
            };
            write(&file, force, half).expect_err("it fails")
        };
        assert_eq!(fails(false, Failure::new(status::LATER, "the kernel is away")).status, status::LATER);
        assert!(!file.exists());
        fs::write(&file, "old").expect("a file");
        let full = fails(true, io::Error::other("the disk is full").into());
        assert!(full.to_string().contains("out.json` cannot be written: the disk is full"), "{full}");
        assert_eq!(fs::read(&file).expect("a file"), b"old");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("none/out.json");
        for force in [false, true] {
            let failure = write(&file, force, text("x")).expect_err("there is no folder");
            assert!(failure.to_string().contains("none/out.json"), "{failure}");
            assert_eq!(failure.status, 73);
        }
    }
}
