//! Every file of `tests/cases` with the diagnostics that it earns beside it, as `.diag`.
//!
//! `DRUPE_BLESS=1 cargo test -p drupe-config` writes what is compared here; look at the difference before it is
//! committed.

use std::{fmt::Write, fs, path::Path};

use drupe_config::{Diagnostics, Instructions, Loaded, adopt_agent, config_schema, manifest_schema};
use drupe_extension_api::ExtensionId;
use serde_json::Value;

use crate::home::Home;

#[test]
fn every_case_earns_the_diagnostics_beside_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|ending| ending != "diag"));
    names.sort();
    assert!(names.len() >= 20, "the cases are missing");
    let mut wrong = Vec::new();
    for path in names {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let found = match name.split('_').next() {
            Some("manifest") => manifest(&text),
            Some("agent") => agent(&text),
            Some("adopted") => adopted(&text),
            _ => config(&text),
        };
        if !same(&path.with_extension("diag"), &found) {
            wrong.push(format!("--- {name} ---\n{found}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "run DRUPE_BLESS=1 cargo test -p drupe-config if this is meant:\n{}",
        wrong.join("\n")
    );
}

/// Compares with a file, or writes it where that is asked for.
#[expect(clippy::disallowed_methods, reason = "a test is its own entry point, and this is its one switch")]
pub fn same(path: &Path, found: &str) -> bool {
    if std::env::var_os("DRUPE_BLESS").is_some() {
        fs::write(path, found).unwrap();
        return true;
    }
    fs::read_to_string(path).is_ok_and(|expected| expected == found)
}

fn manifest(text: &str) -> String {
    let home = Home::new();
    let (accepted, faults) = match home.manifest(text) {
        Ok(loaded) => (true, loaded.warnings),
        Err(faults) => (false, faults),
    };
    agree(&manifest_schema(), text, accepted, &faults);
    home.anonymous(&report(accepted, &faults))
}

/// Of an agent that is a single file, also what it became.
fn agent(text: &str) -> String {
    let home = Home::new();
    let (mut shown, faults) = match home.agent_file(text) {
        Ok(Loaded { value: manifest, warnings }) => (format!("{manifest:#?}\n"), warnings),
        Err(faults) => (String::new(), faults),
    };
    // Places within the file are for messages, and long.
    shown.truncate(shown.find("    located: ").unwrap_or(0));
    home.anonymous(&(report(!shown.is_empty(), &faults) + &shown))
}

/// Of an agent of another system, the file of ours that it becomes, which is one.
fn adopted(text: &str) -> String {
    let home = Home::new();
    let id = ExtensionId::new("demo").unwrap();
    match adopt_agent(Path::new("HOME/theirs.md"), &id, text.to_owned()) {
        Ok(Loaded { value, warnings }) => {
            let file = value.file();
            let again = home.agent_file(&file).unwrap_or_else(|faults| panic!("{faults}\n{file}")).value;
            let prompt = value.agent["instructions"].as_str().unwrap().trim().to_owned();
            assert_eq!(again.agent.unwrap().instructions, Some(Instructions::Inline(prompt)));
            let servers = value.servers.map(|servers| format!("servers: {servers}\n"));
            report(true, &warnings) + &file + &servers.unwrap_or_default()
        }
        Err(faults) => report(false, &faults),
    }
}

fn config(text: &str) -> String {
    let home = Home::new();
    home.write("flow.yaml", "[]");
    home.write_env("FROM_ENV_FILE=from-the-file\n");
    let (accepted, faults, values) = match home.config(text) {
        Ok(loaded) => (true, loaded.warnings, loaded.value.effective()),
        Err(faults) => (false, faults, Vec::new()),
    };
    agree(&config_schema(), text, accepted, &faults);
    let mut shown = report(accepted, &faults);
    for value in values {
        writeln!(shown, "{} = {}  # {}", value.key, value.value, value.origin).unwrap();
    }
    assert!(!shown.contains("sk-visible"), "a secret shows:\n{shown}");
    home.anonymous(&shown)
}

fn report(accepted: bool, faults: &Diagnostics) -> String {
    let verdict = if accepted { "accepted" } else { "refused" };
    format!("{verdict}, {} diagnostics\n{}", faults.len(), faults.render(false))
}

/// The generated schema accepts what the reader accepts, and refuses what it refuses for its form.
fn agree(schema: &Value, text: &str, accepted: bool, faults: &Diagnostics) {
    let Ok(value) = serde_yaml::from_str::<Value>(text) else { return };
    if value.is_null() {
        return;
    }
    let validator = jsonschema::validator_for(schema).unwrap();
    let of_form =
        ["unknown_key", "wrong_type", "out_of_range", "invalid_value", "invalid_key", "not_supported_yet"];
    if accepted {
        let errors: Vec<_> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "the schema refuses what the reader accepts: {errors:?}\n{text}");
    } else if faults.iter().any(|fault| of_form.contains(&fault.code)) {
        assert!(!validator.is_valid(&value), "the schema accepts what the reader refuses:\n{text}");
    }
}
