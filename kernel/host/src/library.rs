//! Opens the library of a native extension: the one place that knows `abi_stable` and `libloading`.
//!
//! A library is opened once and never closed. What is refused here is refused with a sentence; what would crash
//! the process that opens it was caught by the probe before.

mod machine;

use std::path::{Path, PathBuf};

use abi_stable::{
    StableAbi,
    abi_stability::abi_checking::check_layout_compatibility,
    library::{AbiHeaderRef, ROOT_MODULE_LOADER_NAME_WITH_NUL, RootModule},
};
use drupe_extension_abi::{ExtensionBox, HostBox, PluginRef};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Why a library is refused.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The system cannot open it.
    #[error("`{path}` cannot be opened as a library: {reason}; build it again for this machine")]
    Open {
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// It is some other library.
    #[error("`{path}` is a library but no drupe extension: it exports no root module; end it with `export!`")]
    NotAnExtension { path: PathBuf },
    /// It was built with another `abi_stable`.
    #[error(
        "`{path}` was built with another ABI: {reason}; build it again with this release of drupe-extension-api"
    )]
    Abi {
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// Its tables have another layout.
    #[error(
        "`{path}` has another layout of the tables: {reason}; build it again with this release of drupe-extension-api"
    )]
    Layout {
        path: PathBuf,
        /// The first difference.
        reason: String,
    },
}

/// A library that is open for the rest of the process's life.
pub struct PluginLibrary(PluginRef);

impl PluginLibrary {
    /// Opens and checks a library. Runs its constructors.
    #[expect(clippy::disallowed_methods, reason = "this is the loader")]
    pub fn open(path: &Path) -> Result<Self, LibraryError> {
        let owned = || path.to_owned();
        // SAFETY: opening runs the library's constructors. The probe process has run them before without a fault,
        // and the operator trusts the code: it runs in this process.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
            // Of a library for another machine the system only says that there is no such file.
            let reason = machine::foreign(path).unwrap_or_else(|| {
                let words = std::error::Error::source(&error);
                without_path(&words.map_or_else(|| error.to_string(), ToString::to_string), path)
            });
            LibraryError::Open { path: owned(), reason }
        })?;
        let symbol = ROOT_MODULE_LOADER_NAME_WITH_NUL.as_bytes();
        // SAFETY: `abi_stable` reserves this name for a static of this type; the header is checked before use.
        let header = match unsafe { library.get::<AbiHeaderRef>(symbol) } {
            Ok(header) => *header,
            Err(_) => return Err(LibraryError::NotAnExtension { path: owned() }),
        };
        // Never closed: code of it may be on some thread's stack, and its statics are referenced from here on.
        std::mem::forget(library);
        let header = header
            .upgrade()
            .map_err(|error| LibraryError::Abi { path: owned(), reason: first_line(&error.to_string()) })?;
        let (theirs, ours) = (header.version_strings().version, PluginRef::VERSION_STRINGS.version);
        // The tables are frozen: any other version of their crate is another contract.
        if theirs.as_str() != ours.as_str() {
            let reason = format!("its tables are of version {theirs}, this kernel's of version {ours}");
            return Err(LibraryError::Layout { path: owned(), reason });
        }
        let layout = header.layout().ok_or_else(|| LibraryError::Layout {
            path: owned(),
            reason: "it carries no layout to check".into(),
        })?;
        if let Err(error) = check_layout_compatibility(PluginRef::LAYOUT, layout) {
            return Err(LibraryError::Layout { path: owned(), reason: summary(&error.to_string()) });
        }
        // SAFETY: the layout was compared a line above.
        let module = unsafe { header.init_root_module_with_unchecked_layout::<PluginRef>() }
            .map_err(|error| LibraryError::Abi { path: owned(), reason: first_line(&error.to_string()) })?;
        Ok(Self(module))
    }

    /// Makes an instance of the extension.
    pub fn instance(&self, host: HostBox) -> ExtensionBox {
        self.0.open()(host)
    }
}

fn first_line(text: &str) -> String {
    text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or("unknown").to_owned()
}

/// The loader's words repeat the path, which the sentence around them already names.
fn without_path(reason: &str, path: &Path) -> String {
    reason.replace(&format!("{}: ", path.display()), "")
}

/// The first difference of a layout report, which is hundreds of lines long as a whole.
fn summary(report: &str) -> String {
    let Some((_, rest)) = report.split_once("\nError:") else { return first_line(report) };
    rest.lines().map(str::trim).filter(|l| !l.is_empty()).take(6).collect::<Vec<_>>().join(" ")
}
