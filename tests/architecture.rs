//! The invariants of `docs/ARCHITECTURE.md`, checked against the sources as they are.

#![expect(clippy::print_stdout, reason = "figures are for whoever reads the output")]
#![expect(clippy::disallowed_methods, reason = "it asks cargo for the workspace's arrows")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Who may depend on whom, our own crates only; development dependencies aside.
const ARROWS: &[(&str, &[&str])] = &[
    ("drupe-extension-abi", &[]),
    ("drupe-extension-api", &["drupe-extension-abi"]),
    ("drupe-extension-source", &["drupe-extension-api"]),
    ("drupe-config", &["drupe-extension-api"]),
    ("drupe-limits", &["drupe-extension-api"]),
    ("drupe-agent", &["drupe-extension-api", "drupe-limits"]),
    ("drupe-models", &["drupe-agent", "drupe-extension-api"]),
    ("drupe-journal", &["drupe-agent", "drupe-extension-api"]),
    ("drupe-insight", &["drupe-agent", "drupe-extension-api", "drupe-journal"]),
    ("drupe-handles", &["drupe-agent", "drupe-extension-api"]),
    ("drupe-programs", &["drupe-confine", "drupe-extension-api", "drupe-handles"]),
    ("drupe-bus", &["drupe-agent", "drupe-extension-api", "drupe-handles", "drupe-journal"]),
    ("drupe-policy", &["drupe-agent", "drupe-extension-api", "drupe-journal"]),
    ("drupe-surface", &["drupe-extension-api", "drupe-journal", "drupe-link"]),
    ("drupe-confine", &[]),
    ("drupe-link", &["drupe-extension-api"]),
    ("drupe-memory", &[]),
    ("drupe-blame", &[]),
    ("drupe-folders", &["drupe-confine"]),
    (
        "drupe-gate",
        &[
            "drupe-config",
            "drupe-extension-api",
            "drupe-folders",
            "drupe-link",
            "drupe-models",
            "drupe-prompts",
            "drupe-wiring",
        ],
    ),
    ("drupe-prompts", &["drupe-agent", "drupe-config", "drupe-confine", "drupe-extension-api"]),
    ("drupe-host", &["drupe-blame", "drupe-confine", "drupe-extension-abi", "drupe-extension-api"]),
    (
        "drupe-wiring",
        &[
            "drupe-agent",
            "drupe-config",
            "drupe-extension-api",
            "drupe-host",
            "drupe-models",
            "drupe-prompts",
        ],
    ),
    (
        "drupe-kernel",
        &[
            "drupe-agent",
            "drupe-blame",
            "drupe-bus",
            "drupe-config",
            "drupe-extension-abi",
            "drupe-extension-api",
            "drupe-extension-source",
            "drupe-folders",
            "drupe-gate",
            "drupe-handles",
            "drupe-host",
            "drupe-insight",
            "drupe-journal",
            "drupe-limits",
            "drupe-link",
            "drupe-memory",
            "drupe-models",
            "drupe-programs",
            "drupe-prompts",
            "drupe-policy",
            "drupe-surface",
            "drupe-wiring",
        ],
    ),
    (
        "drupe",
        &[
            "drupe-blame",
            "drupe-config",
            "drupe-confine",
            "drupe-extension-api",
            "drupe-extension-source",
            "drupe-folders",
            "drupe-host",
            "drupe-kernel",
            "drupe-link",
            "drupe-memory",
            "drupe-prompts",
        ],
    ),
];

/// What every extension may depend on of ours.
const EXTENSION: &[&str] = &["drupe-extension-api"];

/// Where `unsafe` may stand, and why.
const UNSAFE: &[&str] = &[
    // The loader.
    "kernel/host/src/library.rs",
    // Descriptors that a process is started with, taken as the first thing that it does.
    "kernel/host/src/child.rs",
    "supervisor/src/main.rs",
    // The page that outlives the kernel, and the handlers that write it while a thread dies.
    "kernel/blame/src/",
    // Confinement: descriptors and what runs between fork and exec.
    "kernel/confine/src/",
    // What is mapped, as the loader tells it, and the advice to drop it.
    "kernel/memory/src/lib.rs",
    // The symbol that a library exports.
    "extension-api/src/sdk/export.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the supervisor is a folder of the workspace")
        .to_owned()
}

