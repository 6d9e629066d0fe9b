//! Backups and restores of homes without a daemon.

#![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]
#![expect(clippy::disallowed_methods, reason = "it asks the programs that operators use")]

mod alone;
mod hostile;
mod round;

use std::{
    fs,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
};

use drupe_agent::SystemClock;
use drupe_journal::{Storage, Store};

use crate::{MadeBackup, Order, make};

/// What a future gives that needs no runtime.
fn wait<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::yield_now(),
        }
    }
}

/// A folder with a home in it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(place.home()).unwrap();
        place
    }

    fn home(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("home")
    }

    fn file(&self) -> PathBuf {
        self.home().with_file_name("backup.tar.gz")
    }

    fn order(&self) -> Order {
        Order { home: self.home(), file: self.file(), ..Order::default() }
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.home().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.home().join(name)).ok()
    }

    fn store(&self) -> Store {
        let storage = Storage::Full(self.home().join("journal.db"));
        Store::open(&storage, Arc::new(SystemClock), Arc::new(|_| ())).unwrap()
    }

    /// A home with something of everything.
    fn full(&self) {
        self.write("drupe.yaml", "log: info\n");
        self.write(".env", "KEY=secret\n");
        self.write("extensions/words/manifest.yaml", "id: words\n");
        self.write("extensions/words/target/debug/libwords.so", "library");
        self.write("extensions/words/target/debug/deps/libother.rlib", "made again");
        self.write("skills/notes/SKILL.md", "---\n---\n");
        self.write("data/words/kept.txt", "kept");
        self.write("data/mcp/tokens.json", "{}");
        self.write("data/.cargo/words/registry", "made again");
        self.write("state/generation", "7");
        self.write("state/supervisor.log", "a log");
        self.write("run/token", "token");
        self.write("workspace/draft.txt", "a draft");
        self.write("backups/old.tar.gz", "old");
        wait(self.store().close()).unwrap();
    }

    fn made(&self) -> MadeBackup {
        make(&self.order()).unwrap()
    }
}

/// The names in a folder that are not hidden from `ls`, and those that are.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
