//! `drupe ext check`: validates manifests without a daemon.
//!
//! What needs the other extensions (whether a tool exists that an agent lists) shows when the daemon wires them; what
//! native code does shows when it is loaded.

use std::path::{Path, PathBuf};

use drupe_config::{Diagnostics, Severity};
use drupe_folders::discovery::{Origin, discover};
use serde::Serialize;

use crate::cli::{
    Context, Facts,
    failure::{Failure, status},
};

/// Arguments of `drupe ext check`.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The folder of an extension, the `.md` file of an agent, or a folder of such; by default the home's extensions
    path: Option<PathBuf>,
    #[command(flatten)]
    facts: Facts,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    diagnostics: Diagnostics,
}

impl Check {
    /// Checks, and says every fault.
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let path = match &self.path {
            Some(path) => context.here.join(path),
            None => context.home().path().join("extensions"),
        };
        let (folders, passed_over) = folders(&path, self.path.is_some())?;
        let mut diagnostics = Diagnostics::default();
        for folder in &folders {
            diagnostics.extend(check(folder, context.home().path()));
        }
        let ok = !diagnostics.has_errors();
        for remark in passed_over {
            context.console.remark(&remark);
        }
        if self.facts.json {
            context.console.json(&Report { ok, diagnostics })?;
        } else {
            context.console.print(&render(&diagnostics, folders.len(), context.console.colour))?;
        }
        Ok(if ok { 0 } else { status::FAILED })
    }
}

/// Every fault of one extension, or its warnings.
pub fn check(path: &Path, home: &Path) -> Diagnostics {
    drupe_kernel::check::load(path, home).map_or_else(|faults| faults, |loaded| loaded.warnings)
}

/// The folders to check below a path, and what is no extension there.
fn folders(path: &Path, named: bool) -> Result<(Vec<PathBuf>, Vec<String>), Failure> {
    if path.join("manifest.yaml").symlink_metadata().is_ok() {
        return Ok((vec![path.to_owned()], Vec::new()));
    }
    if named && path.is_file() && path.extension().is_some_and(|ending| ending == "md") {
        return Ok((vec![path.to_owned()], Vec::new()));
    }
    // EX_NOINPUT
    if named && !path.is_dir() {
        let message = format!("`{}` is not a folder", path.display());
        return Err(Failure::new(66, message)
            .help("name the folder that holds `manifest.yaml`, or the `.md` file of an agent"));
    }
    // The same eyes as the daemon's, so that what it would not find is not found here.
    let (found, passed) = discover(&[(Origin::Home, path.to_owned())]);
    if named && found.is_empty() {
        let message = format!("neither `{}` nor a folder in it holds `manifest.yaml`", path.display());
        return Err(Failure::new(66, message).help("`drupe ext new agent ID` makes one to begin with"));
    }
    let passed =
        passed.into_iter().map(|over| format!("passed over: `{}`: {}", over.path.display(), over.reason));
    Ok((found.into_iter().map(|one| one.folder).collect(), passed.collect()))
}

fn render(diagnostics: &Diagnostics, folders: usize, colour: bool) -> String {
    let count = |severity| diagnostics.iter().filter(|one| one.severity == severity).count();
    let many = |number: usize, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
    format!(
        "{}checked {}: {}, {}\n",
        diagnostics.render(colour),
        many(folders, "extension"),
        many(count(Severity::Error), "error"),
        many(count(Severity::Warning), "warning"),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(root: &Path, id: &str, manifest: &str) {
        fs::create_dir_all(root.join(id)).expect("a folder");
        fs::write(root.join(id).join("manifest.yaml"), manifest).expect("a file");
    }

    #[test]
    fn every_fault_of_every_folder_is_found() {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path(), "one", "id: other\nnamee: x\n");
        write(root.path(), "two", "nam: x\n");
        fs::create_dir(root.path().join("three")).expect("a folder");
        let (found, passed) = folders(root.path(), true).expect("folders");
        assert_eq!((found.len(), passed.len()), (2, 1), "{passed:?}");
        let mut all = Diagnostics::default();
        found.iter().for_each(|folder| all.extend(check(folder, root.path())));
        for (folder, field) in [("one", "namee"), ("two", "nam")] {
            let hit = all.iter().any(|one| one.file.to_string_lossy().contains(folder) && one.field == field);
            assert!(hit, "{}", all.render(false));
        }
        assert!(render(&all, 2, false).contains("checked 2 extensions: "));
    }

    #[test]
    fn a_folder_without_extensions_is_an_error_only_where_it_was_named() {
        let root = tempfile::tempdir().expect("a folder");
        assert_eq!(folders(root.path(), true).expect_err("nothing").status, 66);
        assert_eq!(folders(&root.path().join("gone"), true).expect_err("nothing").status, 66);
        assert_eq!(folders(&root.path().join("gone"), false), Ok((vec![], vec![])));
    }
}
