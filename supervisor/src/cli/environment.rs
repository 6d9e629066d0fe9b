//! The variables of the process. Configuration is text, and most variables are; a path may be one that is not.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use drupe_config::{CatalogueProvider, model_catalogue};

use super::failure::{Failure, status};

/// Further variables that are read. Where one is not text it is taken as not set, and that is said.
const OTHERS: [&str; 11] = [
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "PATH",
    "RUSTUP_HOME",
    "RUST_LOG",
    "TERM",
    "USER",
    "WATCHDOG_USEC",
];

/// Variables that are paths, and are used as they are.
const PATHS: [&str; 4] = ["DRUPE_HOME", "HOME", "NOTIFY_SOCKET", "XDG_DATA_HOME"];

/// What configures this process and what it starts.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub text: BTreeMap<String, String>,
    rest: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// Sorts what the system gave.
    pub fn new(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut sorted = Self::default();
        for (name, value) in variables {
            match (name.to_str(), value.to_str()) {
                (Some(name), Some(value)) => drop(sorted.text.insert(name.to_owned(), value.to_owned())),
                _ => drop(sorted.rest.insert(name, value)),
            }
        }
        sorted
    }

    /// A variable that is set to something, whatever its bytes.
    pub fn bytes(&self, name: &str) -> Option<&OsStr> {
        let text = self.text.get(name).map(OsStr::new);
        text.or_else(|| self.rest.get(OsStr::new(name)).map(OsString::as_os_str))
            .filter(|value| !value.is_empty())
    }

    /// The same as a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.bytes(name).map(PathBuf::from)
    }

    /// What is said of variables that are not text: a failure where one configures drupe, by its name or because `files`
    /// of the configuration name it; else remarks.
    pub fn unreadable(&self, files: &[PathBuf]) -> Result<Vec<String>, Failure> {
        let names = self.rest.keys().map(|name| name.to_string_lossy().into_owned());
        let mut remarks = Vec::new();
        for name in names.filter(|name| !PATHS.contains(&name.as_str())) {
            if configures(&name, files) {
                let message = format!("the value of the environment variable `{name}` is not UTF-8");
                return Err(Failure::new(status::CONFIG, message).help("correct it, or unset it"));
            }
            if OTHERS.contains(&name.as_str()) {
                remarks.push(format!("`{name}` is not UTF-8, and is taken as not set"));
            }
        }
        Ok(remarks)
    }
}

/// Whether a variable sets a key of the configuration, is a provider's key or address, or is named in a file.
fn configures(name: &str, files: &[PathBuf]) -> bool {
    let of = |provider: &CatalogueProvider| {
        let CatalogueProvider { key, other_key, address, .. } = provider;
        key == name || other_key.as_deref() == Some(name) || address.as_deref() == Some(name)
    };
    let placeholder = format!("${{{name}");
    let names = |text: &str| {
        text.match_indices(&placeholder).any(|(at, _)| text[at + placeholder.len()..].starts_with(['}', ':']))
    };
    let text = |file: &PathBuf| drupe_config::read_text_file(file).is_ok_and(|text| names(&text));
    name.starts_with("DRUPE_") || model_catalogue().providers.iter().any(of) || files.iter().any(text)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::ffi::OsStringExt};

    use super::*;

    fn with(name: &str) -> Environment {
        let value = OsString::from_vec(b"/caf\xe9".to_vec());
        Environment::new([(name.into(), value), ("LANG".into(), "C".into())].into_iter())
    }

    #[test]
    fn what_is_not_text_is_still_a_path() {
        let environment = with("HOME");
        assert_eq!(environment.text.len(), 1);
        assert_eq!(environment.path("HOME"), Some(OsString::from_vec(b"/caf\xe9".to_vec()).into()));
        assert!(environment.path("NOTHING").is_none());
        assert_eq!(environment.unreadable(&[]).expect("a path may be any").len(), 0);
    }

    #[test]
    fn what_configures_drupe_and_is_not_text_is_refused_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("drupe.yaml");
        fs::write(&file, "models: {providers: {own: {api_key: \"${OWN_KEY:-none}\"}}}\n").expect("a file");
        for name in ["DRUPE_ORCHESTRATOR__MODEL", "OPENAI_API_KEY", "OWN_KEY"] {
            let refused =
                with(name).unreadable(std::slice::from_ref(&file)).expect_err("it would be ignored");
            assert!(refused.status == 78 && refused.to_string().contains(name), "{refused}");
        }
        for name in ["OWN", "OWN_KEY_2"] {
            assert!(
                with(name).unreadable(std::slice::from_ref(&file)).is_ok_and(|said| said.is_empty()),
                "{name}"
            );
        }
        assert!(with("PATH").unreadable(&[]).is_ok_and(|said| said[0].contains("`PATH`")));
    }
}
