use std::{
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
};

use rustix::fs::mknodat;

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

/// The data folder of an extension, and beside it what is not the extension's to read.
fn exchanged() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let home = tempfile::tempdir().expect("a folder");
    let (data, run) = (home.path().join("data/one"), home.path().join("run"));
    for folder in [&data.join("real/sub"), &run] {
        fs::create_dir_all(folder).expect("a folder");
    }
    fs::write(run.join("token"), "secret").expect("a file");
    fs::write(data.join("real/sub/token"), "own").expect("a file");
    (home, data, run)
}

fn texts(folder: &Path) -> Vec<String> {
    let inside = |entry: fs::DirEntry| match entry.path().is_dir() {
        true => texts(&entry.path()),
        false => fs::read_to_string(entry.path()).into_iter().collect(),
    };
    fs::read_dir(folder).into_iter().flatten().flatten().flat_map(inside).collect()
}

#[test]
fn what_is_exchanged_for_a_link_while_it_is_copied_is_never_followed() {
    let (home, data, run) = exchanged();
    let (real, link) = (data.join("real/sub"), data.join("link"));
    symlink(&run, &link).expect("a link");
    let draft = data.join("real");
    let over = std::sync::atomic::AtomicBool::new(false);
    let mut taken = 0;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE);
            }
        });
        for number in 0..1000 {
            let to = home.path().join("to").join(number.to_string());
            // The whole draft, and the part that is exchanged as if it were the draft.
            let from = if number % 2 == 0 { draft.clone() } else { draft.join("sub") };
            fs::create_dir_all(home.path().join("to")).expect("a folder");
            taken += usize::from(copy_beneath(&data, &from, &to).is_ok());
            assert!(!texts(&to).contains(&"secret".to_owned()), "try {number}");
            let _ = fs::remove_dir_all(&to);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(taken > 0, "some found the folder");
}

#[test]
fn nothing_but_what_lies_beneath_the_root_without_links_is_copied() {
    let (home, data, run) = exchanged();
    symlink(&run, data.join("out")).expect("a link");
    symlink("real", data.join("in")).expect("a link");
    let to = home.path().join("to");
    copy_beneath(&data, &data.join("real"), &to).expect("it is its own");
    assert_eq!(texts(&to), ["own"]);
    for bad in ["out", "out/token", "in/sub", "../../run", "real/../../../run", "", ".", "nothing"] {
        let to = home.path().join("bad");
        assert!(copy_beneath(&data, &data.join(bad), &to).is_err() && !to.exists(), "{bad}");
    }
    for bad in [&run, Path::new("/etc/passwd"), Path::new("real")] {
        let error = copy_beneath(&data, bad, &home.path().join("bad")).expect_err("it lies elsewhere");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{}", bad.display());
    }
}

#[test]
fn what_is_placed_stays_beneath_the_root_and_takes_no_name_twice() {
    let (home, data, run) = exchanged();
    symlink(&run, data.join("out")).expect("a link");
    symlink(run.join("new"), data.join("dangling")).expect("a link");
    let made = || {
        let made = home.path().join("made");
        fs::create_dir_all(&made).expect("a folder");
        made
    };
    place_beneath(&made(), &data, &data.join("real/new")).expect("there is room");
    place_beneath(&made(), &data, &data.join("new")).expect("there is room");
    for bad in ["out/new", "dangling", "real/new", "none/new", "../two", ""] {
        assert!(place_beneath(&made(), &data, &data.join(bad)).is_err(), "{bad}");
    }
    assert!(data.join("real/new").is_dir() && data.join("new").is_dir());
    assert_eq!(fs::read_dir(&run).expect("a folder").count(), 1, "only the token");
}
