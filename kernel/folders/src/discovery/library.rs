//! Where native code of an extension lies. Says which file it is; opens none.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Found, Kind, Origin};

/// The extensions that ship: those of the checkout that the program was built in, else those installed beside it.
#[must_use]
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

/// The file of an entrypoint, as its real path: in the extension's folder; else, for a shipped one, beside the program
/// `exe`; for others, where Cargo builds in their folder. Of several that were built, the newest is the one that was
/// built last.
///
/// # Errors
///
/// A sentence, where there is none or it is a link that leaves these places.
pub fn library(found: &Found, entrypoint: &str, exe: &Path) -> Result<PathBuf, String> {
    if found.kind == Kind::File {
        return Err(format!(
            "`{}` is a single file, which cannot have an `entrypoint`; make a folder",
            found.folder.display()
        ));
    }
    let suffix = std::env::consts::DLL_SUFFIX;
    let names = [entrypoint.to_owned(), format!("{entrypoint}{suffix}")];
    let built = match (found.origin, exe.parent()) {
        (Origin::Shipped, Some(beside)) => {
            vec![beside.to_owned(), beside.join("deps"), beside.join("../lib/drupe")]
        }
        (Origin::Shipped, None) => vec![],
        (Origin::Home | Origin::Listed, _) => {
            let target = found.folder.join("target");
            vec![target.join("release"), target.join("debug")]
        }
    };
    let files =
        |folder: &Path| names.clone().map(|name| folder.join(name)).into_iter().filter(|p| p.is_file());
    let own = files(&found.folder).next();
    let newest = || {
        let candidates = built.iter().flat_map(|folder| files(folder));
        candidates.max_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok())
    };
    let file = own.or_else(newest).ok_or_else(|| {
        format!(
            "no library `{entrypoint}{suffix}` in `{}`; build it, or correct `entrypoint`",
            found.folder.display()
        )
    })?;
    let real =
        file.canonicalize().map_err(|error| format!("`{}` cannot be read: {error}", file.display()))?;
    let mut places = std::iter::once(&found.folder).chain(&built);
    let inside = places.any(|place| place.canonicalize().is_ok_and(|place| real.starts_with(place)));
    if inside { Ok(real) } else { Err(format!("`{}` leaves the extension's folder", file.display())) }
}
