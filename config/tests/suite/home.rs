//! A home in a temporary folder.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use drupe_config::{
    Config, Diagnostics, Loaded, Manifest, Sources, load_agent_file, load_config, load_manifest,
};

pub struct Home {
    root: tempfile::TempDir,
}

impl Home {
    /// A home with one extension folder, `demo`, that holds prompts and links that lead out.
    pub fn new() -> Self {
        let home = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(home.demo()).unwrap();
        home.write("extensions/demo/prompt.md", "You are a demo.");
        home.write("extensions/demo/prompt.jinja2", "You are {{ agent.id }}.");
        home.write("extensions/demo/facts.csv", "a,b\n");
        home.write("common.md", "Shared by all.");
        home.write("authority.pem", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n");
        symlink("/proc/version", home.demo().join("link.md")).unwrap();
        home
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    pub fn demo(&self) -> PathBuf {
        self.path().join("extensions/demo")
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), content).unwrap();
    }

    pub fn write_env(&self, content: &str) {
        self.write(".env", content);
        fs::set_permissions(self.path().join(".env"), fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub fn manifest(&self, text: impl AsRef<[u8]>) -> Result<Loaded<Manifest>, Diagnostics> {
        self.write("extensions/demo/manifest.yaml", text);
        load_manifest(&self.demo(), self.path())
    }

    pub fn agent_file(&self, text: impl AsRef<[u8]>) -> Result<Loaded<Manifest>, Diagnostics> {
        self.write("extensions/demo.md", text);
        load_agent_file(&self.path().join("extensions/demo.md"), self.path())
    }

    pub fn sources(&self, text: impl AsRef<[u8]>) -> Sources {
        self.write("drupe.yaml", text);
        Sources {
            file: Some(self.path().join("drupe.yaml")),
            home: self.path().to_owned(),
            ..Sources::default()
        }
    }

    pub fn config(&self, text: impl AsRef<[u8]>) -> Result<Loaded<Config>, Diagnostics> {
        load_config(&self.sources(text))
    }

    /// A text without the name of the temporary folder.
    pub fn anonymous(&self, text: &str) -> String {
        let real = self.path().canonicalize().unwrap();
        text.replace(real.to_str().unwrap(), "HOME").replace(self.path().to_str().unwrap(), "HOME")
    }
}

/// Codes with line, column and field, in order.
pub fn places(faults: &Diagnostics) -> Vec<String> {
    faults.iter().map(|f| format!("{}:{} {} {}", f.line, f.column, f.code, f.field)).collect()
}
