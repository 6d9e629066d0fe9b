//! What is scaffolded is a real extension: it checks, builds and passes its own test, away from the workspace.

#![expect(clippy::disallowed_methods, reason = "it runs cargo as an author of an extension does")]

use std::{fs, path::Path, process::Command};

use drupe_extension_api::ExtensionId;
use drupe_extension_source::{ScaffoldError, current, library_name, named, rename, scaffold, unpack};

fn id(text: &str) -> ExtensionId {
    ExtensionId::new(text).expect("a valid id")
}

fn cargo(args: &[&str], folder: &Path, target: &Path) {
    let output = Command::new(env!("CARGO"))
        .args(args)
        .args(["--offline", "--quiet"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        // What is tested is that it compiles, not how fast it runs.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {args:?} in {}:\n{said}", folder.display());
    assert!(!said.contains("warning"), "cargo {args:?} in {}:\n{said}", folder.display());
}

#[test]
fn a_new_extension_builds_offline_and_passes_its_test() {
    let root = tempfile::tempdir().expect("a folder");
    let sdk = unpack(&root.path().join("sdk")).expect("it is written");
    let target = root.path().join("target");
    // One whose library is named like it, and one that needs another name.
    for (name, library) in [("word-counter", "word_counter"), ("7up", "ext_7up")] {
        let folder = root.path().join(name);
        scaffold(&id(name), &folder, &sdk, &sdk.join("extension-api")).expect("it is written");
        if name == "7up" {
            use_the_library_of_channels(&folder, &sdk);
        }
        cargo(&["build", "--release"], &folder, &target);
        let built = target.join(format!("release/lib{library}{}", std::env::consts::DLL_SUFFIX));
        assert!(built.is_file(), "{} is built", built.display());
        cargo(&["test", "--release"], &folder, &target);
        the_versions_are_those_of_this_release(&folder, &sdk);
    }
}

/// It is carried as well, and an extension that is no channel has nothing of it.
fn use_the_library_of_channels(folder: &Path, sdk: &Path) {
    let add = |file: &str, from: &str, to: String| {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).expect("it was written");
        assert!(text.contains(from), "{file}");
        fs::write(path, text.replacen(from, &to, 1)).expect("it is written");
    };
    let library =
        format!("drupe-channel = {{ path = {:?} }}\n\n[dev-dependencies]", sdk.join("extension-api/channel"));
    add("Cargo.toml", "[dev-dependencies]", library);
    add(
        "src/lib.rs",
        "\nexport!",
        "\n/// What it keeps.\npub type Words = drupe_channel::KeptState<Vec<String>>;\n\nexport!".to_owned(),
    );
}

/// Cargo has made the lock file its own, and every version in there is one that was given.
fn the_versions_are_those_of_this_release(folder: &Path, sdk: &Path) {
    let packages = |path: &Path| -> Vec<(String, String)> {
        let lock: toml_edit::DocumentMut =
            fs::read_to_string(path).expect("a lock file").parse().expect("a lock file is TOML");
        let packages = lock["package"].as_array_of_tables().expect("packages");
        packages
            .iter()
            .map(|package| (package["name"].to_string(), package["version"].to_string()))
            .filter(|(name, _)| !name.contains("drupe-ext-"))
            .collect()
    };
    let given = packages(&sdk.join("Cargo.lock"));
    let used = packages(&folder.join("Cargo.lock"));
    assert!(used.len() > 20, "{used:?}");
    for package in used {
        assert!(given.contains(&package), "{package:?} is of another version");
    }
}

#[test]
fn every_id_gives_a_manifest_without_fault() {
    let root = tempfile::tempdir().expect("a folder");
    let sdk = unpack(&root.path().join("sdk")).expect("it is written");
    let longest = "x".repeat(48);
    for name in ["words", "word-counter", "7", "null", "true", "std", "a_-", "0x1", longest.as_str()] {
        let folder = root.path().join("home/extensions").join(name);
        scaffold(&id(name), &folder, &sdk, &sdk.join("extension-api")).expect("it is written");
        let loaded = drupe_config::load_manifest(&folder, &root.path().join("home"))
            .unwrap_or_else(|faults| panic!("{name}: {}", faults.render(false)));
        assert!(!loaded.warnings.has_errors() && loaded.warnings.render(false).is_empty(), "{name}");
        assert_eq!(loaded.value.entrypoint, Some(format!("lib{}", library_name(&id(name)))));
    }
}

#[test]
fn a_folder_that_exists_is_left_alone() {
    let root = tempfile::tempdir().expect("a folder");
    let sdk = unpack(&root.path().join("sdk")).expect("it is written");
    let folder = root.path().join("mine");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("manifest.yaml"), "mine").expect("a file");
    let refused = scaffold(&id("mine"), &folder, &sdk, &sdk.join("extension-api"));
    assert!(matches!(&refused, Err(ScaffoldError::Exists(path)) if *path == folder), "{refused:?}");
    assert_eq!(fs::read_to_string(folder.join("manifest.yaml")).expect("a file"), "mine");
}

