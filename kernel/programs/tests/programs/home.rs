//! The folders of an extension, and what is around them.

use std::{fs, path::PathBuf, sync::Arc};

use drupe_extension_api::{
    Fault,
    wire::{ProcessExit, ProcessOutput, ProcessSpec, RunProcess},
};
use drupe_handles::{Credit, Given, Source};
use drupe_programs::{Opened, Surroundings, open, run};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What of the home nobody is to see, and of the operator's.
pub const SECRETS: [&str; 6] =
    ["run/token", "state/quarantine", "journal.db", "drupe.yaml", ".env", "../operator/.netrc"];

fn home(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().canonicalize().unwrap().join("home")
}

/// As much as comes.
pub const ALL: Credit = Credit { items: 9, bytes: 1 << 20 };

/// The program that stands for drupe.
fn exe() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples/parent")
}

/// The data folder of an extension with two drafts, and what is around it: the rest of the home, and the operator's.
pub struct Home {
    folder: tempfile::TempDir,
    /// What the manifest allows.
    pub folders: Vec<String>,
    /// The folders of skills.
    pub skills: Vec<PathBuf>,
    pub network: bool,
    /// Places for programs.
    pub places: Arc<Semaphore>,
}

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for within in ["data/one", "data/other", "extension", "sdk", "run", "state", "../operator/.tool/bin"]
        {
            fs::create_dir_all(home(&folder).join(within)).unwrap();
        }
        for secret in SECRETS {
            fs::write(home(&folder).join(secret), "canary").unwrap();
        }
        fs::write(home(&folder).join("data/other/source"), "its own").unwrap();
        let folders = vec!["~/.tool".to_owned()];
        Self { folder, folders, skills: Vec::new(), network: false, places: Arc::new(Semaphore::new(8)) }
    }

    pub fn path(&self, within: &str) -> String {
        home(&self.folder).join(within).display().to_string()
    }

    fn place(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.places).try_acquire_owned().unwrap()
    }

    /// A shell in the first draft.
    pub fn shell(&self, script: &str) -> ProcessSpec {
        ProcessSpec {
            args: vec!["-c".to_owned(), script.to_owned()],
            timeout_ms: Some(60_000),
            ..ProcessSpec::new("/bin/sh", self.path("data/one"))
        }
    }

    /// Runs a shell in the first draft, which is given these folders.
    pub async fn sh_in(&self, script: &str, folders: &[&str]) -> Result<ProcessOutput, Fault> {
        let folders = folders.iter().map(|within| self.path(within)).collect();
        self.run(ProcessSpec { folders, ..self.shell(script) }).await
    }

    pub async fn run(&self, spec: ProcessSpec) -> Result<ProcessOutput, Fault> {
        let place = self.place();
        self.surrounded(async |at| run(&at, RunProcess { spec, max_output: 4096 }, place).await).await
    }

    pub async fn open(&self, spec: &ProcessSpec) -> Result<Opened, Fault> {
        let place = self.place();
        self.surrounded(async |at| open(&at, spec, place).await).await
    }

    async fn surrounded<T>(&self, act: impl AsyncFnOnce(Surroundings<'_>) -> T) -> T {
        let place = |within: &str| home(&self.folder).join(within);
        let operator = fs::canonicalize(self.path("../operator")).unwrap().display().to_string();
        let environment = [("HOME", operator), ("A_KEY", "canary".to_owned())];
        act(Surroundings {
            exe: &exe(),
            home: &home(&self.folder),
            folder: &place("extension"),
            data: &place("data"),
            sdk: &place("sdk"),
            folders: &self.folders,
            skills: &self.skills,
            network: self.network,
            environment: &environment.map(|(name, value)| (name.to_owned(), value)).into(),
            strict: true,
        })
        .await
    }

    /// How many places are free.
    pub fn free(&self) -> usize {
        self.places.available_permits()
    }

    /// Waits until all places are free: what took them is gone.
    pub async fn until_free(&self) {
        drop(self.places.acquire_many(8).await.unwrap());
    }
}

/// The next bytes; none at the end.
pub async fn bytes(source: &mut dyn Source) -> Vec<u8> {
    match source.next(ALL).await.unwrap() {
        Given::Bytes(bytes) => bytes,
        Given::Items(_) => panic!("a pipe gives bytes"),
    }
}

/// All bytes up to the end.
pub async fn all(source: &mut dyn Source) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match bytes(source).await {
            more if more.is_empty() => return all,
            more => all.extend(more),
        }
    }
}

/// How it ended, and that nothing follows.
pub async fn exit(source: &mut dyn Source) -> ProcessExit {
    let Given::Items(items) = source.next(ALL).await.unwrap() else { panic!("its end is an item") };
    assert!(source.next(ALL).await.unwrap().is_end());
    serde_json::from_str(items[0].get()).unwrap()
}
