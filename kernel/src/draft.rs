//! What is handed to the kernel to become an extension: begun, checked, and added.
//!
//! The kernel may read and write what an extension may not. So what an extension names lies in its own data folder, and is
//! reached through that folder's descriptor without following a link: whoever writes there may exchange anything at any
//! moment. What is judged is a copy that nobody else writes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use drupe_extension_api::{
    ExtensionId, Fault,
    control::{CheckReport, ExtensionState, ExtensionStatus, Power},
};
use drupe_extension_source as source;
use drupe_folders::copy::{copy, copy_beneath, place_beneath};
use drupe_surface::principal::Principal;

use crate::{
    check::{load, runs_inside},
    extension::{Roster, change, lifecycle},
    forecast,
};

/// How the name of a folder begins while the kernel works on it.
pub const PART: &str = ".adding-";

/// A folder, or the file of an agent, as it was named.
#[derive(Debug, Clone)]
pub struct Draft {
    path: PathBuf,
    /// The data folder of the extension that named it; none for the operator.
    data: Option<PathBuf>,
}

/// A folder of ours that is gone when this is. A rest that a crash left is swept at the next start.
struct Part(PathBuf);

impl Part {
    fn of(folder: &Path) -> Self {
        Self(folder.join(format!("{PART}{}", uuid::Uuid::new_v4().simple())))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It is hidden from discovery.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Draft {
    /// What `path` names. An extension, for itself or for somebody else, names what is in its own folder; any path of this
    /// machine only who may decide about the daemon.
    pub fn new(roster: &Roster, path: String, by: &Principal) -> Result<Self, Fault> {
        let data = by.extension().map(|id| roster.base.home.data(id));
        if data.is_none() {
            by.needs(Power::Operate, "a path of this machine")?;
        }
        Ok(Self { path: path.into(), data })
    }

    /// A copy beneath a folder of ours, under its own name.
    fn copy(&self, to: &Path) -> Result<PathBuf, Fault> {
        let named = self.path.file_name();
        let name = named.ok_or_else(|| Fault::invalid(format!("`{}` has no name", self.path.display())))?;
        let copied = to.join(name);
        drupe_host::make_beneath(to.parent().unwrap_or(to), to)?;
        let done = match &self.data {
            None => copy(&self.path, &copied),
            Some(data) => copy_beneath(data, &self.path, &copied),
        };
        done.map_err(|error| self.fault("copied", &error))?;
        Ok(copied)
    }

    fn fault(&self, done: &str, error: &io::Error) -> Fault {
        let message = format!("`{}` cannot be {done}: {error}", self.path.display());
        match (&self.data, error.kind()) {
            (Some(data), io::ErrorKind::PermissionDenied) => {
                let help = format!("an extension may name what lies in `{}` alone", data.display());
                Fault::denied(message).help(help)
            }
            _ => Fault::invalid(message),
        }
    }

    /// Every fault of it, as data and for people.
    pub async fn check(self, roster: &Arc<Roster>) -> Result<CheckReport, Fault> {
        let named = self.path.clone();
        self.read(roster, move |roster, path| report(roster, path, &named)).await
    }

    /// Reads it, or a copy that nobody else writes where an extension named it. May block.
    pub async fn read<T: Send + 'static>(
        self,
        roster: &Arc<Roster>,
        read: impl FnOnce(&Roster, &Path) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let roster = Arc::clone(roster);
        let work = move || {
            if self.data.is_none() {
                return read(&roster, &self.path);
            }
            let part = Part::of(&roster.base.home.extensions());
            read(&roster, &self.copy(&part.0)?)
        };
        tokio::task::spawn_blocking(work).await.map_err(Fault::internal)?
    }

    /// Copies it to where the home's extensions live, and takes it in. What it brings that needs the operator's
    /// agreement waits for that. What an extension handed over and does not come to work is taken back: its maker is
    /// told why, mends the draft and tries again.
    pub async fn add(self, roster: &Arc<Roster>) -> Result<ExtensionStatus, Fault> {
        let (adding, by_extension) = (Arc::clone(roster), self.data.is_some());
        let id =
            tokio::task::spawn_blocking(move || self.add_copy(&adding)).await.map_err(Fault::internal)??;
        change::rescan(roster).await?;
        lifecycle::until_settled(roster, id.as_str()).await?;
        let status = roster.extensions.status(id.as_str())?;
        let hopeless = matches!(
            status.state,
            ExtensionState::Failed | ExtensionState::Skipped | ExtensionState::Quarantined
        );
        if by_extension && hopeless {
            let made = Path::new(&status.source);
            let removed = if made.is_file() { fs::remove_file(made) } else { fs::remove_dir_all(made) };
            removed.map_err(|error| {
                Fault::internal(format!("`{}` cannot be taken back: {error}", made.display()))
            })?;
            change::rescan(roster).await?;
        }
        Ok(status)
    }

    /// Judges the copy and not the original, which its maker could change in between.
    fn add_copy(&self, roster: &Roster) -> Result<ExtensionId, Fault> {
        let part = Part::of(&roster.base.home.extensions());
        let copied = self.copy(&part.0)?;
        source::rename(&copied, &roster.base.home.extensions(), &roster.base.home.sdk().join("current"))?;
        let loaded = load(&copied, roster.base.home.root()).map_err(|faults| {
            Fault::invalid(format!("the extension has faults:\n{}", faults.render(false)))
        })?;
        if self.data.is_some() && runs_inside(&loaded.value) {
            let what = "an extension that runs inside the kernel's process is the operator's alone to add";
            return Err(Fault::denied(what).help("leave `isolation` out: it gets a process of its own"));
        }
        let id = loaded.value.id;
        let taken = |what: String| Fault::denied(what).help("choose another id");
        if !roster.extensions.named(id.as_str()).is_empty() {
            return Err(taken(format!("there is an extension `{id}` already")));
        }
        let ending = if copied.is_file() { ".md" } else { "" };
        let target = roster.base.home.extensions().join(format!("{id}{ending}"));
        if target.symlink_metadata().is_ok() {
            return Err(taken(format!("`{}` exists already", target.display())));
        }
        // The one moment at which the extension comes to exist, whole.
        fs::rename(&copied, &target)
            .map_err(|error| Fault::internal(format!("`{}` cannot be made: {error}", target.display())))?;
        Ok(id)
    }

    /// Writes the beginning of a native extension where nothing is yet.
    pub async fn begin(self, roster: &Arc<Roster>, id: ExtensionId) -> Result<(), Fault> {
        if let Some(why) = drupe_wiring::kept_id(id.as_str()) {
            return Err(Fault::invalid(why).help("choose another id"));
        }
        let (home, sdk) = (roster.base.home.clone(), roster.base.home.sdk());
        let work = move || {
            home.make(&sdk).map_err(Fault::internal)?;
            let sdk = source::current(&sdk)?;
            let named = source::named(self.path.parent().unwrap_or(&self.path), &sdk);
            let write = |folder: &Path| {
                source::scaffold(&id, folder, &sdk, &named).map_err(|e| Fault::invalid(e.to_string()))
            };
            let Some(data) = &self.data else { return write(&self.path) };
            let part = Part::of(data.parent().unwrap_or(data));
            let made = part.0.join(id.as_str());
            write(&made)?;
            place_beneath(&made, data, &self.path).map_err(|error| self.fault("made", &error))
        };
        tokio::task::spawn_blocking(work).await.map_err(Fault::internal)?
    }
}

/// What this daemon would make of what lies at `path`, told as if it lay at `named`.
fn report(roster: &Roster, path: &Path, named: &Path) -> Result<CheckReport, Fault> {
    let at = (roster.base.home.root(), roster.base.start.exe.as_path());
    let found = Some(vec![forecast::named(path)]);
    let seen = forecast::forecast(at, &roster.base.config, found, roster.supervision.verdicts().quarantined);
    let one = seen.extensions.into_iter().next();
    let one = one.ok_or_else(|| Fault::internal(format!("`{}` was not looked at", named.display())))?;
    Ok(one.report(path, named))
}
