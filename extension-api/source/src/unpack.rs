//! Writes the source of the API to disk, once for each content.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    RELEASE,
    packed::{FILES, HASH},
};

/// The name of the link to the one in use.
const CURRENT: &str = "current";

/// Writes the source of the API into `folder/<release>-<hash of the content>/` and says where that is: an absolute
/// path, if `folder` is one. `extension-api/` in there is what extensions build against.
///
/// One that is there is used as it is: it appears under this name only when it is whole. So several may unpack at the
/// same time, and extensions of an older release keep theirs.
///
/// # Errors
///
/// When `folder` cannot be made or written.
pub fn unpack(folder: &Path) -> io::Result<PathBuf> {
    let sdk = folder.join(format!("{RELEASE}-{HASH}"));
    if sdk.is_dir() {
        return Ok(sdk);
    }
    let part = folder.join(format!(".{RELEASE}-{HASH}.{}", part_name()));
    fs::create_dir_all(folder)?;
    if part.exists() {
        // The rest of a process that had the same id.
        fs::remove_dir_all(&part)?;
    }
    match write_all(&part).and_then(|()| fs::rename(&part, &sdk)) {
        Ok(()) => Ok(sdk),
        Err(error) => {
            // What is left of it is of no use; the error that matters is the first.
            let _ = fs::remove_dir_all(&part);
            // Another one was quicker.
            if sdk.is_dir() { Ok(sdk) } else { Err(error) }
        }
    }
}

/// Unpacks it, and has `folder/current` lead there from now on. That is what extensions name in their `Cargo.toml`: they go on
/// building when the home is moved, when drupe is upgraded, and when the folder was deleted and this is called again. What
/// was built before is not touched.
///
/// # Errors
///
/// When `folder` cannot be made or written.
pub fn current(folder: &Path) -> io::Result<PathBuf> {
    let sdk = unpack(folder)?;
    let (link, name) = (folder.join(CURRENT), Path::new(sdk.file_name().unwrap_or_default()));
    if fs::read_link(&link).is_ok_and(|to| to == name) {
        return Ok(link);
    }
    let part = folder.join(format!(".{CURRENT}.{}", part_name()));
    symlink(name, &part)?;
    // In one step: whoever builds meanwhile finds the earlier one or this one.
    match fs::rename(&part, &link) {
        Ok(()) => Ok(link),
        Err(error) => {
            // What is left of it is of no use; the error that matters is the first.
            let _ = fs::remove_file(&part);
            Err(error)
        }
    }
}

/// A name that no other process and no other thread gives.
fn part_name() -> String {
    static UNPACKED: AtomicU64 = AtomicU64::new(0);
    let number = UNPACKED.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}", process::id())
}

fn write_all(folder: &Path) -> io::Result<()> {
    for (path, content) in FILES {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        let mut file = File::create(path)?;
        file.write_all(content.as_bytes())?;
        // The name promises that it is whole, after a power loss, too.
        file.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_unpacked_once_and_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let sdk = unpack(&folder.path().join("sdk")).expect("it is written");
        for (path, content) in FILES {
            assert_eq!(fs::read_to_string(sdk.join(path)).expect("a file"), *content, "{path}");
        }
        // A second one leaves the first untouched.
        fs::write(sdk.join("mark"), "").expect("a file");
        assert_eq!(unpack(&folder.path().join("sdk")).expect("it is there"), sdk);
        assert!(sdk.join("mark").exists());
        let entries = fs::read_dir(folder.path().join("sdk")).expect("a folder").count();
        assert_eq!(entries, 1, "nothing else is left");
    }

    #[test]
    fn the_current_one_is_made_anew_where_it_is_gone_or_of_another_release() {
        let folder = tempfile::tempdir().expect("a folder");
        let api = |sdk: &Path| sdk.join("extension-api/Cargo.toml").is_file();
        let first = current(folder.path()).expect("it is made");
        assert!(first == folder.path().join("current") && api(&first));
        fs::remove_dir_all(first.canonicalize().expect("it leads somewhere")).expect("it is removed");
        assert!(!api(&first));
        assert!(api(&current(folder.path()).expect("it is made again")));
        fs::remove_file(&first).expect("a link");
        symlink("0.0.1-earlier", &first).expect("a link");
        assert!(api(&current(folder.path()).expect("it is made again")));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing else is left");
    }

    #[test]
    fn several_at_the_same_time_give_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let found: Vec<_> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..4).map(|_| scope.spawn(|| unpack(folder.path()))).collect();
            started
                .into_iter()
                .map(|thread| thread.join().expect("no panic").expect("it is written"))
                .collect()
        });
        assert!(found.iter().all(|sdk| sdk == &found[0]), "{found:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
    }

    #[test]
    fn what_cannot_be_written_is_an_error_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("a file");
        assert!(unpack(&file).is_err());
    }

    #[test]
    fn manifests_stand_without_the_workspace_and_tests_are_left_out() {
        let manifests: Vec<_> = FILES.iter().filter(|(path, _)| path.ends_with("Cargo.toml")).collect();
        assert_eq!(manifests.len(), 3);
        for (path, text) in manifests {
            let manifest: toml_edit::DocumentMut = text.parse().expect("TOML");
            assert!(!text.contains("workspace"), "{path}: {text}");
            assert!(manifest.get("dev-dependencies").is_none(), "{path}");
            for (name, value) in manifest["dependencies"].as_table_like().expect("a table").iter() {
                let whole = value.get("version").or_else(|| value.get("path")).is_some();
                assert!(whole, "{path}: {name} = {value}");
            }
        }
        assert!(FILES.iter().all(|(path, _)| !path.contains("tests")));
        assert!(FILES.iter().all(|(_, text)| !text.contains("\n#[cfg(test)]\nmod tests")));
    }

    #[test]
    fn the_lock_file_holds_the_api_and_nothing_that_it_does_not_reach() {
        let (_, lock) = FILES.iter().find(|(path, _)| *path == "Cargo.lock").expect("a lock file");
        for needed in ["drupe-extension-api", "abi_stable", "serde_json", "schemars", "tempfile"] {
            assert!(lock.contains(&format!("name = \"{needed}\"")), "{needed}");
        }
        for foreign in ["drupe-kernel", "rusqlite", "clap"] {
            assert!(!lock.contains(&format!("name = \"{foreign}\"")), "{foreign}");
        }
    }

    #[test]
    fn it_stays_small() {
        assert!(crate::size() < 448 * 1024, "the program carries {} bytes of source", crate::size());
    }
}