/// Every production source, with its path from the root.
fn sources() -> BTreeMap<String, String> {
    fn walk(folder: &Path, root: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let skipped = name.starts_with('.')
                || ["target", "tests", "benches", "examples", "sandbox"].contains(&name.as_str());
            if path.is_dir() && !skipped {
                walk(&path, root, found);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                let text = fs::read_to_string(&path).expect("a source");
                let shown = path.strip_prefix(root).expect("beneath the root").display().to_string();
                found.insert(shown, text);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&root(), &root(), &mut found);
    assert!(found.len() > 50, "the sources are found");
    found
}

/// The lines of a source before its tests, without comments.
fn production(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    code.lines().map(|line| line.split("//").next().unwrap_or(line))
}

#[test]
fn crates_depend_only_as_the_house_is_drawn() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo tells the workspace");
    let mut seen = BTreeSet::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let folder = package["manifest_path"].as_str().expect("a path");
        if folder.contains("/tests/") {
            continue;
        }
        let allowed = match ARROWS.iter().find(|(n, _)| *n == name) {
            Some((_, allowed)) => *allowed,
            None if folder.contains("/extensions/") => EXTENSION,
            None => panic!("`{name}` is not in the drawing"),
        };
        seen.insert(name.to_owned());
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let other = dependency["name"].as_str().expect("a name");
            let ours = other.starts_with("drupe");
            let normal = dependency["kind"].is_null();
            assert!(!ours || !normal || allowed.contains(&other), "`{name}` must not depend on `{other}`");
        }
    }
    for (name, _) in ARROWS {
        assert!(seen.contains(*name), "`{name}` is drawn but not there");
    }
}

#[test]
fn unsafe_code_stands_only_where_it_must_and_says_why() {
    for (path, text) in sources() {
        let lines: Vec<&str> = production(&text).collect();
        for (at, line) in lines.iter().enumerate() {
            if !line.contains("unsafe ") || line.contains("unsafe_op") {
                continue;
            }
            assert!(UNSAFE.iter().any(|allowed| path.starts_with(allowed)), "{path}:{}: unsafe code", at + 1);
            let whole: Vec<&str> = text.lines().collect();
            let explained = whole[at.saturating_sub(6)..=at].iter().any(|l| l.contains("SAFETY:"));
            assert!(explained, "{path}:{}: unsafe code without `SAFETY:`", at + 1);
        }
    }
}

#[test]
fn the_loop_does_not_branch_on_where_a_tool_comes_from() {
    for (path, text) in sources().into_iter().filter(|(p, _)| p.starts_with("kernel/agent/src/")) {
        for line in production(&text) {
            let asks = line.contains(".origin()");
            let decides =
                line.contains("if ") || line.contains("match ") || line.contains("==") || line.contains("!=");
            assert!(!(asks && decides), "{path}: {line}");
        }
    }
}

#[test]
fn only_the_entry_point_reads_the_environment() {
    for (path, text) in sources() {
        // A build script is told by its environment where to write.
        let entry = path.starts_with("supervisor/src/") || path.ends_with("/build.rs");
        for line in production(&text) {
            let reads =
                ["env::var(", "env::var_os(", "env::vars(", "env::vars_os("].iter().any(|c| line.contains(c));
            assert!(!reads || entry, "{path}: {line}");
        }
    }
}

#[test]
fn what_is_trusted_stays_small() {
    /// The crates whose code runs in the kernel's process: whoever finds a fault in one of them has the journal and the
    /// keys. It may only grow with a reason in `docs/decisions/`; whoever makes it smaller lowers it.
    const TRUSTED: [&str; 3] = ["kernel/", "config/src/", "extension-api/src/"];
    const MOST: usize = 68_500;
    let mut trusted = 0;
    for (path, text) in sources() {
        let lines = production(&text).count();
        assert!(lines <= 500, "{path} has {lines} lines; is it one thing?");
        if TRUSTED.iter().any(|part| path.starts_with(part)) {
            trusted += lines;
        }
    }
    println!("{trusted} lines are trusted");
    assert!(trusted <= MOST, "{trusted} lines are trusted; {MOST} are the most");
}
