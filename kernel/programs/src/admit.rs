//! What a program of an extension may reach: decided here, from what the extension asks and where it stands.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use drupe_confine::{Confined, Limits, Profile};
use drupe_extension_api::{Fault, wire::ProcessSpec};

use crate::cargo_home;

/// Where the programs of one extension run.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// drupe's own program.
    pub exe: &'a Path,
    /// The extension's own folder, to read.
    pub folder: &'a Path,
    /// The folder that they may write.
    pub data: &'a Path,
    /// What native extensions are built with, to read.
    pub sdk: &'a Path,
    /// Where cargo keeps what it fetched and unpacked for this extension.
    pub cargo: &'a Path,
    /// The operator's environment, in which programs and toolchains are looked up; it is not handed on.
    pub environment: &'a BTreeMap<String, String>,
    /// Whether to refuse where the system cannot confine as asked.
    pub strict: bool,
}

/// The longest that a program may run.
const LONGEST: u64 = 3_600_000;

/// Memory of each process: a linker of a large program needs some of it. All together may have three times as much:
/// compilers run side by side.
const MEMORY: u64 = 4 * 1024 * 1024 * 1024;

/// Processes and threads of all.
const TASKS: u64 = 8192;

/// What is to be started; its streams are left to the caller.
pub async fn admit(at: Surroundings<'_>, ask: &ProcessSpec) -> Result<Confined, Fault> {
    if ask.timeout_ms.is_some_and(|timeout| timeout == 0 || timeout > LONGEST) {
        return Err(Fault::invalid(format!("`timeout_ms` is 1 to {LONGEST}")));
    }
    let most = MEMORY >> 20;
    let memory = ask.memory_mb.unwrap_or(most);
    if memory == 0 || memory > most {
        return Err(Fault::invalid(format!("`memory_mb` is 1 to {most}")));
    }
    let data = at.data.canonicalize()?;
    let directory = beneath(&data, &ask.directory)?;
    let mut folders =
        ask.folders.iter().map(|folder| beneath(&data, folder)).collect::<Result<Vec<_>, _>>()?;
    let toolchains = Toolchains::of(&at)?;
    let program = toolchains.find(&ask.program)?;
    let (cargo, own_cargo) = (toolchains.cargo.clone(), toolchains.own_cargo.clone());
    let seeding = tokio::task::spawn_blocking(move || cargo_home::seed(&cargo, &own_cargo));
    seeding.await.map_err(Fault::internal)??;
    let temporary = data.join("tmp");
    drupe_confine::make_beneath(&data, &temporary)?;
    match folders.is_empty() {
        true => folders.push(data.clone()),
        false => folders.push(temporary.clone()),
    }
    let profile = profile(&at, &folders, &toolchains, ask.network, memory << 20).read(&directory);
    let mut confined = Confined::new(at.exe, profile, program)
        .args(&ask.args)
        .directory(directory)
        .env("PATH", &toolchains.path)
        .env("HOME", &data)
        .env("TMPDIR", &temporary)
        .env("CARGO_HOME", &toolchains.own_cargo)
        .env("RUSTUP_HOME", &toolchains.rustup);
    if let Some(timeout) = ask.timeout_ms {
        confined = confined.deadline(Duration::from_millis(timeout));
    }
    if ask.network {
        confined = confined.env("RES_OPTIONS", "use-vc");
    }
    for (name, value) in &ask.env {
        confined = confined.env(name, value);
    }
    Ok(confined)
}

/// A folder that an extension names, without links on the way.
fn beneath(data: &Path, named: &str) -> Result<PathBuf, Fault> {
    let folder = Path::new(named).canonicalize()?;
    match folder.starts_with(data) {
        true => Ok(folder),
        false => Err(Fault::denied(format!("`{named}` is not beneath the data folder `{}`", data.display()))),
    }
}

fn profile(
    at: &Surroundings<'_>,
    folders: &[PathBuf],
    toolchains: &Toolchains,
    network: bool,
    memory: u64,
) -> Profile {
    let limits = Limits {
        data: Some(memory),
        tree_memory: Some(3 * memory),
        tree_tasks: Some(TASKS),
        ..Limits::default()
    };
    let profile = Profile::program()
        .read(at.folder)
        .read(at.sdk)
        .read(&toolchains.rustup)
        .network(network)
        // Compilers set modes and times.
        .attributes(true)
        .limits(limits)
        .strict(at.strict);
    let profile = folders.iter().fold(profile, Profile::write);
    // Not the credentials.
    profile.read(toolchains.cargo.join("bin")).write(&toolchains.own_cargo)
}

/// Where the operator's programs and compilers are.
struct Toolchains {
    path: String,
    cargo: PathBuf,
    /// The extension's own cargo home.
    own_cargo: PathBuf,
    rustup: PathBuf,
}

impl Toolchains {
    fn of(at: &Surroundings<'_>) -> Result<Self, Fault> {
        let environment = at.environment;
        let home = PathBuf::from(environment.get("HOME").map_or("/", String::as_str));
        let folder =
            |name: &str, usual: &str| environment.get(name).map_or_else(|| home.join(usual), PathBuf::from);
        let (cargo, rustup) = (folder("CARGO_HOME", ".cargo"), folder("RUSTUP_HOME", ".rustup"));
        let usual = environment.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str);
        let path = format!("{}:{usual}", cargo.join("bin").display());
        let own_cargo = at.cargo.to_owned();
        Ok(Self { path, cargo, own_cargo, rustup })
    }

    /// The file of a program.
    fn find(&self, program: &str) -> Result<PathBuf, Fault> {
        if program.starts_with('/') {
            return Ok(PathBuf::from(program));
        }
        let plain = !program.is_empty() && !program.contains('/');
        let found =
            self.path.split(':').map(|folder| Path::new(folder).join(program)).find(|file| file.is_file());
        found.filter(|_| plain).ok_or_else(|| {
            Fault::not_found(format!("there is no program `{program}`"))
                .help("install it, or give its whole path")
        })
    }
}
