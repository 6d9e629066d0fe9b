//! The source of the extension API, carried by the program, so that native extensions can be made where drupe is
//! installed and no checkout of it is.
//!
//! [`current`] writes it out, and [`scaffold`] writes the beginning of an extension that builds against it. Nothing is
//! built here, and the network is not used: `cargo` fetches what the API needs, in the versions that this release was
//! built with.

mod scaffold;
mod unpack;

pub use scaffold::{ScaffoldError, library_name, named, rename, scaffold, title};
pub use unpack::{current, unpack};

/// What the build script packed.
mod packed {
    include!(concat!(env!("OUT_DIR"), "/packed.rs"));
}

/// The release of drupe whose API this is.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The bytes that the program carries for it.
#[must_use]
pub fn size() -> usize {
    packed::FILES.iter().map(|(path, content)| path.len() + content.len()).sum()
}
