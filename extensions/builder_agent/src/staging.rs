//! The folder in which drafts are made: a folder an agent, with plain files and no way out.

use std::{
    fs,
    path::{Path, PathBuf},
};

use drupe_extension_api::prelude::*;

/// The largest file of a draft, in bytes.
const LARGEST: usize = 256 * 1024;

/// The most files of a draft.
const FILES: usize = 32;

/// The drafts.
pub struct Staging(PathBuf);

impl Staging {
    /// Makes the folder where it is missing.
    pub fn new(root: PathBuf) -> Result<Self, Fault> {
        fs::create_dir_all(&root)?;
        Ok(Self(root))
    }

    /// The folder of an agent that has a draft.
    pub fn folder(&self, id: &ExtensionId) -> Result<PathBuf, Fault> {
        let folder = self.0.join(id.as_str());
        if folder.is_dir() {
            return Ok(folder);
        }
        Err(Fault::not_found(format!("there is no draft of `{id}`")).help("begin with `builder_draft`"))
    }

    /// Writes a file, whole.
    pub fn write(&self, id: &ExtensionId, file: &str, content: &str) -> Result<(), Fault> {
        let name = plain(file)?;
        if content.len() > LARGEST {
            return Err(Fault::invalid(format!("a file of an agent has at most {LARGEST} bytes")));
        }
        let folder = self.0.join(id.as_str());
        fs::create_dir_all(&folder)?;
        let path = folder.join(name);
        if !path.exists() && fs::read_dir(&folder)?.count() >= FILES {
            return Err(Fault::invalid(format!("a draft has at most {FILES} files")));
        }
        let part = folder.join(format!(".{name}.part"));
        fs::write(&part, content)?;
        Ok(fs::rename(part, path)?)
    }

    /// Reads a file.
    pub fn read(&self, id: &ExtensionId, file: &str) -> Result<String, Fault> {
        let path = self.folder(id)?.join(plain(file)?);
        fs::read_to_string(&path)
            .map_err(|_| Fault::not_found(format!("the draft of `{id}` has no readable file `{file}`")))
    }

    /// Removes the draft of an agent.
    pub fn forget(&self, id: &ExtensionId) -> Result<(), Fault> {
        Ok(fs::remove_dir_all(self.folder(id)?)?)
    }
}

/// A plain file name: no folder, nothing hidden.
fn plain(file: &str) -> Result<&str, Fault> {
    let name = Path::new(file).file_name().and_then(|n| n.to_str());
    match name {
        Some(name) if name == file && !name.starts_with('.') && name.len() <= 64 => Ok(name),
        _ => Err(Fault::invalid(format!("`{file}` is no plain file name"))
            .help("such as `manifest.yaml` or `prompt.md`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_in_its_folder() {
        for bad in ["", "..", ".", "../x", "a/b", "/etc/passwd", ".hidden", "a/"] {
            assert!(plain(bad).is_err(), "{bad}");
        }
        assert!(plain("prompt.md").is_ok());
    }
}
