//! The invariants of `docs/ARCHITECTURE.md`, checked against the sources as they are.

#![expect(clippy::print_stdout, reason = "figures are for whoever reads the output")]
#![expect(clippy::disallowed_methods, reason = "it asks cargo for the workspace's arrows")]

mod errors;
mod messages;

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
    ("drupe-channel", &["drupe-extension-api"]),
    ("drupe-extension-source", &["drupe-extension-api"]),
    ("drupe-json-schema", &[]),
    ("drupe-schedule", &[]),
    ("drupe-config", &["drupe-extension-api", "drupe-json-schema", "drupe-redact", "drupe-schedule"]),
    ("drupe-limits", &["drupe-extension-api"]),
    ("drupe-agent", &["drupe-extension-api", "drupe-json-schema", "drupe-limits"]),
    ("drupe-redact", &[]),
    ("drupe-models", &["drupe-agent", "drupe-extension-api", "drupe-redact"]),
    ("drupe-journal", &["drupe-agent", "drupe-extension-api"]),
    ("drupe-insight", &["drupe-agent", "drupe-extension-api", "drupe-journal"]),
    ("drupe-replay", &["drupe-agent", "drupe-extension-api"]),
    ("drupe-handles", &["drupe-agent", "drupe-extension-api"]),
    ("drupe-programs", &["drupe-confine", "drupe-extension-api", "drupe-handles"]),
    ("drupe-bus", &["drupe-agent", "drupe-extension-api", "drupe-handles", "drupe-journal"]),
    ("drupe-policy", &["drupe-agent", "drupe-config", "drupe-extension-api", "drupe-journal"]),
    ("drupe-surface", &["drupe-extension-api", "drupe-journal", "drupe-link"]),
    ("drupe-confine", &[]),
    ("drupe-link", &["drupe-extension-api"]),
    ("drupe-memory", &[]),
    ("drupe-outward", &["drupe-extension-api"]),
    ("drupe-attachments", &["drupe-confine", "drupe-extension-api"]),
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
    (
        "drupe-host",
        &[
            "drupe-blame",
            "drupe-confine",
            "drupe-extension-abi",
            "drupe-extension-api",
            "drupe-memory",
            "drupe-redact",
        ],
    ),
    (
        "drupe-wiring",
        &[
            "drupe-agent",
            "drupe-config",
            "drupe-extension-api",
            "drupe-host",
            "drupe-models",
            "drupe-prompts",
            "drupe-redact",
            "drupe-schedule",
        ],
    ),
    (
        "drupe-kernel",
        &[
            "drupe-agent",
            "drupe-attachments",
            "drupe-blame",
            "drupe-bus",
            "drupe-config",
            // Backups are made by a process of their own.
            "drupe-confine",
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
            "drupe-outward",
            "drupe-programs",
            "drupe-prompts",
            "drupe-policy",
            "drupe-redact",
            "drupe-replay",
            "drupe-schedule",
            "drupe-surface",
            "drupe-wiring",
        ],
    ),
    ("drupe-backup", &["drupe-agent", "drupe-journal", "drupe-link"]),
    (
        "drupe",
        &[
            "drupe-backup",
            "drupe-blame",
            // What cases of agents mean is known once.
            "drupe-cases",
            "drupe-config",
            "drupe-confine",
            "drupe-extension-api",
            "drupe-extension-source",
            "drupe-folders",
            "drupe-host",
            "drupe-json-schema",
            "drupe-kernel",
            "drupe-link",
            // How servers of other assistants are read is known once.
            "drupe-mcp-import",
            "drupe-memory",
            // Secrets are tried by the same client by which they are used.
            "drupe-outward",
            "drupe-prompts",
            "drupe-redact",
        ],
    ),
    // What it is made of has no socket: a library of texts, one of wire formats, and two that speak a protocol over a
    // stream or the requests that they are given.
    (
        "drupe-ext-http",
        &["drupe-extension-api", "drupe-http-acp", "drupe-http-compat", "drupe-http-mcp", "drupe-http-page"],
    ),
    // Whoever reads files or pages reads PDFs among them, by the same program and within the same bounds.
    ("drupe-ext-files", &["drupe-extension-api", "drupe-pdf-text"]),
    ("drupe-ext-web", &["drupe-extension-api", "drupe-pdf-text"]),
    ("drupe-ext-mcp", &["drupe-extension-api", "drupe-mcp-import"]),
    ("drupe-ext-builder_agent", &["drupe-cases", "drupe-extension-api"]),
    // Schemas that authors write are looked at by the only engine that there is.
    ("drupe-cases", &["drupe-extension-api", "drupe-json-schema"]),
];

/// What every extension may depend on of ours.
const EXTENSION: &[&str] = &["drupe-channel", "drupe-extension-api"];

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
    // The descriptor of a socket that an extension was handed.
    "extension-api/src/sdk/listener.rs",
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
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
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

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    serde_json::from_slice(&output.stdout).expect("cargo tells the workspace")
}

