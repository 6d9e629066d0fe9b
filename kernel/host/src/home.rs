//! The folders of a home that the kernel uses.

use std::path::{Path, PathBuf};

use drupe_extension_api::ExtensionId;

use crate::{own_program, probe::Caches};

/// The folders of a home that the kernel uses.
#[derive(Debug, Clone)]
pub struct Folders {
    root: PathBuf,
    workspace: PathBuf,
}

impl Folders {
    /// The folders beneath a home.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), workspace: root.join("workspace") }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where operators and the builder put extensions.
    pub fn extensions(&self) -> PathBuf {
        self.root.join("extensions")
    }

    /// What one extension may write.
    pub fn data(&self, extension: &ExtensionId) -> PathBuf {
        self.root.join("data").join(extension.as_str())
    }

    /// Makes a folder of the home, where it is not there. The home itself must be: one that was moved is not made again.
    pub fn make(&self, folder: &Path) -> Result<(), String> {
        let made = crate::make_beneath(&self.root, folder);
        made.map_err(|error| format!("`{}` cannot be made: {error}", folder.display()))
    }

    /// Makes the folder that an extension may write.
    pub fn make_data(&self, extension: &ExtensionId) -> Result<PathBuf, String> {
        let data = self.data(extension);
        self.make(&data).map(|()| data)
    }

    /// The root of the file tools.
    pub fn workspace(&self) -> &PathBuf {
        &self.workspace
    }

    pub fn journal(&self) -> PathBuf {
        self.root.join("journal.db")
    }

    /// Copies of libraries, by the hash of their content.
    pub fn libraries(&self) -> PathBuf {
        self.root.join("run").join("libraries")
    }

    /// Verdicts about libraries, and how to reach new ones.
    pub fn probes(&self, exe: &Path, strict: bool) -> Caches {
        let verdicts_file = self.root.join("data").join(".probes.json");
        Caches { verdicts_file, copies: self.libraries(), exe: own_program(exe), strict }
    }

    /// Copies of files that are to be sent.
    pub fn outgoing(&self) -> PathBuf {
        self.root.join("data").join(".outgoing")
    }

    /// What native extensions are built with.
    pub fn sdk(&self) -> PathBuf {
        self.root.join("data").join(".sdk")
    }

    /// Hashes of the extensions' files.
    pub fn contents(&self) -> PathBuf {
        self.root.join("data").join(".contents.json")
    }

    /// Sets of extensions that worked.
    pub fn generations(&self) -> PathBuf {
        self.root.join("data").join(".generations")
    }

    /// Where quarantined contents lie.
    pub fn held(&self) -> PathBuf {
        self.root.join("data").join(".held.json")
    }

    /// Earlier versions of extensions that stand in for the present ones.
    pub fn restored(&self) -> PathBuf {
        self.root.join("run").join("restored")
    }
}
