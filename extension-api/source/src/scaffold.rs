//! The beginning of a native extension: a folder that builds, whose test passes and which does something already.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use drupe_extension_api::ExtensionId;
use serde_json::json;
use thiserror::Error;

use crate::packed::{SCHEMARS, SERDE, SERDE_JSON};

/// The files of the template. `{{name}}` stands for what [`scaffold`] puts there.
const TEMPLATE: [(&str, &str); 4] = [
    ("manifest.yaml", include_str!("../template/manifest.yaml.in")),
    ("Cargo.toml", include_str!("../template/Cargo.toml.in")),
    ("src/lib.rs", include_str!("../template/lib.rs.in")),
    (".gitignore", include_str!("../template/gitignore.in")),
];

/// The folder of the API in its source, and that of the source in a home.
const API: &str = "extension-api";
const WITHIN_HOME: &str = "data/.sdk/current";

/// Names that a library cannot have, because the crates that every program is built from have them.
const TAKEN: [&str; 5] = ["alloc", "core", "proc_macro", "std", "test"];

/// Why the beginning of an extension could not be written.
#[derive(Debug, Error)]
pub enum ScaffoldError {
    /// The folder is not to be overwritten.
    #[error("`{}` exists already; choose another id, or remove it", .0.display())]
    Exists(PathBuf),
    /// There is no source of the API.
    #[error("`{}` is no unpacked source of the extension API; remove it, and it is unpacked anew", .0.display())]
    NoSource(PathBuf),
    /// A path that a `Cargo.toml` cannot name.
    #[error("`{}` is not UTF-8, and cargo could not find the extension API there", .0.display())]
    NotText(PathBuf),
    /// A file could not be written.
    #[error("`{}` cannot be written: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
}

/// The name of an extension's library, without `lib` and its ending: the id where it can name a crate.
#[must_use]
pub fn library_name(id: &ExtensionId) -> String {
    let name = id.as_str().replace('-', "_");
    if name.starts_with(|first: char| first.is_ascii_digit()) || TAKEN.contains(&name.as_str()) {
        return format!("ext_{name}");
    }
    name
}

/// How the `Cargo.toml` of an extension in the folder `extensions` names the API at `sdk`, as [`current`](crate::current)
/// gave it: from there where both are in one home, so that the home may be moved; else as it is.
#[must_use]
pub fn named(extensions: &Path, sdk: &Path) -> PathBuf {
    // Cargo takes `..` from where a folder really is.
    let home = extensions.canonicalize().ok().and_then(|real| Some(real.parent()?.to_owned()));
    let inside = home.is_some_and(|home| {
        home.join(WITHIN_HOME)
            .canonicalize()
            .is_ok_and(|within| sdk.canonicalize().is_ok_and(|sdk| sdk == within))
    });
    let sdk = if inside { Path::new("../..").join(WITHIN_HOME) } else { sdk.to_owned() };
    sdk.join(API)
}

/// Has the extension in `folder`, which was begun elsewhere, name the API as one in the folder `extensions` does.
///
/// # Errors
///
/// When its `Cargo.toml` cannot be written.
pub fn rename(folder: &Path, extensions: &Path, sdk: &Path) -> io::Result<()> {
    let file = folder.join("Cargo.toml");
    let Ok(text) = fs::read_to_string(&file) else { return Ok(()) };
    let quoted = |path: &Path| json!(path.to_string_lossy()).to_string();
    let there = text.replace(&quoted(&sdk.join(API)), &quoted(&named(extensions, sdk)));
    if there == text { Ok(()) } else { fs::write(&file, there) }
}

/// Writes the beginning of the native extension `id` into `folder`, which must not exist. It builds against the
/// source of the API at `sdk`, which its `Cargo.toml` names as `named`.
///
/// # Errors
///
/// See [`ScaffoldError`]. Nothing is left behind then.
pub fn scaffold(id: &ExtensionId, folder: &Path, sdk: &Path, named: &Path) -> Result<(), ScaffoldError> {
    let api = sdk.join(API);
    let lock = fs::read_to_string(sdk.join("Cargo.lock")).ok().filter(|_| api.join("Cargo.toml").is_file());
    let Some(lock) = lock else { return Err(ScaffoldError::NoSource(sdk.to_owned())) };
    let api = named.to_str().ok_or_else(|| ScaffoldError::NotText(named.to_owned()))?;
    let cannot = |path: &Path| {
        let path = path.to_owned();
        move |error| ScaffoldError::Write { path, error }
    };
    let parent = folder.parent().unwrap_or(folder);
    fs::create_dir_all(parent).map_err(cannot(parent))?;
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => ScaffoldError::Exists(folder.to_owned()),
        _ => cannot(folder)(error),
    })?;
    let written = files(id, api).into_iter().chain([("Cargo.lock", lock)]).try_for_each(|(name, content)| {
        let path = folder.join(name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&path, content)).map_err(cannot(&path))
    });
    if written.is_err() {
        // What is left of it is of no use; the error that matters is the first.
        let _ = fs::remove_dir_all(folder);
    }
    written
}

/// The template with this extension's names.
fn files(id: &ExtensionId, api: &str) -> Vec<(&'static str, String)> {
    let library = library_name(id);
    // JSON texts are texts of YAML and TOML, too: whatever stands in them, it stays inside its quotes.
    let quoted = |text: &str| json!(text).to_string();
    let values = [
        ("id", id.to_string()),
        ("quoted_id", quoted(id.as_str())),
        ("quoted_title", quoted(&title(id))),
        ("library", library.clone()),
        ("quoted_entrypoint", quoted(&format!("lib{library}"))),
        ("schemars", SCHEMARS.to_owned()),
        ("serde", SERDE.to_owned()),
        ("serde_json", SERDE_JSON.to_owned()),
        // Last, because what stands in it is not to be filled.
        ("quoted_api", quoted(api)),
    ];
    let fill = |text: &str| {
        values
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
    };
    TEMPLATE.into_iter().map(|(name, text)| (name, fill(text))).collect()
}

/// An id as a name for people: `word_counter` → `Word counter`.
pub fn title(id: &ExtensionId) -> String {
    let words = id.as_str().replace(['_', '-'], " ");
    let mut letters = words.trim_start().chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
