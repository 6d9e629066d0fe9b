//! Opens files so that the kernel, not a comparison of paths, keeps them beneath a root; and makes folders beneath one.

use std::{
    fs::DirBuilder,
    io,
    os::fd::{AsFd, OwnedFd},
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

/// Opens a folder to use as the root of [`open_beneath`].
pub fn open_root(folder: &Path) -> io::Result<OwnedFd> {
    Ok(open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens `path` beneath `root`. Absolute paths, `..` that leaves the root, and symbolic links anywhere on the way
/// are refused, also when the tree is renamed meanwhile. `mode` is for a file that `flags` create.
pub fn open_beneath(root: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // With `BENEATH` the kernel gives up with EAGAIN when something is renamed at that moment. A few tries
    // are enough for an ordinary rename; somebody who renames all the time gets the error.
    let mut tries = 0;
    loop {
        match openat2(&root, path, flags | OFlags::CLOEXEC, mode, resolve) {
            Err(rustix::io::Errno::AGAIN) if tries < 32 => tries += 1,
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Makes a folder beneath `root` and those between the two, for their owner alone, where they are not there. Never `root`
/// itself: one that is gone was moved, and what is made in its old place would be found by nobody.
pub fn make_beneath(root: &Path, folder: &Path) -> io::Result<()> {
    let within = folder.strip_prefix(root).map_err(|_| {
        let message = format!("`{}` does not lie beneath `{}`", folder.display(), root.display());
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    let mut path = root.to_owned();
    for part in within {
        path.push(part);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use std::{
        fs,
        io::Read,
        os::unix::fs::{MetadataExt, symlink},
    };

    use super::*;

    #[test]
    fn only_what_lies_beneath_the_root_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        fs::write(root.join("sub/file"), "fine").unwrap();
        symlink("../secret", root.join("link")).unwrap();
        symlink(folder.path(), root.join("out")).unwrap();
        symlink("sub", root.join("in")).unwrap();
        let root = open_root(&root).unwrap();
        let open = |path: &str| open_beneath(&root, Path::new(path), OFlags::RDONLY, Mode::empty());

        let mut text = String::new();
        fs::File::from(open("sub/file").unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "fine");
        assert!(open("sub/../sub/file").is_ok());
        for refused in ["../secret", "link", "out/secret", "in/file", "/etc/passwd", "sub/../../secret", ""] {
            assert!(open(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn folders_are_made_beneath_a_root_that_is_there_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let (root, deep) = (folder.path().join("root"), folder.path().join("root/a/b"));
        assert_eq!(make_beneath(&root, &deep).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!root.exists(), "nothing is left");
        fs::create_dir(&root).unwrap();
        for _ in 0..2 {
            make_beneath(&root, &deep).unwrap();
        }
        assert_eq!(fs::metadata(&deep).unwrap().mode() & 0o777, 0o700);
        fs::write(root.join("file"), "").unwrap();
        assert_eq!(make_beneath(&root, &root.join("file")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(make_beneath(&deep, &root).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // The root is moved, as a home may be while its daemon runs.
        fs::rename(&root, folder.path().join("moved")).unwrap();
        assert!(make_beneath(&root, &deep).is_err() && !root.exists());
    }

    #[test]
    fn a_new_file_is_made_beneath_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = open_root(folder.path()).unwrap();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        open_beneath(&root, Path::new("new"), flags, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(folder.path().join("new").is_file());
    }
}
