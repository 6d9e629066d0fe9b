//! Which folders are searched, and whose they are.
//!
//! What ships runs inside the kernel, and nobody is asked. So a folder counts as shipped by where the program lies, and
//! never where it is also one that operators, agents or extensions write: then it is theirs.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{Origin, PassedOver};

/// The parts of a home that may be links to somewhere else.
const WRITTEN: [&str; 3] = ["extensions", "workspace", "data"];

/// Where program, home and listed folders are.
#[derive(Debug, Clone)]
pub struct Layout {
    exe: PathBuf,
    home: PathBuf,
    listed: Vec<PathBuf>,
}

impl Layout {
    /// Of the program `exe`, a home, and the folders that `extensions.paths` names. Nothing of it need exist.
    #[must_use]
    pub fn new(exe: &Path, home: &Path, listed: &[PathBuf]) -> Self {
        Self { exe: real(exe), home: home.to_owned(), listed: listed.to_owned() }
    }

    /// The folders to search, in order; and the one where what ships was looked for, if it is somebody else's or is not there.
    #[must_use]
    pub fn roots(&self) -> (Vec<(Origin, PathBuf)>, Option<PassedOver>) {
        let (shipped, refused) = self.shipped();
        let mut roots: Vec<(Origin, PathBuf)> =
            shipped.map(|folder| (Origin::Shipped, folder)).into_iter().collect();
        roots.push((Origin::Home, self.home.join("extensions")));
        for folder in &self.listed {
            // The same folder twice would be two of each extension.
            roots.retain(|(_, known)| !same(&real(known), &real(folder)));
            roots.push((Origin::Listed, folder.clone()));
        }
        (roots, refused)
    }

    /// The extensions that ship: those of the checkout that the program was built in, else those installed beside it;
    /// and, where none of these can be taken, the first place that was refused, or that there is no such place.
    #[must_use]
    pub fn shipped(&self) -> (Option<PathBuf>, Option<PassedOver>) {
        let mut refused = None;
        for candidate in self.candidates() {
            let folder = real(&candidate);
            if !folder.is_dir() {
                continue;
            }
            match self.overlap(&folder) {
                None => return (Some(folder), None),
                Some(place) => {
                    let reason = format!(
                        "what lies there is not taken as shipped, because the folder overlaps `{}`, where others \
                         write: each extension there needs your agreement; install those that ship in \
                         `../lib/drupe/extensions` beside the program's folder",
                        place.display()
                    );
                    refused.get_or_insert(PassedOver { path: folder, reason });
                }
            }
        }
        (None, refused.or_else(|| self.nothing_ships()))
    }

    /// A program that was copied without the shipped extensions runs, and can do next to nothing. This says why.
    fn nothing_ships(&self) -> Option<PassedOver> {
        let reason = "no extensions that ship lie beside this program, so there is no builder, and there are no tools for \
                      files; install an archive, or by `cargo install` with `--features carried`, or run the program where it \
                      was built";
        Some(PassedOver { path: self.exe.parent()?.to_owned(), reason: reason.into() })
    }

    /// Where what ships may be, in order.
    fn candidates(&self) -> Vec<PathBuf> {
        let Some(beside) = self.exe.parent() else { return Vec::new() };
        // `<checkout>/target/<profile>/drupe`, and nothing looser: what is found here runs inside the kernel.
        let mut above = self.exe.ancestors().skip(1).take(3);
        let target = above.find(|a| a.file_name().is_some_and(|name| name == "target"));
        let checkout = target.and_then(Path::parent).filter(|c| c.join("extension-api").is_dir());
        // Not `../share/drupe/extensions`: beside `~/.local/bin` that is a person's home, also where another one is in use.
        let installed = ["extensions", "../lib/drupe/extensions"];
        let checkout = checkout.map(|checkout| checkout.join("extensions"));
        checkout.into_iter().chain(installed.map(|place| beside.join(place))).collect()
    }

    pub(super) fn libraries(&self) -> Vec<PathBuf> {
        let beside = self.exe.parent().into_iter();
        beside.flat_map(|b| [b.to_owned(), b.join("deps"), b.join("../lib/drupe")]).collect()
    }

    /// The folders in which others than the installer write.
    fn written(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let parts = WRITTEN.iter().map(|part| self.home.join(part));
        std::iter::once(self.home.clone()).chain(parts).chain(self.listed.iter().cloned())
    }

    /// The folder that others write in which a real path lies.
    pub(super) fn writer_of(&self, path: &Path) -> Option<PathBuf> {
        self.written().find(|place| within(path, &real(place)))
    }

    /// The folder that others write which equals a real one, holds it, or lies in it.
    fn overlap(&self, folder: &Path) -> Option<PathBuf> {
        self.written().find(|place| {
            let place = real(place);
            within(folder, &place) || within(&place, folder)
        })
    }
}

/// Whether a real path is a folder or lies in it, also where it is reached by another name, as through a bind mount.
fn within(path: &Path, folder: &Path) -> bool {
    path.ancestors().any(|above| same(above, folder))
}

fn same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    one == other || identity(one).is_some_and(|known| Some(known) == identity(other))
}

/// A path without links, `.` and `..`. Of what does not exist yet, the part that does is resolved: the rest can only be
/// made there.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for above in path.ancestors() {
        if let (Ok(found), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return rest.components().fold(found, |mut whole, part| {
                match part {
                    std::path::Component::ParentDir => drop(whole.pop()),
                    part => whole.push(part),
                }
                whole
            });
        }
    }
    path
}

#[cfg(test)]
mod tests;
