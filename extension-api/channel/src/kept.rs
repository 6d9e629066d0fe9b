//! A small file that is replaced as a whole, and what in it is kept by age.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io::{ErrorKind, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::prelude::*;
use serde::de::DeserializeOwned;

/// So many are kept of what goes by age: questions whose buttons may still stand somewhere, answers of which a part was sent. Of those before only a
/// repetition would be noticed.
const MOST: usize = 500;

/// A file of the extension's data folder, and what it holds. Clones are the same.
pub struct KeptState<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    host: Host,
    path: PathBuf,
    /// With the number of its last change.
    content: Mutex<(T, u64)>,
    /// The number of the change that is in the file. Held while it is written, so that the newest content is the last.
    written: tokio::sync::Mutex<u64>,
}

impl<T> Clone for KeptState<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T: Default + Serialize + DeserializeOwned> KeptState<T> {
    /// Reads the file of that name. One that cannot be read is begun anew, which is logged.
    ///
    /// # Errors
    /// The system does not let it be read.
    pub fn open(host: Host, name: &str) -> Result<Self, Fault> {
        let path = host.data_folder().join(name);
        let content = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                host.warn(format!("`{}` cannot be read and is begun anew: {error}", path.display()));
                T::default()
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => T::default(),
            Err(error) => return Err(error.into()),
        };
        let (content, written) = (Mutex::new((content, 0)), tokio::sync::Mutex::new(0));
        Ok(Self { shared: Arc::new(Shared { host, path, content, written }) })
    }

    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock().0)
    }

    /// Changes what is kept; once this returns it is in the file. Of changes at the same time the last one writes for all.
    ///
    /// # Errors
    /// It could not be written; what is kept is changed all the same, and comes into the file with the next change.
    pub async fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, Fault> {
        let (changed, own) = {
            let mut content = self.lock();
            content.1 += 1;
            (change(&mut content.0), content.1)
        };
        let mut written = self.shared.written.lock().await;
        if *written >= own {
            return Ok(changed);
        }
        let (bytes, number) = {
            let content = self.lock();
            (serde_json::to_vec(&content.0)?, content.1)
        };
        let path = self.shared.path.clone();
        self.shared
            .host
            .blocking(move || {
                let next = path.with_extension("new");
                let mut file = File::create(&next)?;
                file.write_all(&bytes)?;
                file.sync_all()?;
                Ok(fs::rename(next, path)?)
            })
            .await?;
        *written = number;
        Ok(changed)
    }

    fn lock(&self) -> MutexGuard<'_, (T, u64)> {
        self.shared.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The newest of what bears a name, 500 of them, in the order in which they came.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Listed<T>", into = "VecDeque<(String, T)>", bound(serialize = "T: Clone + Serialize"))]
pub struct Recent<T>(VecDeque<(String, T)>);

/// As a file has it: in their order, or by their names as before.
#[derive(Deserialize)]
#[serde(untagged)]
enum Listed<T> {
    InOrder(VecDeque<(String, T)>),
    ByName(BTreeMap<String, T>),
}

impl<T> From<Listed<T>> for Recent<T> {
    fn from(listed: Listed<T>) -> Self {
        match listed {
            Listed::InOrder(all) => Self(all),
            Listed::ByName(all) => Self(all.into_iter().collect()),
        }
    }
}

impl<T> From<Recent<T>> for VecDeque<(String, T)> {
    fn from(recent: Recent<T>) -> Self {
        recent.0
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Recent<T> {
    pub fn get(&self, name: &str) -> Option<&T> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.0.iter_mut().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Adds one as the newest, in the place of what had its name; the oldest goes where there is no room.
    pub fn insert(&mut self, name: &str, value: T) {
        self.remove(name);
        self.0.push_back((name.to_owned(), value));
        while self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<T> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        self.0.remove(at).map(|(_, value)| value)
    }

    /// All with their names, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_whatever_they_are_called() {
        let mut parts = Recent::default();
        for number in (0..2 * MOST).rev() {
            parts.insert(&number.to_string(), number);
        }
        assert_eq!((parts.get("0"), parts.get("999"), parts.iter().count()), (Some(&0), None, MOST));
        parts.insert("0", 7);
        assert_eq!((parts.get("0"), parts.iter().count()), (Some(&7), MOST));
        assert_eq!((parts.remove("0"), parts.get("0")), (Some(7), None));
    }

    #[test]
    fn what_is_kept_is_read_again_in_its_order_and_as_it_was_written_before() {
        let mut recent = Recent::default();
        for name in ["b", "a"] {
            recent.insert(name, name.to_owned());
        }
        let text = serde_json::to_string(&recent).expect("JSON");
        for text in [text.as_str(), r#"{"b": "b", "a": "a"}"#] {
            let read: Recent<String> = serde_json::from_str(text).expect("it is read");
            assert_eq!((read.get("a"), read.iter().count()), (Some(&"a".to_owned()), 2), "{text}");
        }
        assert_eq!(text, r#"[["b","b"],["a","a"]]"#);
    }
}