#[test]
fn crates_depend_only_as_the_house_is_drawn() {
    let metadata = metadata();
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
            // Where the program carries extensions, it does so as files: no code of them is linked.
            let carried =
                name == "drupe" && other.starts_with("drupe-ext-") && dependency["optional"] == true;
            assert!(
                !ours || !normal || carried || allowed.contains(&other),
                "`{name}` must not depend on `{other}`"
            );
        }
    }
    for (name, _) in ARROWS {
        assert!(seen.contains(*name), "`{name}` is drawn but not there");
    }
}

/// The modules of `drupe-kernel`, each above those that it may use: an arrow goes down this list, never up, so that no two of
/// them know each other. What stands low is what many take: it knows nothing of who asks, and can be tested alone.
const KERNEL: &[&str] = &[
    "main_loop",
    "boot",
    "opening",
    "host",
    "control",
    "topics",
    "questions",
    "people",
    "kernel",
    "schedules",
    "intake",
    "turn",
    "backups",
    "outbox",
    "draft",
    "forecast",
    "extension",
    "supervision",
    "life",
    "base",
    "settings",
];

#[test]
fn every_library_that_ships_is_built_for_the_tests_and_for_a_program_that_carries_it() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let program = packages.iter().find(|package| package["name"] == "drupe").expect("the program");
    let carried = program["features"]["carried"].as_array().expect("a feature");
    let depends = |name: &str, kind: Value| {
        let mut dependencies = program["dependencies"].as_array().into_iter().flatten();
        dependencies.any(|dependency| dependency["name"] == name && dependency["kind"] == kind)
    };
    for folder in std::fs::read_dir(root().join("extensions")).expect("extensions").flatten() {
        let manifest = std::fs::read_to_string(folder.path().join("manifest.yaml")).unwrap_or_default();
        if !manifest.lines().any(|line| line.starts_with("entrypoint:")) {
            continue;
        }
        let name = format!("drupe-ext-{}", folder.file_name().to_string_lossy());
        let feature = carried.iter().any(|feature| *feature == format!("dep:{name}"));
        assert!(feature && depends(&name, Value::Null), "{name} is not in the feature `carried` of `drupe`");
        assert!(depends(&name, "dev".into()), "{name} is no development dependency of `drupe`");
    }
}

#[test]
fn inside_the_kernel_no_module_uses_one_that_is_above_it() {
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let Some(within) = path.strip_prefix("kernel/src/").filter(|within| *within != "lib.rs") else {
            continue;
        };
        let module = within.split(['/', '.']).next().unwrap_or(within);
        let used = arrows.entry(module.to_owned()).or_default();
        let to_the_root = "super::".repeat(within.matches('/').count() + 1);
        let code = production(&text).collect::<Vec<_>>().join(" ");
        used.extend(modules_used(&code.replace(&to_the_root, "crate::")));
        used.remove(module);
    }
    let place = |module: &str| KERNEL.iter().position(|known| *known == module);
    for (module, used) in &arrows {
        let own = place(module).unwrap_or_else(|| panic!("`{module}` has no place in the order of modules"));
        // What is re-exported at the crate's root is another crate's.
        for other in used.iter().filter(|other| arrows.contains_key(*other)) {
            assert!(place(other) > Some(own), "`{module}` uses `{other}`, which is above it");
        }
        println!("{module} → {used:?}");
    }
    for module in KERNEL {
        assert!(arrows.contains_key(*module), "`{module}` has a place in the order, but is not there");
    }
}

