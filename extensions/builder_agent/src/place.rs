//! Where a file of a draft may be.

use std::{env::consts::DLL_SUFFIX, path::Path};

use drupe_extension_api::Fault;

/// A file in the folder of a draft, or a Rust source in its `src`.
pub struct Place<'a> {
    folder: Option<&'static str>,
    name: &'a str,
}

impl<'a> Place<'a> {
    /// Takes `name`, or `src/name.rs`; the name is plain: no further folder, nothing hidden. What cargo and the
    /// compiler make is not for writing.
    pub fn new(file: &'a str) -> Result<Self, Fault> {
        let refused = || {
            Fault::invalid(format!("`{file}` is no file that a draft can have"))
                .help("such as `manifest.yaml`, `prompt.md`, `Cargo.toml` or `src/lib.rs`")
        };
        let (folder, name) = match file.strip_prefix("src/") {
            Some(name) if name.ends_with(".rs") => (Some("src"), name),
            Some(_) => return Err(refused()),
            None => (None, file),
        };
        let made = name == "Cargo.lock" || name == "target" || name == "src" || name.ends_with(DLL_SUFFIX);
        let plain =
            Path::new(name).file_name().and_then(|n| n.to_str()) == Some(name) && !name.contains('\0');
        if plain && !made && !name.starts_with('.') && name.len() <= 64 {
            return Ok(Self { folder, name });
        }
        Err(refused())
    }

    pub fn folder(&self) -> Option<&'static str> {
        self.folder
    }

    pub fn name(&self) -> &'a str {
        self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_in_its_folder() {
        for bad in [
            "",
            "..",
            ".",
            "../x",
            "a/b",
            "/etc/passwd",
            ".hidden",
            "a/",
            "src",
            "src/",
            "src/..",
            "src/../x.rs",
            "src/a/b.rs",
            "src/.rs",
            "src/x.txt",
            "src//x.rs",
            "./src/x.rs",
            ".cargo/config.toml",
            "target",
            "Cargo.lock",
            "libx.so",
            "a\0b",
        ] {
            assert!(Place::new(bad).is_err(), "{bad}");
        }
        for good in ["prompt.md", "manifest.yaml", "Cargo.toml", "src/lib.rs", "src/word_list.rs"] {
            assert!(Place::new(good).is_ok(), "{good}");
        }
    }
}
