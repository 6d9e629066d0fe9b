//! Where native code of an extension lies. Says which file it is; opens none.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Found, Kind, Layout, Origin};

/// Why there is no library to run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoLibrary {
    #[error("`{}` is a single file, which cannot have an `entrypoint`; make a folder", .0.display())]
    SingleFile(PathBuf),
    #[error("no library `{name}` in {places}; build it{elsewhere}, or correct `entrypoint`")]
    Missing { name: String, places: String, elsewhere: &'static str },
    #[error("`{}` cannot be read: {reason}", file.display())]
    Unreadable { file: PathBuf, reason: String },
    #[error("`{}` leaves the extension's folder", .0.display())]
    Elsewhere(PathBuf),
    #[error(
        "`{}` is no library that ships: it lies in `{}`, where others write; move the program out of there",
        library.display(),
        folder.display()
    )]
    OthersWrite { library: PathBuf, folder: PathBuf },
}

impl Layout {
    /// The real path of an entrypoint's library. It is looked for in the extension's folder first, then, for a shipped
    /// extension, beside the program, and for any other below the `target` folder that Cargo builds in. Of several builds
    /// the latest is taken.
    ///
    /// # Errors
    ///
    /// There is no such file, it is a link that leaves these places, or it is a shipped library in a folder that others may
    /// write.
    pub fn library(&self, found: &Found, entrypoint: &str) -> Result<PathBuf, NoLibrary> {
        if found.kind == Kind::File {
            return Err(NoLibrary::SingleFile(found.folder.clone()));
        }
        let suffix = std::env::consts::DLL_SUFFIX;
        let names = [entrypoint.to_owned(), format!("{entrypoint}{suffix}")];
        let built = match found.origin {
            Origin::Shipped | Origin::Doubted => self.libraries(),
            Origin::Home | Origin::Listed => {
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
            let places = std::iter::once(&found.folder).chain(&built);
            let places: Vec<String> = places.map(|place| format!("`{}`", place.display())).collect();
            let elsewhere = match found.origin {
                Origin::Shipped => "",
                _ => {
                    ", copy it there where `CARGO_TARGET_DIR` or `build.target-dir` has cargo build elsewhere"
                }
            };
            let name = format!("{entrypoint}{suffix}");
            NoLibrary::Missing { name, places: places.join(", "), elsewhere }
        })?;
        let unreadable =
            |error: std::io::Error| NoLibrary::Unreadable { file: file.clone(), reason: error.to_string() };
        let real = file.canonicalize().map_err(unreadable)?;
        let mut places = std::iter::once(&found.folder).chain(&built);
        let inside = places.any(|place| place.canonicalize().is_ok_and(|place| real.starts_with(place)));
        if !inside {
            return Err(NoLibrary::Elsewhere(file));
        }
        match self.writer_of(&real).filter(|_| found.origin == Origin::Shipped) {
            Some(folder) => Err(NoLibrary::OthersWrite { folder: folder.to_owned(), library: real }),
            None => Ok(real),
        }
    }
}
