//! Checks a folder before it becomes an extension, and makes it one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use drupe_config::{Manifest, load_manifest};
use drupe_extension_api::{Fault, control::CheckReport};

use crate::kernel::Kernel;

/// The most files that a folder may have to be copied.
const FILES: usize = 256;

/// The most bytes that they may have together.
const BYTES: u64 = 64 * 1024 * 1024;

/// Every fault of a folder's manifest, as data and for people.
pub fn folder(path: &Path, home: &Path) -> CheckReport {
    let diagnostics = match load_manifest(path, home) {
        Ok(loaded) => loaded.warnings,
        Err(faults) => faults,
    };
    CheckReport {
        ok: !diagnostics.has_errors(),
        rendered: diagnostics.render(false),
        diagnostics: serde_json::to_value(&diagnostics).unwrap_or_default(),
    }
}

/// Copies a folder to where the home's extensions live. It takes effect with the next start. What an agent made may
/// only bring what needs no person's agreement.
pub fn add(kernel: &Kernel, path: &Path, by_agent: bool) -> Result<(), Fault> {
    let loaded = load_manifest(path, kernel.home.root())
        .map_err(|faults| Fault::invalid(format!("the extension has faults:\n{}", faults.render(false))))?;
    let manifest = loaded.value;
    if by_agent {
        modest(kernel, &manifest)?;
    }
    if kernel.extensions.read(|r| r.found.name == manifest.id.as_str()).contains(&true) {
        return Err(Fault::denied(format!("there is an extension `{}` already", manifest.id))
            .help("choose another id"));
    }
    let target = kernel.home.extensions().join(manifest.id.as_str());
    if target.symlink_metadata().is_ok() {
        return Err(Fault::denied(format!("`{}` exists already", target.display())).help("choose another id"));
    }
    let staged = kernel.home.extensions().join(format!(".adding-{}", uuid::Uuid::new_v4().simple()));
    let copied = copy(path, &staged, &mut Room { files: FILES, bytes: BYTES });
    // The rename is the one moment at which the extension comes to exist, whole.
    let renamed = copied.and_then(|()| fs::rename(&staged, &target));
    renamed.map_err(|error| {
        // What was staged is hidden from discovery; a rest of it does no harm.
        let _ = fs::remove_dir_all(&staged);
        Fault::from(error)
    })
}

/// Refuses what would need the operator's agreement.
fn modest(kernel: &Kernel, manifest: &Manifest) -> Result<(), Fault> {
    let mut needs = Vec::new();
    if manifest.entrypoint.is_some() {
        needs.push("native code".to_owned());
    }
    if !manifest.secrets.is_empty() {
        needs.push(format!("the secrets {}", manifest.secrets.join(", ")));
    }
    if !manifest.rights.is_empty() {
        needs.push("rights".to_owned());
    }
    if manifest.overrides {
        needs.push("to replace a shipped extension".to_owned());
    }
    let may_use = &kernel.config.orchestrator.builder_may_use;
    for selector in manifest.agent.iter().flat_map(|a| &a.uses_tools) {
        if !may_use.contains(&selector.extension) {
            needs.push(format!("the tools of `{}`", selector.extension));
        }
    }
    if needs.is_empty() {
        return Ok(());
    }
    let message = format!(
        "extension `{}` wants {}, which needs the operator's agreement",
        manifest.id,
        needs.join(", ")
    );
    Err(Fault::denied(message).help("the operator can copy the folder into the home's `extensions`"))
}

struct Room {
    files: usize,
    bytes: u64,
}

fn copy(from: &Path, to: &PathBuf, room: &mut Room) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target, room)?;
        } else if kind.is_file() {
            let bytes = entry.metadata()?.len();
            if room.files == 0 || room.bytes < bytes {
                return Err(io::Error::other(format!(
                    "more than {FILES} files or {BYTES} bytes are not copied"
                )));
            }
            room.files -= 1;
            room.bytes -= bytes;
            fs::copy(entry.path(), target)?;
        } else {
            let message = format!("`{}` is neither a file nor a folder", entry.path().display());
            return Err(io::Error::other(message));
        }
    }
    Ok(())
}
