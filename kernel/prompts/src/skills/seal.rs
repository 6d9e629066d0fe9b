//! What lay in the folder of a skill when somebody agreed to it, so that nothing else is read or run of it.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::{NoText, beneath};

/// Files and folders in a skill that is sealed: all are read whenever it is compared.
const ENTRIES: usize = 512;

/// Bytes of all files in it.
const BYTES: u64 = 16 << 20;

/// The hashes of all that lies in a folder, by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal(BTreeMap<String, [u8; 32]>);

/// What something is, and what it holds: of a link where it leads.
enum Held {
    File(Vec<u8>),
    Link(Vec<u8>),
}

impl Held {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::File(bytes) | Self::Link(bytes) => bytes,
        }
    }

    fn hash(&self) -> [u8; 32] {
        match self {
            Self::File(bytes) => hash_of_file(bytes),
            Self::Link(leads) => Sha256::new().chain_update("link").chain_update(leads).finalize().into(),
        }
    }
}

fn hash_of_file(bytes: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update("file").chain_update(bytes).finalize().into()
}

impl Seal {
    /// What lies there now.
    ///
    /// # Errors
    /// What cannot be compared: more than is bounded, and what is neither file nor folder nor link, or cannot be read.
    pub fn of(root: &Path) -> Result<Self, NoText> {
        let refused = |path: &Path, why: &str| NoText::new(format!("`{}` {why}", root.join(path).display()));
        let unread = |path: &Path, error: &io::Error| refused(path, &format!("cannot be read: {error}"));
        let too_large = |what: String| refused(Path::new(""), &format!("holds more than {what}"));
        let (mut sealed, mut bytes, mut entries) = (BTreeMap::new(), 0, 0);
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let read = fs::read_dir(root.join(&folder))
                .and_then(|read| read.take(ENTRIES + 1).collect::<io::Result<Vec<_>>>())
                .map_err(|error| unread(&folder, &error))?;
            entries += read.len();
            if entries > ENTRIES {
                return Err(too_large(format!("{ENTRIES} files and folders")));
            }
            for entry in read {
                let path = folder.join(entry.file_name());
                let kind = entry.file_type().map_err(|error| unread(&path, &error))?;
                if kind.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.to_str().ok_or_else(|| refused(&path, "has a name that is no text"))?;
                let held = match kind.is_symlink() {
                    true => {
                        let leads = fs::read_link(root.join(&path)).map_err(|error| unread(&path, &error))?;
                        Held::Link(leads.into_os_string().into_vec())
                    }
                    false => Held::File(
                        beneath::bytes(root, name, BYTES).map_err(|why| refused(&path, &why.to_string()))?,
                    ),
                };
                bytes += held.bytes().len() as u64;
                if bytes > BYTES {
                    return Err(too_large(format!("{} MiB", BYTES >> 20)));
                }
                sealed.insert(name.to_owned(), held.hash());
            }
        }
        Ok(Self(sealed))
    }

    /// Whether a file held just this.
    pub fn holds(&self, path: &str, bytes: &[u8]) -> bool {
        self.0.get(path) == Some(&hash_of_file(bytes))
    }

    /// A path at which there is something else in the other one, or in one of both alone.
    pub fn difference<'a>(&'a self, other: &'a Self) -> Option<&'a str> {
        let mut all = self.0.keys().chain(other.0.keys());
        all.find(|path| self.0.get(*path) != other.0.get(*path)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    #[test]
    fn all_that_a_command_could_meet_is_sealed_and_bounded() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().canonicalize().unwrap().join("pdf");
        fs::create_dir_all(folder.join("a/b/c/d/e")).unwrap();
        fs::write(folder.join("a/b/c/d/e/deep"), "x").unwrap();
        fs::write(folder.join(".hidden"), "x").unwrap();
        fs::write(folder.join("image"), [0xff, 0xfe]).unwrap();
        symlink("image", folder.join("link")).unwrap();
        let sealed = Seal::of(&folder).unwrap();
        let differs = || sealed.difference(&Seal::of(&folder).unwrap()).map(str::to_owned);
        assert_eq!(differs(), None);
        for (path, was) in [("a/b/c/d/e/deep", &b"x"[..]), (".hidden", b"x"), ("image", &[0xff, 0xfe])] {
            assert!(sealed.holds(path, was) && !sealed.holds(path, b"y"));
            fs::write(folder.join(path), [0xff, 0xfd]).unwrap();
            assert_eq!(differs().as_deref(), Some(path));
            fs::write(folder.join(path), was).unwrap();
            assert_eq!(differs(), None);
        }
        fs::write(folder.join("new"), "x").unwrap();
        assert_eq!(differs().as_deref(), Some("new"));
        fs::rename(folder.join("new"), folder.join("a/b/c/d/e/deep")).unwrap();
        assert_eq!(differs(), None, "it is what it was");
        assert!(!sealed.holds("link", b"image"), "a link is no file");
        // A link elsewhere, and a file in its place that holds where it led.
        let exchanges: [fn(&Path); 2] =
            [|link| symlink("a", link).unwrap(), |link| fs::write(link, "image").unwrap()];
        for exchange in exchanges {
            fs::remove_file(folder.join("link")).unwrap();
            exchange(&folder.join("link"));
            assert_eq!(differs().as_deref(), Some("link"));
        }
        let refused = |why: &str| {
            let said = Seal::of(&folder).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        };
        fs::File::create(folder.join("large")).unwrap().set_len(BYTES).unwrap();
        refused("holds more than 16 MiB");
        fs::File::create(folder.join("large")).unwrap().set_len(BYTES + 1).unwrap();
        refused("large");
        fs::remove_file(folder.join("large")).unwrap();
        fs::create_dir(folder.join("many")).unwrap();
        (0..ENTRIES).for_each(|number| fs::write(folder.join(format!("many/{number}")), "").unwrap());
        refused("holds more than 512 files and folders");
        fs::remove_dir_all(folder.join("many")).unwrap();
        drop(UnixListener::bind(folder.join("socket")).unwrap());
        refused("socket");
    }
}
