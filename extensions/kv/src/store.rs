//! Namespaces on disk, one JSON file each, and those of turns in memory.
//!
//! A file is replaced as a whole: written beside it, synced, renamed. A crash leaves the old or the new one.
//! The store assumes that it alone writes its folder, which the kernel gives to one extension.

use std::{
    collections::{HashMap, VecDeque},
    fs::{self, File},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::{AgentId, Fault, TurnId};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::namespace::{Bounds, Namespace};

/// How many turns keep their namespace. Turns that run at the same time are far fewer; an older one has
/// ended, or has not used its namespace for long.
const TURNS: usize = 256;

/// Which namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    Agent(AgentId),
    Shared,
    Turn(TurnId),
}

/// All namespaces.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: HashMap<Place, Namespace>,
    /// Oldest use first.
    turns: VecDeque<(TurnId, Namespace)>,
}

impl Store {
    pub fn new(folder: &Path, bounds: Bounds) -> Self {
        Self { folder: folder.to_owned(), bounds, state: Mutex::default() }
    }

    /// Reads a namespace; may wait for the disk.
    pub fn read<T>(&self, place: &Place, read: impl FnOnce(&Namespace) -> T) -> Result<T, Fault> {
        Ok(read(self.lock().open(self, place)?))
    }

    /// Reads a namespace that is in memory and in nobody's use; none if it is not.
    pub fn read_at_once<T>(&self, place: &Place, read: impl FnOnce(&Namespace) -> T) -> Option<T> {
        let mut state = self.state.try_lock().ok()?;
        let in_memory = matches!(place, Place::Turn(_)) || state.kept.contains_key(place);
        if !in_memory {
            return None;
        }
        state.open(self, place).ok().map(|namespace| read(namespace))
    }

    /// Stores a value; `strangers` says whether they may have written it.
    pub fn set(&self, place: &Place, key: String, value: Value, strangers: bool) -> Result<(), Fault> {
        let mut state = self.lock();
        let namespace = state.open(self, place)?;
        namespace.admit(&key, &value, self.bounds)?;
        if namespace.values().get(&key) == Some(&value) && namespace.is_of_strangers(&key) == strangers {
            return Ok(());
        }
        self.change(place, namespace, &key, Some((value, strangers)))
    }

    /// Whether there was something to delete.
    pub fn delete(&self, place: &Place, key: &str) -> Result<bool, Fault> {
        let mut state = self.lock();
        let namespace = state.open(self, place)?;
        if !namespace.values().contains_key(key) {
            return Ok(false);
        }
        self.change(place, namespace, key, None)?;
        Ok(true)
    }

    /// What could not be written did not happen. A mark is written before the value and goes after it, so that no crash
    /// leaves what strangers wrote without one.
    fn change(
        &self,
        place: &Place,
        namespace: &mut Namespace,
        key: &str,
        value: Option<(Value, bool)>,
    ) -> Result<(), Fault> {
        let (value, strangers) = value.unzip();
        let strangers = strangers.unwrap_or_default();
        let file = self.file(place);
        let failed = |error: std::io::Error, file: &Path| {
            Fault::new(Fault::from(error).code, format!("`{key}` could not be stored in {}", file.display()))
        };
        if strangers
            && !namespace.mark(key, true)
            && let Some(file) = &file
        {
            write(&marks_of(file), namespace.marks()).map_err(|error| {
                namespace.mark(key, false);
                failed(error, file)
            })?;
        }
        let old = namespace.put(key, value);
        if let Some(file) = &file {
            write(file, namespace.values()).map_err(|error| {
                namespace.put(key, old);
                failed(error, file)
            })?;
        }
        if !strangers
            && namespace.mark(key, false)
            && let Some(file) = &file
            && write(&marks_of(file), namespace.marks()).is_err()
        {
            // A mark too much does no harm.
            namespace.mark(key, true);
        }
        Ok(())
    }

