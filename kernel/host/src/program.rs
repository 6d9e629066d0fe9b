//! Programs that an extension runs: confined, bounded, and gone with the call. Whether it may is decided elsewhere.

mod cargo_home;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use drupe_confine::{Confined, Limits, Outcome, Profile};
use drupe_extension_api::{
    Fault, FaultCode,
    wire::{ProcessOutput, RunProcess},
};

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

/// The most that is kept of an output stream.
const MOST: u64 = 1024 * 1024;

/// Memory of each process: a linker of a large program needs some of it.
const MEMORY: u64 = 4 * 1024 * 1024 * 1024;

/// Memory of all its processes: compilers run side by side.
const MEMORY_OF_ALL: u64 = 3 * MEMORY;

/// Processes and threads of all.
const TASKS: u64 = 8192;

/// Runs it to its end. Dropping the future kills it.
///
/// # Errors
///
/// `invalid` for bounds that are out of range, `denied` for a folder that is not beneath the data folder,
/// `not_found` for a program that is not there, `unavailable` where it cannot be started confined.
pub async fn run(at: Surroundings<'_>, ask: RunProcess) -> Result<ProcessOutput, Fault> {
    if ask.timeout_ms == 0 || ask.timeout_ms > LONGEST || ask.max_output > MOST {
        let message = format!("`timeout_ms` is 1 to {LONGEST}, `max_output` at most {MOST}");
        return Err(Fault::invalid(message));
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
    let profile = profile(&at, &folders, &toolchains, ask.network).read(&directory);
    let mut confined = Confined::new(at.exe, profile, program)
        .args(&ask.args)
        .directory(directory)
        .deadline(Duration::from_millis(ask.timeout_ms))
        .env("PATH", &toolchains.path)
        .env("HOME", &data)
        .env("TMPDIR", &temporary)
        .env("CARGO_HOME", &toolchains.own_cargo)
        .env("RUSTUP_HOME", &toolchains.rustup);
    if ask.network {
        confined = confined.env("RES_OPTIONS", "use-vc");
    }
    for (name, value) in &ask.env {
        confined = confined.env(name, value);
    }
    let most = usize::try_from(ask.max_output).unwrap_or(usize::MAX);
    let (tell, told) = tokio::sync::oneshot::channel();
    let running = tokio::task::spawn_blocking(move || {
        let child = confined.spawn_captured()?;
        // Whoever waits holds it; when they go, so does the program.
        let _ = tell.send(child.stopper());
        child.finish(most)
    });
    let _stopper = told.await;
    let outcome = running.await.map_err(Fault::internal)?;
    let outcome = outcome.map_err(|error| Fault::new(FaultCode::Unavailable, error.to_string()))?;
    Ok(output(&outcome))
}

/// A folder that an extension names, without links on the way.
fn beneath(data: &Path, named: &str) -> Result<PathBuf, Fault> {
    let folder = Path::new(named).canonicalize()?;
    match folder.starts_with(data) {
        true => Ok(folder),
        false => Err(Fault::denied(format!("`{named}` is not beneath the data folder `{}`", data.display()))),
    }
}

fn profile(at: &Surroundings<'_>, folders: &[PathBuf], toolchains: &Toolchains, network: bool) -> Profile {
    let limits = Limits {
        data: Some(MEMORY),
        tree_memory: Some(MEMORY_OF_ALL),
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

fn output(outcome: &Outcome) -> ProcessOutput {
    let mut stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
    if let Some(what) = &outcome.exceeded {
        stderr += &format!("\ndrupe killed it: its processes {what}\n");
    }
    ProcessOutput {
        status: outcome.status.code(),
        timed_out: outcome.timed_out,
        stdout: String::from_utf8_lossy(&outcome.stdout).into_owned(),
        stderr,
    }
}
