//! Files of agents as a daemon would see them, before any of them lies where it looks.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use drupe_config::{Config, Diagnostics};
use drupe_extension_api::{ExtensionId, control::ExtensionState};
use drupe_folders::discovery::{Layout, discover};
use drupe_kernel::forecast::{self, forecast};

use super::adopt;
use crate::cli::{Context, config, ext::check::quarantined, failure::Failure};

/// A folder that nobody else reads, removed in the end.
struct Apart(PathBuf);

impl Apart {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("drupe-import-{}", uuid::Uuid::new_v4().simple()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // What is left in the system's own folder for such does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a daemon would make of an agent.
pub struct Judged {
    pub id: String,
    pub diagnostics: Diagnostics,
    /// Whether it would come to work, or wait for an answer.
    pub works: bool,
    /// Why it would not, or for what it waits.
    pub reason: Option<String>,
    pub waits: bool,
}

impl Judged {
    /// Why it does not work yet, as a sentence.
    pub fn why(&self) -> String {
        match adopt::short(&self.diagnostics) {
            faults if faults.is_empty() => self.reason.clone().unwrap_or_default(),
            faults => faults,
        }
    }
}

/// Looks at agents as `drupe ext check` does, all together. Nothing is written to the home.
pub fn judge(
    agents: &[(ExtensionId, String)],
    configuration: &Config,
    context: &Context,
) -> Result<Vec<Judged>, Failure> {
    let apart = Apart::new()?;
    let mut named = Vec::new();
    for (id, text) in agents {
        let path = apart.0.join(format!("{id}.md"));
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?
            .write_all(text.as_bytes())?;
        named.push(forecast::named(&path));
    }
    let home = context.home().path();
    let expected = forecast((home, &context.exe), configuration, Some(named), quarantined(home));
    if let Some(why) = expected.refused {
        return Err(config::refused(&why));
    }
    let shown = format!("{}/", apart.0.canonicalize().unwrap_or_else(|_| apart.0.clone()).display());
    let judged = expected.extensions.into_iter().map(|one| Judged {
        works: one.works() && !one.looked.diagnostics.has_errors(),
        waits: one.state == ExtensionState::AwaitingApproval,
        reason: one.reason.map(|reason| reason.replace(&shown, "")),
        id: one.id,
        diagnostics: one.looked.diagnostics,
    });
    Ok(judged.collect())
}

/// Ids that a daemon would find, each with where it lies.
pub fn taken(configuration: &Config, context: &Context) -> Vec<(String, PathBuf)> {
    let layout = Layout::new(&context.exe, context.home().path(), &configuration.extensions.paths);
    let (found, _) = discover(&layout.roots().0);
    found.into_iter().map(|one| (one.name, one.folder)).collect()
}

/// Makes a file that did not exist, whole, for its owner alone.
pub fn create(path: &Path, bytes: &[u8], executable: bool) -> io::Result<()> {
    let mode = if executable { 0o700 } else { 0o600 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Puts what was made under another name in its place, where nothing is.
pub fn place(made: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, made, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems know no such thing.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            if to.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(made, to)
        }
        done => Ok(done?),
    }
}

/// A name beside others that a daemon passes over.
pub fn beside(root: &Path) -> PathBuf {
    root.join(format!(".new-{}", uuid::Uuid::new_v4().simple()))
}
