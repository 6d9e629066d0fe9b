//! Values of what is kept: how often it is copied, and where it goes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A time between two of something, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    written: String,
    duration: Duration,
}

impl Interval {
    /// `daily`, `hourly`, or a number of minutes, hours or days; a minute at least, a year at most.
    pub fn new(written: &str) -> Option<Self> {
        const MINUTE: u64 = 60;
        const DAY: u64 = 24 * 60 * MINUTE;
        let seconds = match written {
            "daily" => DAY,
            "hourly" => 60 * MINUTE,
            _ => {
                let (number, unit) = written.split_at_checked(written.len().checked_sub(1)?)?;
                let unit = match unit {
                    "m" => MINUTE,
                    "h" => 60 * MINUTE,
                    "d" => DAY,
                    _ => return None,
                };
                let digits = number.bytes().all(|byte| byte.is_ascii_digit());
                number.parse::<u64>().ok().filter(|_| digits)?.checked_mul(unit)?
            }
        };
        let duration = (MINUTE..=366 * DAY).contains(&seconds).then(|| Duration::from_secs(seconds))?;
        Some(Self { written: written.to_owned(), duration })
    }

    pub fn duration(&self) -> Duration {
        self.duration
    }
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        Self::new(&written).ok_or_else(|| D::Error::custom(format!("`{written}` is no interval")))
    }
}

/// Where turns are written before they are deleted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Archive {
    /// In `archive` of the home, or nowhere.
    Switch(bool),
    Folder(PathBuf),
}

impl Default for Archive {
    fn default() -> Self {
        Self::Switch(false)
    }
}

impl Archive {
    /// The folder, for that home; none where there is no archive.
    pub fn folder(&self, home: &Path) -> Option<PathBuf> {
        match self {
            Self::Switch(false) => None,
            Self::Switch(true) => Some(home.join("archive")),
            Self::Folder(folder) => Some(folder.clone()),
        }
    }
}

impl Serialize for Archive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Switch(on) => on.serialize(serializer),
            Self::Folder(folder) => folder.to_string_lossy().serialize(serializer),
        }
    }
}
