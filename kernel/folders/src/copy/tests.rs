use std::{
    fs::File,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        place.write("manifest.yaml", "id: one");
        place
    }

    fn from(&self) -> PathBuf {
        self.0.path().join("from")
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.from().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn copy(&self, to: &str) -> io::Result<PathBuf> {
        let to = self.0.path().join(to);
        copy(&self.from(), &to).map(|()| to)
    }

    fn refused(&self, named: &str) {
        let error = self.copy(named.split(' ').next().unwrap_or_default()).expect_err(named).to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn a_folder_is_copied_without_hidden_names_and_what_cargo_builds() {
    let place = Place::new();
    for name in ["sub/deep/a", ".git/HEAD", "target/release/x", "sub/.b", "sub/target/c"] {
        place.write(name, "x");
    }
    let program = place.from().join("sub/deep/a");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("executable");
    let to = place.copy("to").expect("copied");
    for name in ["manifest.yaml", "sub/deep/a", "sub/target/c"] {
        assert!(to.join(name).is_file(), "{name}");
    }
    for name in [".git", "target", "sub/.b"] {
        assert!(!to.join(name).exists(), "{name}");
    }
    let mode = |name: &str| fs::metadata(to.join(name)).expect("copied").permissions().mode() & 0o777;
    assert_eq!((mode("sub/deep/a"), mode("manifest.yaml")), (0o700, 0o600));
}

#[test]
fn a_single_file_is_copied() {
    let place = Place::new();
    let to = place.0.path().join("one.md");
    copy(&place.from().join("manifest.yaml"), &to).expect("copied");
    assert_eq!(fs::read_to_string(&to).expect("a file"), "id: one");
    assert!(copy(&place.from().join("manifest.yaml"), &to).is_err(), "nothing is written over");
}

#[test]
fn what_is_neither_folder_nor_file_is_refused() {
    let place = Place::new();
    symlink("manifest.yaml", place.from().join("x")).expect("a link");
    place.refused("a symbolic link");
    fs::remove_file(place.from().join("x")).expect("removed");
    mknodat(CWD, place.from().join("x"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    place.refused("a named pipe");
}

#[test]
fn what_is_over_a_bound_is_refused() {
    let many = Place::new();
    (1..ENTRIES).for_each(|at| many.write(&at.to_string(), ""));
    many.copy("at the bound").expect("copied");
    many.write("one more", "");
    many.refused("more than 256 files");
    let large = Place::new();
    let size = |bytes| File::create(large.from().join("x")).and_then(|f| f.set_len(bytes)).expect("a file");
    size(BYTES - "id: one".len() as u64);
    large.copy("at the bound").expect("copied");
    size(BYTES);
    large.refused("more than 64 MiB");
    let deep = Place::new();
    deep.write(&format!("{}x", "d/".repeat(DEPTH)), "");
    deep.copy("at the bound").expect("copied");
    deep.write(&format!("{}x", "d/".repeat(DEPTH + 1)), "");
    deep.refused("deeper than 16");
}
