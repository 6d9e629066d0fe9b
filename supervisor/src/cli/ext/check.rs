//! `drupe ext check`: what a daemon of this home would make of extensions, without one.
//!
//! It looks, judges, orders and wires by the functions of the daemon. What only code can tell (which tools it has, whether it
//! starts) shows when it is loaded.

use std::{
    env::consts::DLL_SUFFIX,
    path::{Path, PathBuf},
};

use drupe_config::{Diagnostics, Severity};
use drupe_extension_api::control::ExtensionState;
use drupe_folders::discovery::{Found, Origin, PassedOver, discover};
use drupe_kernel::forecast::{self, Expected, Forecast, forecast};
use drupe_link::{Home, Quarantined};
use serde::Serialize;

use super::load::{Loaded, load, render as render_loaded};
use crate::{
    cli::{
        Context, Facts, config,
        console::{plain, table},
        failure::{Failure, status},
        status::word,
    },
    supervise::record::Record,
};

/// Arguments of `drupe ext check`.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The folder of an extension, the `.md` file of an agent, or a folder of such; by default all that a daemon would find
    path: Option<PathBuf>,
    /// Also open libraries, each in a confined process, and say which tools they have; their code runs for that
    #[arg(long)]
    load: bool,
    #[command(flatten)]
    facts: Facts,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    diagnostics: Diagnostics,
    extensions: Vec<Line>,
    passed_over: Vec<Passed>,
    /// What libraries turned out to be, where they were loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    loaded: Vec<Loaded>,
}

/// An extension of a report.
#[derive(Debug, Serialize)]
struct Line {
    id: String,
    file: PathBuf,
    state: ExtensionState,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Passed {
    path: PathBuf,
    reason: String,
}

impl Check {
    /// Checks, and says every fault.
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let home = context.home().path();
        let (named, passed) = match &self.path {
            Some(path) => {
                let (named, passed) = found(&context.here.join(path))?;
                (Some(named), passed)
            }
            None => (None, Vec::new()),
        };
        let config = config::load(context)?;
        let expected = forecast((home, &context.exe), &config, named, quarantined(home));
        let Forecast { extensions, passed: of_home, remarks, refused } = expected;
        if let Some(why) = refused {
            return Err(config::refused(&why));
        }
        let passed = if self.path.is_some() { passed } else { of_home };
        let mut diagnostics = Diagnostics::default();
        for one in &extensions {
            diagnostics.extend(one.looked.diagnostics.clone());
        }
        let loads = extensions.iter().filter(|one| self.load && one.works());
        let loaded: Vec<_> = loads.filter_map(|one| load(one, &config, context)).collect();
        let sound = loaded.iter().all(|one| one.fault.is_none());
        let ok = sound && !diagnostics.has_errors() && extensions.iter().all(Expected::works);
        for one in &extensions {
            let remarks = elsewhere(one, context).into_iter().chain(sourceless(one));
            remarks.for_each(|remark| context.console.remark(&remark));
        }
        for remark in remarks {
            context.console.remark(&remark);
        }
        for over in &passed {
            context.console.remark(&format!("passed over: `{}`: {}", over.path.display(), over.reason));
        }
        if self.facts.json {
            let line = |one: Expected| {
                let Expected { id, folder, state, reason, .. } = one;
                Line { id, file: folder, state, reason }
            };
            let passed = passed.into_iter().map(|PassedOver { path, reason }| Passed { path, reason });
            let extensions = extensions.into_iter().map(line).collect();
            context.console.json(&Report {
                ok,
                diagnostics,
                extensions,
                passed_over: passed.collect(),
                loaded,
            })?;
        } else {
            let text = render(&diagnostics, &extensions, context.console.colour);
            context.console.print(&(render_loaded(&loaded) + &text))?;
        }
        Ok(if ok { 0 } else { status::FAILED })
    }
}

