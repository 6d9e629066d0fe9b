//! Finds the folders that hold extensions. Deterministic and bounded; what is passed over is said, with the reason.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// The most entries that are looked at in one folder of extensions.
const MOST: usize = 4096;

/// The most that are read, so that those with the first names are chosen among all but in a folder gone mad.
const READ: usize = 65_536;

/// Who put an extension there; later ones are third-party.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Ships with drupe.
    Shipped,
    /// The operator or the builder, in the home.
    Home,
    /// A folder that `extensions.paths` names.
    Listed,
}

/// A folder with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The folder's name, which the id must equal.
    pub name: String,
    /// The folder.
    pub folder: PathBuf,
    /// Who put it there.
    pub origin: Origin,
}

/// Something that is no extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// What.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// Looks through the folders in order, each sorted by name, one level deep.
pub fn discover(roots: &[(Origin, PathBuf)]) -> (Vec<Found>, Vec<PassedOver>) {
    let (mut found, mut passed) = (Vec::new(), Vec::new());
    for (origin, root) in roots {
        match list(root) {
            Ok(names) => {
                if names.len() > MOST {
                    let reason = format!("more than {MOST} entries; the rest is not looked at");
                    passed.push(PassedOver { path: root.clone(), reason });
                }
                for name in names.into_iter().take(MOST) {
                    match examine(root, &name) {
                        Ok(Some(folder)) => found.push(Found { name, folder, origin: *origin }),
                        Ok(None) => {}
                        Err(reason) => passed.push(PassedOver { path: root.join(&name), reason }),
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && *origin != Origin::Listed => {}
            Err(error) => {
                passed.push(PassedOver { path: root.clone(), reason: format!("cannot be read: {error}") })
            }
        }
    }
    (found, passed)
}

/// The names in a folder, sorted. One that is not UTF-8 cannot be an id, and is shown as far as it can be.
fn list(root: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(root)?
        .take(READ)
        .map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// The folder of that name, if it is one with a manifest; `None` for what is plainly something else.
fn examine(root: &Path, name: &str) -> Result<Option<PathBuf>, String> {
    if name.starts_with('.') {
        return Ok(None);
    }
    let path = root.join(name);
    let link = fs::symlink_metadata(&path).map_err(|error| format!("cannot be examined: {error}"))?;
    if link.is_symlink() {
        let inside =
            path.canonicalize().is_ok_and(|to| root.canonicalize().is_ok_and(|root| to.starts_with(root)));
        if !inside {
            return Err(
                "a symbolic link that leaves the folder of extensions; copy the folder here instead".into()
            );
        }
    }
    let meta = fs::metadata(&path).map_err(|error| format!("cannot be examined: {error}"))?;
    if !meta.is_dir() {
        return match link.is_file() {
            true if name.ends_with(".md") => {
                Err("agents in a single `.md` file are not supported yet; make a folder".into())
            }
            true => Ok(None),
            false => Err("neither a folder nor a file".into()),
        };
    }
    match fs::symlink_metadata(path.join("manifest.yaml")) {
        Ok(_) => Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("a folder without `manifest.yaml`".into())
        }
        Err(error) => Err(format!("its `manifest.yaml` cannot be examined: {error}")),
    }
}

/// Decides which folder an id means. One in the home or a listed folder replaces the shipped one of the same name only
/// where its manifest says `overrides: true`; else both are unusable, and each says where the other is.
pub fn settle(found: Vec<Found>, overrides: impl Fn(&Found) -> bool) -> Vec<(Found, Option<String>)> {
    let mut by_name: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for one in found {
        by_name.entry(one.name.clone()).or_default().push(one);
    }
    let mut settled = Vec::new();
    for (name, mut same) in by_name {
        let last = same.len() - 1;
        if last > 0 && same[last].origin != Origin::Shipped && overrides(&same[last]) {
            settled.push((same.swap_remove(last), None));
            continue;
        }
        let folders: Vec<String> = same.iter().map(|f| format!("`{}`", f.folder.display())).collect();
        let clash = (last > 0).then(|| {
            format!(
                "extension `{name}` is in {}; remove one, or write `overrides: true` into the manifest of your own",
                folders.join(" and in ")
            )
        });
        settled.extend(same.into_iter().map(|f| (f, clash.clone())));
    }
    settled
}

/// The extensions that ship: those of the checkout that the program was built in, else those installed beside it.
pub fn shipped(exe: &Path) -> Option<PathBuf> {
    let beside = exe.parent()?;
    // `<checkout>/target/<profile>/drupe`, and nothing looser: what is found here runs inside the kernel.
    let target = exe.ancestors().skip(1).take(3).find(|a| a.file_name().is_some_and(|name| name == "target"));
    let checkout = target
        .and_then(Path::parent)
        .filter(|c| c.join("extension-api").is_dir())
        .map(|c| c.join("extensions"));
    let installed = [beside.join("extensions"), beside.join("../share/drupe/extensions")];
    checkout.into_iter().chain(installed).find(|folder| folder.is_dir())
}

/// The file of an entrypoint: inside the extension's folder, for shipped ones also beside the program. Of several that
/// a build left beside the program, the newest is the one that was built last.
pub fn library(found: &Found, entrypoint: &str, exe: &Path) -> Result<PathBuf, String> {
    let suffix = std::env::consts::DLL_SUFFIX;
    let names = [entrypoint.to_owned(), format!("{entrypoint}{suffix}")];
    let mut folders = vec![found.folder.clone()];
    if let (Origin::Shipped, Some(beside)) = (found.origin, exe.parent()) {
        folders.extend([beside.to_owned(), beside.join("deps"), beside.join("../lib/drupe")]);
    }
    let candidates: Vec<PathBuf> =
        folders.iter().flat_map(|f| names.iter().map(move |n| f.join(n))).collect();
    let own = candidates.iter().take(names.len()).find(|p| p.is_file());
    let newest = || {
        let built = candidates.iter().skip(names.len()).filter(|p| p.is_file());
        built.max_by_key(|p| fs::metadata(p).and_then(|m| m.modified()).ok())
    };
    let file = own.or_else(newest).ok_or_else(|| {
        format!(
            "no library `{entrypoint}{suffix}` in `{}`; build it, or correct `entrypoint`",
            found.folder.display()
        )
    })?;
    let real =
        file.canonicalize().map_err(|error| format!("`{}` cannot be read: {error}", file.display()))?;
    let inside = folders.iter().any(|f| f.canonicalize().is_ok_and(|f| real.starts_with(f)));
    if inside { Ok(real) } else { Err(format!("`{}` leaves the extension's folder", file.display())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, origin: Origin) -> Found {
        Found { name: name.into(), folder: PathBuf::from(format!("/{origin:?}/{name}")), origin }
    }

    #[test]
    fn the_same_id_twice_is_an_error_that_names_both_folders() {
        let settled = settle(vec![found("kv", Origin::Shipped), found("kv", Origin::Home)], |_| false);
        assert_eq!(settled.len(), 2);
        for (_, clash) in settled {
            let clash = clash.expect("both clash");
            assert!(
                clash.contains("/Shipped/kv") && clash.contains("/Home/kv") && clash.contains("overrides"),
                "{clash}"
            );
        }
    }

    #[test]
    fn an_override_in_the_home_replaces_the_shipped_one() {
        let settled = settle(vec![found("kv", Origin::Shipped), found("kv", Origin::Home)], |_| true);
        assert_eq!(settled, vec![(found("kv", Origin::Home), None)]);
    }
}
