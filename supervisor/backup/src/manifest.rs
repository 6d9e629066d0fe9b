//! What a backup says of itself: the last file in it, so that one that was cut off has none.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The name of the manifest in the archive.
pub(crate) const NAME: &str = "drupe-backup.json";

/// The form of the manifest and of what is beside it. Another number is another form, which is not read by guess.
pub(crate) const FORM: u32 = 1;

/// The largest manifest that is read: some hundred thousand files.
pub(crate) const LONGEST: u64 = 128 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupManifest {
    pub form: u32,
    /// The release that made it.
    pub drupe: String,
    /// The version of its journal; none where the home had no journal.
    pub journal: Option<u32>,
    pub made: Timestamp,
    /// Where the home was, for people.
    pub home: String,
    /// Whether secrets are in it.
    pub secrets: bool,
    /// Whether the workspace is in it.
    pub workspace: bool,
    pub left_out: Vec<Omitted>,
    /// What is in it, by the path in the home.
    pub entries: BTreeMap<String, Packed>,
}

/// Something of the home that is not in the backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omitted {
    pub path: String,
    pub why: String,
    /// It was left out because it is, or may be, secret: a restore leaves the one that is there.
    #[serde(default)]
    pub secret: bool,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Packed {
    File { bytes: u64, sha256: String, mode: u32 },
    Folder { mode: u32 },
    Link { target: String },
}
