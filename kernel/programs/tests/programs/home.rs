//! The folders of an extension, and what is around them.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use drupe_extension_api::{
    Fault,
    wire::{ProcessExit, ProcessOutput, ProcessSpec, RunProcess},
};
use drupe_handles::{Credit, Given, Source};
use drupe_programs::{Opened, Surroundings, open, run};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// As much as comes.
pub const ALL: Credit = Credit { items: 9, bytes: 1 << 20 };

/// The program that stands for drupe.
fn exe() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples/confined")
}

/// The data folder of an extension with two drafts, and what is around it.
pub struct Home {
    folder: tempfile::TempDir,
    /// Places for programs.
    pub places: Arc<Semaphore>,
}

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for within in ["data/one", "data/other", "extension", "sdk"] {
            fs::create_dir_all(folder.path().join(within)).unwrap();
        }
        fs::write(folder.path().join("data/other/source"), "its own").unwrap();
        Self { folder, places: Arc::new(Semaphore::new(8)) }
    }

    pub fn path(&self, within: &str) -> String {
        self.folder.path().join(within).display().to_string()
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
        self.surrounded(async |at| run(at, RunProcess { spec, max_output: 4096 }, place).await).await
    }

    pub async fn open(&self, spec: &ProcessSpec) -> Result<Opened, Fault> {
        let place = self.place();
        self.surrounded(async |at| open(at, spec, place).await).await
    }

    async fn surrounded<T>(&self, act: impl AsyncFnOnce(Surroundings<'_>) -> T) -> T {
        let place = |within: &str| self.folder.path().join(within);
        let (folder, data, sdk, cargo) = (place("extension"), place("data"), place("sdk"), place("cargo/x"));
        act(Surroundings {
            exe: &exe(),
            folder: &folder,
            data: &data,
            sdk: &sdk,
            cargo: &cargo,
            environment: &BTreeMap::from([("HOME".to_owned(), self.path("operator"))]),
            strict: true,
        })
        .await
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