    /// Where a namespace is kept; none for those of turns. An agent's id is a plain file name.
    fn file(&self, place: &Place) -> Option<PathBuf> {
        match place {
            Place::Agent(agent) => Some(self.folder.join("agents").join(format!("{agent}.json"))),
            Place::Shared => Some(self.folder.join("shared.json")),
            Place::Turn(_) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn open(&mut self, store: &Store, place: &Place) -> Result<&mut Namespace, Fault> {
        if let Place::Turn(turn) = place {
            return Ok(self.turn(turn));
        }
        if !self.kept.contains_key(place) {
            let namespace = match store.file(place) {
                Some(file) => Namespace::new(read(&file)?, read(&marks_of(&file))?),
                None => Namespace::default(),
            };
            self.kept.insert(place.clone(), namespace);
        }
        self.kept.get_mut(place).ok_or_else(|| Fault::internal("a namespace was lost"))
    }

    fn turn(&mut self, turn: &TurnId) -> &mut Namespace {
        let found = self.turns.iter().position(|(id, _)| id == turn);
        let entry = found.and_then(|at| self.turns.remove(at));
        if entry.is_none() && self.turns.len() == TURNS {
            self.turns.pop_front();
        }
        self.turns.push_back(entry.unwrap_or_else(|| (turn.clone(), Namespace::default())));
        let last = self.turns.len() - 1;
        &mut self.turns[last].1
    }
}

/// Where the marks of a namespace are kept, beside its values. No agent's id has a dot.
fn marks_of(file: &Path) -> PathBuf {
    file.with_extension("strangers.json")
}

fn read<T: DeserializeOwned + Default>(file: &Path) -> Result<T, Fault> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(T::default()),
        Err(error) => return Err(error.into()),
    };
    serde_json::from_slice(&text).map_err(|e| {
        Fault::internal(format!("{} is damaged: {e}", file.display()))
            .help("restore it from a backup, or move it away")
    })
}

fn write(file: &Path, values: &impl Serialize) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    // No more than these two: where those above are gone the home was moved, and what is made in its old place is lost.
    for folder in folder.parent().into_iter().chain([folder]) {
        match fs::create_dir(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let new = file.with_extension("new");
    let mut out = File::create(&new)?;
    out.write_all(&serde_json::to_vec(values)?)?;
    out.sync_all()?;
    drop(out);
    fs::rename(&new, file)?;
    // The new name is durable only with its folder.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_folder_is_made_again_and_a_home_that_was_moved_is_not() {
        let home = tempfile::tempdir().expect("a folder");
        let data = home.path().join("home/data");
        fs::create_dir_all(&data).expect("a folder");
        let store = Store::new(&data.join("kv"), Bounds { value_bytes: 100, keys: 10, bytes: 1000 });
        let places = [Place::Agent("one".parse().expect("an id")), Place::Shared];
        for place in &places {
            store.set(place, "a".into(), 1.into(), false).expect("its folder is made");
            fs::remove_dir_all(data.join("kv")).expect("it was made");
        }
        fs::rename(home.path().join("home"), home.path().join("moved")).expect("a folder");
        for place in &places {
            store.set(place, "b".into(), 2.into(), false).expect_err("there is no home");
        }
        assert!(!home.path().join("home").exists());
    }

    #[test]
    fn what_is_in_memory_and_free_is_read_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::new(folder.path(), Bounds { value_bytes: 100, keys: 10, bytes: 1000 });
        let one = |namespace: &Namespace| namespace.values().get("a").cloned();
        assert_eq!(store.read_at_once(&Place::Shared, one), None, "it may be on the disk");
        store.set(&Place::Shared, "a".into(), 1.into(), false).expect("it fits");
        assert_eq!(store.read_at_once(&Place::Shared, one), Some(Some(1.into())));
        let _writing = store.lock();
        assert_eq!(store.read_at_once(&Place::Shared, one), None, "somebody writes");
    }
}
