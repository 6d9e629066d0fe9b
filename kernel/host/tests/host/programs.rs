//! Which folders a program may use that an extension runs.

use std::{collections::BTreeMap, fs};

use drupe_extension_api::{
    Fault, FaultCode,
    wire::{ProcessOutput, RunProcess},
};
use drupe_host::program::{Surroundings, run};

use crate::setup::exe;

/// The data folder of an extension with two drafts, and what is around it.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        for folder in ["data/one", "data/other", "extension", "sdk"] {
            fs::create_dir_all(home.0.path().join(folder)).unwrap();
        }
        fs::write(home.0.path().join("data/other/source"), "its own").unwrap();
        home
    }

    fn path(&self, within: &str) -> String {
        self.0.path().join(within).display().to_string()
    }

    /// Runs a shell in the first draft, which is given these folders.
    async fn sh(&self, script: &str, folders: &[&str]) -> Result<ProcessOutput, Fault> {
        let place = |within: &str| self.0.path().join(within);
        let (folder, data, sdk, cargo) = (place("extension"), place("data"), place("sdk"), place("cargo/x"));
        let around = Surroundings {
            exe: &exe(),
            folder: &folder,
            data: &data,
            sdk: &sdk,
            cargo: &cargo,
            environment: &BTreeMap::from([("HOME".to_owned(), self.path("operator"))]),
            strict: true,
        };
        let process = RunProcess {
            args: vec!["-c".to_owned(), script.to_owned()],
            folders: folders.iter().map(|within| self.path(within)).collect(),
            ..RunProcess::new("/bin/sh", data.join("one"))
        };
        run(around, process).await
    }
}

#[tokio::test]
async fn a_program_that_is_given_one_draft_neither_changes_nor_reads_another() {
    let home = Home::new();
    let script = "echo mine > made && cat made && echo t > \"$TMPDIR/t\" && echo written; \
                  echo bad > ../other/source; cat ../other/source; mv ../other ../gone; ln -s x ../link; mkdir ../new; ls ..";
    let output = home.sh(script, &["data/one"]).await.unwrap();
    assert_eq!(output.stdout, "mine\nwritten\n", "{output:?}");
    assert_eq!(fs::read_to_string(home.path("data/other/source")).unwrap(), "its own");
    let mut left: Vec<_> =
        fs::read_dir(home.path("data")).unwrap().map(|one| one.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["one", "other", "tmp"]);
}

#[tokio::test]
async fn a_program_that_is_given_no_folder_has_the_whole_data_folder() {
    let home = Home::new();
    let output = home.sh("cat ../other/source && echo new > ../other/source", &[]).await.unwrap();
    assert_eq!((output.stdout.as_str(), output.status), ("its own", Some(0)), "{output:?}");
    assert_eq!(fs::read_to_string(home.path("data/other/source")).unwrap(), "new\n");
}

#[tokio::test]
async fn no_folder_outside_the_data_folder_is_given() {
    let home = Home::new();
    std::os::unix::fs::symlink(home.path("sdk"), home.path("data/link")).unwrap();
    for (folder, code) in
        [("sdk", FaultCode::Denied), ("data/link", FaultCode::Denied), ("data/../sdk", FaultCode::Denied)]
    {
        let fault = home.sh("true", &["data/one", folder]).await.unwrap_err();
        assert_eq!(fault.code, code, "{folder}: {fault}");
        assert!(fault.message.contains(folder), "{fault}");
    }
}
