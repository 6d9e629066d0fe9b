//! Packs the source of the extension API into this crate: sources as they are, manifests that stand without the
//! workspace, and the part of the lock file that they reach.
//!
//! Tests stay out: whoever builds an extension does not run those of its API.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What every new extension depends on beside the API itself, and where.
const OF_EXTENSIONS: [(&str, &str); 3] =
    [("schemars", "SCHEMARS"), ("serde", "SERDE"), ("serde_json", "SERDE_JSON")];

/// The folders of the packages that are carried, from the root of the workspace: the API and what lies within it.
const PACKED: [&str; 3] = ["extension-api", "extension-api/abi", "extension-api/channel"];

/// Where the tests of a file begin, which stand last in it.
const TESTS: &str = "#[cfg(test)]\nmod tests";

fn main() -> Outcome<()> {
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("this crate lies in that of the API")?;
    let root = api.parent().ok_or("the API lies in the workspace")?;
    #[expect(
        clippy::disallowed_methods,
        reason = "cargo says in no other way where a build script may write"
    )]
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo gives `OUT_DIR`")?);

    let workspace = read(&root.join("Cargo.toml"))?;
    let mut files = BTreeMap::new();
    for place in PACKED {
        let folder = root.join(place);
        sources(&folder.join("src"), &format!("{place}/src"), &mut files)?;
        let manifest = standalone(read(&folder.join("Cargo.toml"))?, &workspace, place)?;
        files.insert(format!("{place}/Cargo.toml"), manifest);
    }
    files.insert("Cargo.lock".to_owned(), reached(&read(&root.join("Cargo.lock"))?)?);

    fs::write(out.join("packed.rs"), packed(&files, &workspace)?)?;
    Ok(())
}

/// Reads a TOML file, and has cargo run this again when it changes.
fn read(path: &Path) -> Outcome<DocumentMut> {
    println!("cargo::rerun-if-changed={}", path.display());
    Ok(fs::read_to_string(path)?.parse()?)
}

/// Every source of a folder but tests.
fn sources(folder: &Path, place: &str, files: &mut BTreeMap<String, String>) -> Outcome<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let inner = format!("{place}/{name}");
        if path.is_dir() && name != "tests" {
            sources(&path, &inner, files)?;
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(path)?;
            files.insert(inner, text.split(TESTS).next().unwrap_or_default().to_owned());
        }
    }
    Ok(())
}

/// A manifest with what it takes from the workspace written out. Lints and tests are the workspace's own affair.
fn standalone(mut manifest: DocumentMut, workspace: &DocumentMut, place: &str) -> Outcome<String> {
    let shared = &workspace["workspace"];
    let package = manifest["package"].as_table_mut().ok_or("a manifest has a package")?;
    let inherited: Vec<String> = package
        .iter()
        .filter(|(_, item)| item.get("workspace").is_some())
        .map(|(key, _)| key.to_owned())
        .collect();
    for key in inherited {
        let value = shared["package"].get(&key).and_then(Item::as_value);
        package[&key] = Item::Value(value.ok_or(format!("the workspace has `package.{key}`"))?.clone());
    }
    for part in ["lints", "dev-dependencies"] {
        manifest.remove(part);
    }
    let dependencies = manifest["dependencies"].as_table_mut().ok_or("a manifest has dependencies")?;
    for (name, item) in dependencies.iter_mut() {
        let name = name.get().to_owned();
        let own = item.as_table_like().ok_or(format!("`{name}` is inherited"))?;
        let mut value = shared_dependency(shared, &name)?;
        if let Some(path) = value.get("path").and_then(Value::as_str) {
            // Crates of ours lie as they lie in the workspace: beneath this one, or around it.
            let beneath = path.strip_prefix(place).map(|path| path.trim_start_matches('/').to_owned());
            let around = place.strip_prefix(path).map(|rest| vec![".."; rest.matches('/').count()].join("/"));
            let path =
                beneath.or(around).ok_or(format!("`{path}` lies neither around `{place}` nor in it"))?;
            value.insert("path", path.into());
        }
        for (key, more) in own.iter().filter(|(key, _)| *key != "workspace") {
            if key != "optional" && (key != "features" || value.contains_key("features")) {
                return Err(
                    format!("`{name}`: merging `{key}` with the workspace's is not known here").into()
                );
            }
            value.insert(key, more.as_value().ok_or(format!("`{key}` is a value"))?.clone());
        }
        *item = Item::Value(Value::InlineTable(value));
    }
    Ok(manifest.to_string())
}

/// What the workspace says of a dependency, always as a table.
fn shared_dependency(shared: &Item, name: &str) -> Outcome<InlineTable> {
    match shared["dependencies"].get(name).and_then(Item::as_value) {
        Some(Value::InlineTable(table)) => Ok(table.clone()),
        Some(Value::String(version)) => {
            let mut table = InlineTable::new();
            table.insert("version", version.value().into());
            Ok(table)
        }
        _ => Err(format!("the workspace has no dependency `{name}`").into()),
    }
}

/// The lock file without the packages that an extension does not reach, so that it resolves to the versions that this
/// release was built with.
fn reached(lock: &DocumentMut) -> Outcome<String> {
    let packages = lock["package"].as_array_of_tables().ok_or("a lock file has packages")?;
    let named = |name: &str, version: Option<&str>| -> Vec<&Table> {
        let is = |p: &&Table| {
            p["name"].as_str() == Some(name) && version.is_none_or(|v| p["version"].as_str() == Some(v))
        };
        packages.iter().filter(is).collect()
    };
    let key = |package: &Table| (package["name"].to_string(), package["version"].to_string());
    let mut kept = BTreeSet::new();
    let mut open: Vec<&Table> = named("drupe-channel", None);
    open.extend(OF_EXTENSIONS.iter().flat_map(|(name, _)| named(name, None)));
    while let Some(package) = open.pop() {
        if kept.insert(key(package)) {
            let dependencies =
                package.get("dependencies").and_then(Item::as_array).into_iter().flat_map(Array::iter);
            for dependency in dependencies.filter_map(Value::as_str) {
                let mut words = dependency.split(' ');
                open.extend(named(words.next().unwrap_or_default(), words.next()));
            }
        }
    }
    let mut pruned = DocumentMut::new();
    pruned["version"] = lock["version"].clone();
    let kept: ArrayOfTables =
        packages.iter().filter(|package| kept.contains(&key(package))).cloned().collect();
    pruned["package"] = Item::ArrayOfTables(kept);
    Ok(pruned.to_string())
}

/// The Rust source that holds it all.
fn packed(files: &BTreeMap<String, String>, workspace: &DocumentMut) -> Outcome<String> {
    let mut hash = Sha256::new();
    let mut text = String::from("/// Paths and contents, in order.\npub const FILES: &[(&str, &str)] = &[\n");
    for (path, content) in files {
        hash.update((path.len() as u64).to_le_bytes());
        hash.update(path);
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content);
        text += &format!("    ({path:?}, {content:?}),\n");
    }
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    text += &format!("];\n\n/// The beginning of the hash of all that.\npub const HASH: &str = {hash:?};\n");
    for (name, constant) in OF_EXTENSIONS {
        let dependency = shared_dependency(&workspace["workspace"], name)?;
        let version =
            dependency.get("version").and_then(Value::as_str).ok_or("a dependency has a version")?;
        text += &format!(
            "\n/// The version of `{name}` that extensions ask for.\npub const {constant}: &str = {version:?};\n"
        );
    }
    Ok(text)
}
