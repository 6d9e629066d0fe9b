//! A home in a temporary folder, best in memory, with one extension's folder in it.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, sync::LazyLock};

use drupe_config::{Diagnostics, Severity};

static ROOT: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let root = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(root.path().join("extensions/demo")).expect("a folder");
    for name in ["prompt.md", "prompt.jinja2", "facts.csv", "common.md"] {
        fs::write(root.path().join("extensions/demo").join(name), "You are a demo.").expect("a file");
    }
    root
});

pub fn path() -> PathBuf {
    ROOT.path().to_owned()
}

pub fn write(name: &str, bytes: &[u8]) {
    let path = ROOT.path().join(name);
    fs::write(&path, bytes).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("permissions");
}

/// A refusal has an error, names its place, and can be shown.
pub fn check(faults: &Diagnostics) {
    assert!(faults.has_errors());
    for fault in faults.iter().filter(|fault| fault.severity == Severity::Error) {
        let whole = fault.code == "too_large";
        assert!(whole || fault.line > 0 && fault.column > 0, "{}: {fault}", fault.code);
        assert!(fault.message.len() < 4_000, "{}", fault.message.len());
    }
    assert!(!faults.render(false).is_empty());
    assert!(!faults.to_string().is_empty());
}