#[test]
fn without_the_source_of_the_api_nothing_is_written() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("mine");
    let refused = scaffold(&id("mine"), &folder, &root.path().join("none"), Path::new("none"));
    assert!(matches!(refused, Err(ScaffoldError::NoSource(_))), "{refused:?}");
    assert!(!folder.exists());
}

#[test]
fn a_path_with_quotes_and_braces_stays_a_path() {
    let root = tempfile::tempdir().expect("a folder");
    let sdk = unpack(&root.path().join("a \"sdk\" \\ {{serde_json}}")).expect("it is written");
    let folder = root.path().join("mine");
    scaffold(&id("mine"), &folder, &sdk, &sdk.join("extension-api")).expect("it is written");
    let manifest: toml_edit::DocumentMut =
        fs::read_to_string(folder.join("Cargo.toml")).expect("a file").parse().expect("TOML");
    let named = manifest["dependencies"]["drupe-extension-api"]["path"].as_str();
    assert_eq!(named, sdk.join("extension-api").to_str());
}

/// Whether cargo finds all that the extension in `folder` names.
fn resolves(folder: &Path) -> bool {
    let mut cargo = Command::new(env!("CARGO"));
    // Of what is needed here alone: other platforms' crates were never fetched.
    cargo.args(["tree", "--offline", "--quiet"]).current_dir(folder);
    cargo.output().expect("cargo runs").status.success()
}

#[test]
fn an_extension_finds_the_api_where_its_home_was_moved_and_the_source_deleted_and_made_again() {
    let root = tempfile::tempdir().expect("a folder");
    let (home, moved) = (root.path().join("home"), root.path().join("moved"));
    let extensions = home.join("extensions");
    fs::create_dir_all(&extensions).expect("a folder");
    let sdk = current(&home.join("data/.sdk")).expect("it is written");
    let name = named(&extensions, &sdk);
    assert_eq!(name, Path::new("../../data/.sdk/current/extension-api"));
    scaffold(&id("words"), &extensions.join("words"), &sdk, &name).expect("it is written");
    // One that was begun elsewhere and added.
    let draft = home.join("data/maker/drafts/made");
    scaffold(&id("made"), &draft, &sdk, &named(&home.join("data/maker/drafts"), &sdk))
        .expect("it is written");
    assert!(resolves(&draft));
    fs::rename(&draft, extensions.join("made")).expect("it is moved");
    rename(&extensions.join("made"), &extensions, &sdk).expect("it is written");
    fs::rename(&home, &moved).expect("it is moved");
    for made in ["words", "made"] {
        assert!(resolves(&moved.join("extensions").join(made)), "{made}");
    }
    fs::remove_dir_all(moved.join("data/.sdk")).expect("it is removed");
    assert!(!resolves(&moved.join("extensions/words")));
    current(&moved.join("data/.sdk")).expect("it is written");
    assert!(resolves(&moved.join("extensions/words")));
}

#[test]
fn where_the_folder_of_extensions_is_a_link_the_api_is_named_as_it_is() {
    let root = tempfile::tempdir().expect("a folder");
    let home = root.path().join("home");
    fs::create_dir_all(root.path().join("elsewhere")).expect("a folder");
    let sdk = current(&home.join("data/.sdk")).expect("it is written");
    std::os::unix::fs::symlink(root.path().join("elsewhere"), home.join("extensions")).expect("a link");
    assert_eq!(named(&home.join("extensions"), &sdk), sdk.join("extension-api"));
}
