//! A file that holds what was said in private: for its owner alone, and never by accident over another one.

use std::{
    fs,
    io::{self, Write},
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

/// Writes a file. With `force` it takes the place of another one, as a whole and with rights of its own.
pub fn write(file: &Path, content: &[u8], force: bool) -> Result<(), Failure> {
    if !force {
        return make(file, content).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(file),
            _ => failed(file, &error),
        });
    }
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let part = Path::new(&part);
    make(part, content).and_then(|()| fs::rename(part, file)).map_err(|error| {
        // It is not there if it could not be made.
        let _ = fs::remove_file(part);
        failed(file, &error)
    })
}

fn make(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    made.write_all(content).inspect_err(|_| {
        // Half of an export is none.
        let _ = fs::remove_file(file);
    })
}

fn exists(file: &Path) -> Failure {
    let message = format!("`{}` exists already", file.display());
    Failure::new(status::CANNOT_CREATE, message).help("name another file, or replace it with `--force`")
}

fn failed(file: &Path, error: &io::Error) -> Failure {
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

    #[test]
    fn an_export_is_for_its_owner_alone_and_takes_no_file_by_accident() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("out.json");
        refuse_existing(&file).expect("there is none yet");
        write(&file, b"one", false).expect("it is written");
        assert_eq!(mode(&file), 0o600);
        for refused in [refuse_existing(&file), write(&file, b"two", false)] {
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
        write(&file, b"new", true).expect("it is replaced");
        assert_eq!((mode(&file), fs::read(&file).expect("a file")), (0o600, b"new".to_vec()));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("none/out.json");
        for force in [false, true] {
            let failure = write(&file, b"x", force).expect_err("there is no folder");
            assert!(failure.to_string().contains("none/out.json"), "{failure}");
            assert_eq!(failure.status, 73);
        }
    }
}
