//! Marks of files that were written where text of strangers was read: an extended attribute, which goes with the file when it
//! is renamed, and with a copy that keeps attributes. A file system without such attributes keeps no marks.

use std::{io, os::fd::AsFd, path::Path};

use rustix::{
    fs::{XattrFlags, fgetxattr_query, fsetxattr, lgetxattr_query},
    io::Errno,
};

/// The attribute that is the mark.
const NAME: &str = "user.drupe.strangers";

/// What a call gives, and whether strangers may have written some of it.
pub struct MarkedText {
    pub text: String,
    pub strangers: bool,
}

impl MarkedText {
    /// What nobody but this extension has written.
    pub fn own(text: String) -> Self {
        Self { text, strangers: false }
    }
}

/// Whether an open file bears the mark.
pub fn is_marked(file: impl AsFd) -> bool {
    fgetxattr_query(file, NAME).is_ok()
}

/// Whether what has this name bears the mark; a link by itself has none.
pub fn is_name_marked(path: &Path) -> bool {
    lgetxattr_query(path, NAME).is_ok()
}

/// Marks an open file, where its file system can.
pub fn mark(file: impl AsFd) -> io::Result<()> {
    match fsetxattr(file, NAME, b"1", XattrFlags::empty()) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