/// The modules at the root of a crate that a source names: `crate::one`, and each of `crate::{one, other::{..}}`.
fn modules_used(code: &str) -> BTreeSet<String> {
    let name = |text: &str| {
        text.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned)
    };
    let mut used = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            used.extend(name(rest));
            continue;
        };
        let mut depth = 0;
        let mut begins = true;
        for (at, character) in group.char_indices() {
            if begins {
                used.extend(name(&group[at..]));
            }
            begins = character == ',' && depth == 0;
            match character {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    used.retain(|module| !module.is_empty());
    used
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
fn every_file_is_one_thing() {
    for (path, text) in sources() {
        let lines = production(&text).count();
        assert!(lines <= 500, "{path} has {lines} lines; is it one thing?");
    }
}

/// Lines of code of the crates of ours that run in the kernel's process, `drupe-kernel` itself included. Whoever finds a
/// fault in one of them has the journal and the keys, so they are counted as a whole, wherever a folder of them lies.
///
/// A ceiling that only goes down: whoever deletes lowers it. One who has to raise it says why in `docs/decisions/`.
const TRUSTED: usize = 72_266;

#[test]
fn what_is_trusted_stays_small() {
    let packages = workspace();
    let mut trusted = BTreeSet::from(["drupe-kernel"]);
    let mut waiting: Vec<&str> = trusted.iter().copied().collect();
    while let Some(name) = waiting.pop() {
        let arrows = ARROWS.iter().find(|(from, _)| *from == name).map_or(&[][..], |(_, to)| to);
        waiting.extend(arrows.iter().filter(|to| trusted.insert(to)));
    }
    let sources = sources();
    let mut total = 0;
    for name in trusted {
        let folder = format!("{}/src/", packages[name]);
        let files = sources.iter().filter(|(path, _)| path.starts_with(&folder));
        let code = |text: &str| production(text).filter(|line| !line.trim().is_empty()).count();
        let lines: usize = files.map(|(_, text)| code(text)).sum();
        println!("{lines:6} {name}");
        total += lines;
    }
    println!("{total:6} lines of code are trusted");
    assert!(
        total <= TRUSTED,
        "{total} lines of code are trusted, and {TRUSTED} may be: delete, or move what need not be trusted"
    );
}

/// The folder of each package of the workspace, from the root.
/// Where no example of the documentation is looked for there is none: it would never be run.
#[test]
fn every_example_of_the_documentation_is_run() {
    let (packages, sources) = (metadata(), sources());
    let targets = packages["packages"].as_array().expect("packages").iter();
    let targets = targets.flat_map(|package| package["targets"].as_array().expect("targets"));
    for target in
        targets.filter(|target| target["doctest"] == false && target["name"] != "build-script-build")
    {
        let path = Path::new(target["src_path"].as_str().expect("a path"));
        let folder =
            path.parent().and_then(|folder| folder.strip_prefix(root()).ok()).expect("beneath the root");
        for (path, text) in sources.iter().filter(|(path, _)| Path::new(path).starts_with(folder)) {
            let fences = text
                .lines()
                .map(str::trim_start)
                .filter_map(|line| line.strip_prefix("/// ```").or_else(|| line.strip_prefix("//! ```")));
            let example =
                fences.into_iter().step_by(2).find(|kind| kind.is_empty() || kind.starts_with("rust"));
            assert!(example.is_none(), "{path} has an example: take `doctest = false` out of its Cargo.toml");
        }
    }
}

fn workspace() -> BTreeMap<String, String> {
    let folder = |manifest: &str| {
        let folder = Path::new(manifest).parent().expect("a manifest lies in a folder");
        folder.strip_prefix(root()).expect("beneath the root").display().to_string()
    };
    let packages = metadata();
    let packages = packages["packages"].as_array().expect("packages").iter();
    packages
        .map(|package| {
            let text = |key: &str| package[key].as_str().expect("a text").to_owned();
            (text("name"), folder(&text("manifest_path")))
        })
        .collect()
}

/// What nobody should write again, and what there still is of it. The ceilings only go down: whoever removes one lowers
/// the number, and nobody raises it.
///
/// A comment of four words mostly repeats a name: it is to give a reason, a unit, a default or an error, or to go. Types
/// of one name in two crates make a reader ask which is meant. A `String` as an error is one that no caller can tell
/// from another.
const SHORT_COMMENTS: usize = 740;
const SHARED_NAMES: usize = 72;
const TEXTS_AS_ERRORS: usize = 39;

#[test]
fn what_makes_the_sources_hard_to_read_becomes_less() {
    let (mut short, mut texts) = (Vec::new(), Vec::new());
    let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(&text);
        let lines: Vec<&str> = code.lines().map(str::trim).collect();
        let comment =
            |at: Option<usize>| at.and_then(|at| lines.get(at)).is_some_and(|l| l.starts_with("///"));
        for (at, line) in lines.iter().enumerate() {
            let place = || format!("{path}:{}", at + 1);
            if let Some(words) = line.strip_prefix("///").map(|words| words.split_whitespace().count())
                && (1..=4).contains(&words)
                && !comment(at.checked_sub(1))
                && !comment(Some(at + 1))
            {
                short.push(place());
            }
            if line.contains("Result<") && line.contains(", String>") {
                texts.push(place());
            }
            let declared = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
            if let Some(rest) = declared.iter().find_map(|word| line.strip_prefix(word)) {
                let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(rest);
                named.entry(name.to_owned()).or_default().insert(path.clone());
            }
        }
    }
    named.retain(|_, files| files.len() > 1);
    println!("{} short comments, {} errors that are texts", short.len(), texts.len());
    println!("{} names of several types: {named:#?}", named.len());
    assert!(short.len() <= SHORT_COMMENTS, "{} comments of at most four words: {short:#?}", short.len());
    assert!(texts.len() <= TEXTS_AS_ERRORS, "{} errors that are texts: {texts:#?}", texts.len());
    assert!(named.len() <= SHARED_NAMES, "{} names of several types: {named:#?}", named.len());
}
