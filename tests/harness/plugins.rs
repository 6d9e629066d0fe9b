//! Test plugins in a home: where their code runs, and what their library does when it is opened.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{Daemon, until};

/// What a test plugin needs before it works is agreed to by the configuration, where the test says nothing of it.
const PREAUTHORIZED: &str = "approvals:\n  preauthorized: all\n";

/// The text of the torture plugin's library that is its switch, up to the first value.
const SWITCH: &[u8] = b"torture constructor=";
/// The longest value of each of its fields.
const FIELD: usize = 8;

impl Daemon {
    /// Puts a test plugin into the home that runs in the kernel's process, with this manifest below `id`, `name`,
    /// `entrypoint` and `isolation`. It needs no approval, unless the configuration has `approvals`.
    pub fn plugin(&self, id: &str, library: &str, manifest: &str) {
        self.plugin_in("inproc", id, library, manifest);
    }

    /// The same for a plugin whose code runs in the isolation that is named.
    pub fn plugin_in(&self, isolation: &str, id: &str, library: &str, manifest: &str) {
        self.preauthorize();
        // The library first: a manifest is what makes a folder an extension, also to a daemon that watches.
        let target = self.library(id);
        fs::create_dir_all(target.parent().expect("a file has a folder")).expect("a folder");
        fs::copy(built(library), target).expect("the plugin is built with the tests");
        self.write(
            &format!("extensions/{id}/manifest.yaml"),
            &format!("id: {id}\nname: {id}\nentrypoint: lib{id}\nisolation: {isolation}\n{manifest}"),
        );
    }

    /// The library of a plugin in the home.
    pub fn library(&self, id: &str) -> PathBuf {
        self.path().join(format!("extensions/{id}/lib{id}.so"))
    }

    fn preauthorize(&self) {
        let path = self.path().join("drupe.yaml");
        let config = fs::read_to_string(&path).unwrap_or_default();
        if !config.lines().any(|line| line.starts_with("approvals:")) {
            fs::write(path, config + PREAUTHORIZED).expect("a configuration file");
        }
    }

    /// Waits until an extension is in a state; its reason.
    pub fn until_extension(&self, id: &str, state: &str) -> String {
        let mut last = None;
        let found = until("the extension is in that state", || {
            let list = super::Client::connect(self.path()).ok()?.ask("extensions.list", json!({})).ok()?;
            let one = list.as_array()?.iter().find(|e| e["id"] == id)?.clone();
            let is = one["state"] == state;
            let reason = one["reason"].as_str().unwrap_or_default().to_owned();
            last = Some(one);
            is.then_some(reason)
        });
        found.unwrap_or_else(|| panic!("`{id}` was not {state}: {last:?}\n{}", self.log()))
    }
}

/// The library of a plugin that was built with the tests, beside the test program.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test program");
    test.parent().expect("it is in a folder").join(format!("lib{name}.so"))
}

/// Overwrites the switch in a library of the torture plugin, by a new file in the place of the old one: `act` is done
/// when the library is opened by the verb `when`, `any` for all; `variant` makes its content another one.
pub fn switch(library: &Path, act: &str, when: &str, variant: &str) {
    let mut bytes = fs::read(library).expect("a library");
    let at: Vec<usize> =
        bytes.windows(SWITCH.len()).enumerate().filter(|(_, w)| *w == SWITCH).map(|(at, _)| at).collect();
    assert_eq!(at.len(), 1, "the switch is in the library once");
    let text = format!("{act:FIELD$} when={when:FIELD$} variant={variant:FIELD$}");
    assert_eq!(text.len(), "12345678 when=12345678 variant=12345678".len(), "no value is too long");
    let at = at[0] + SWITCH.len();
    bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
    // Made in the home: a strange file in the extension's folder would be content of it for a moment.
    let fresh = library.ancestors().nth(3).expect("a library lies in a home").join("library.new");
    fs::write(&fresh, bytes).expect("a library");
    fs::rename(fresh, library).expect("a library");
}