/// That its library lies where this shell has cargo build, and a daemon does not look.
fn elsewhere(one: &Expected, context: &Context) -> Option<String> {
    let target = context.environment.path("CARGO_TARGET_DIR").filter(|_| one.unbuilt)?;
    let target = context.here.join(target);
    let library = format!("{}{DLL_SUFFIX}", one.looked.manifest.as_ref()?.entrypoint.as_ref()?);
    let built = ["release", "debug"].map(|profile| target.join(profile).join(&library));
    let built = built.into_iter().find(|file| file.is_file())?;
    let (built, folder) = (built.display(), one.folder.display());
    Some(format!(
        "`{built}` lies where `CARGO_TARGET_DIR` has cargo build, and no daemon looks there: copy it into `{folder}`"
    ))
}

/// That what it is built against is not there: nobody needs it to run, but cargo says only that a file is missing.
fn sourceless(one: &Expected) -> Option<String> {
    let text = drupe_config::read_text_file(&one.folder.join("Cargo.toml")).ok()?;
    let line = text.lines().find(|line| line.starts_with("drupe-extension-api") && line.contains("path"))?;
    let named = line.split('"').nth(1)?;
    (!one.folder.join(named).join("Cargo.toml").is_file()).then(|| {
        let file = one.folder.join("Cargo.toml");
        format!(
            "`{}` names the extension API at `{named}`, where it is not: `drupe ext sdk` writes it",
            file.display()
        )
    })
}

/// What the supervisor holds against contents of extensions.
pub fn quarantined(home: &Path) -> Vec<Quarantined> {
    let Ok(home) = Home::new(home) else { return Vec::new() };
    Record::open(&home).ledger().0.verdicts().quarantined
}

/// The extensions at a path, as if they lay in the home, and what is no extension there.
fn found(path: &Path) -> Result<(Vec<Found>, Vec<PassedOver>), Failure> {
    let agent = path.is_file() && path.extension().is_some_and(|ending| ending == "md");
    if agent || path.join("manifest.yaml").symlink_metadata().is_ok() {
        return Ok((vec![forecast::named(path)], Vec::new()));
    }
    // EX_NOINPUT
    if !path.is_dir() {
        let message = format!("`{}` is not a folder", path.display());
        return Err(Failure::new(66, message)
            .help("name the folder that holds `manifest.yaml`, or the `.md` file of an agent"));
    }
    // The same eyes as the daemon's, so that what it would not find is not found here.
    let (found, passed) = discover(&[(Origin::Home, path.to_owned())]);
    if found.is_empty() {
        let message = format!("neither `{}` nor a folder in it holds `manifest.yaml`", path.display());
        return Err(Failure::new(66, message).help("`drupe ext new agent ID` makes one to begin with"));
    }
    Ok((found, passed))
}

fn render(diagnostics: &Diagnostics, extensions: &[Expected], colour: bool) -> String {
    let count = |severity| diagnostics.iter().filter(|one| one.severity == severity).count();
    let many = |number: usize, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
    // Faults of its manifest stand above, with their places.
    let line = |one: &Expected| {
        let reason = one.reason.as_deref().and_then(|reason| reason.lines().next()).unwrap_or_default();
        vec![format!("  {}", word(one.state)), plain(&one.id), plain(reason)]
    };
    let out = extensions.iter().filter(|one| one.state != ExtensionState::Active);
    format!(
        "{}{}checked {}: {}, {}\n",
        diagnostics.render(colour),
        table(&out.map(line).collect::<Vec<_>>()),
        many(extensions.len(), "extension"),
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
        let (found, passed) = found(root.path()).expect("folders");
        assert_eq!((found.len(), passed.len()), (2, 1), "{passed:?}");
        let mut all = Diagnostics::default();
        for one in found {
            all.extend(drupe_kernel::check::load(&one.folder, root.path()).expect_err("faults"));
        }
        for (folder, field) in [("one", "namee"), ("two", "nam")] {
            let hit = all.iter().any(|one| one.file.to_string_lossy().contains(folder) && one.field == field);
            assert!(hit, "{}", all.render(false));
        }
        assert!(render(&all, &[], false).contains("checked 0 extensions: "));
    }

    #[test]
    fn a_named_folder_without_extensions_is_an_error() {
        let root = tempfile::tempdir().expect("a folder");
        assert_eq!(found(root.path()).expect_err("nothing").status, 66);
        assert_eq!(found(&root.path().join("gone")).expect_err("nothing").status, 66);
    }
}
