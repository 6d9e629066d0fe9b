//! A file that holds what was said in private: for its owner alone, and never by accident over another one.

use std::{
    fmt::Display,
    fs,
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use crate::cli::failure::{Failure, status};

/// Refuses where there is something already.
pub fn refuse_existing(file: &Path) -> Result<(), Failure> {
    match file.symlink_metadata() {
        Ok(_) => Err(exists(file)),
        Err(_) => Ok(()),
    }
}

/// Makes a file, and has it filled. With `force` it takes the place of another one, as a whole and with rights of its
/// own. Gives its size in bytes. What fails leaves no file behind.
pub fn write(
    file: &Path,
    force: bool,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    if !force {
        return make(file, file, fill);
    }
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let part = Path::new(&part);
    let size = make(part, file, fill)?;
    fs::rename(part, file).map_err(|error| {
        let _ = fs::remove_file(part);
        failed(file, &error)
    })?;
    Ok(size)
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
    let mut out = BufWriter::new(made);
    let filled = fill(&mut out).and_then(|()| {
        out.flush()?;
        Ok(out.get_ref().metadata()?.len())
    });
    filled.map_err(|failure| {
        // Half of an export is none.
        let _ = fs::remove_file(part);
        if failure.status == status::IO { failed(file, &failure) } else { failure }
    })
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
    use std::os::unix::fs::PermissionsExt;

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
