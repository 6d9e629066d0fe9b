//! What a program of an extension may reach: decided here and nowhere else, from what the extension asks, what its manifest
//! says and where it stands.
//!
//! Nothing is granted that is not asked for, but what any program needs. What is asked for is granted only where the manifest
//! allows it; the rest is refused by name, so that no program starts with less than it was meant to have. This knows
//! no program and no toolchain: who needs one says so, in the manifest and in each [`ProcessSpec`].

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use drupe_confine::{Confined, Limits, Profile};
use drupe_extension_api::{Fault, wire::ProcessSpec};

/// Where the programs of one extension run, and what its manifest allows them.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// drupe's own program.
    pub exe: &'a Path,
    /// The home: what is not named here is reached by no program, whatever a manifest says.
    pub home: &'a Path,
    /// The extension's own folder, to read.
    pub folder: &'a Path,
    /// The folder that they may write.
    pub data: &'a Path,
    /// The source that extensions are built with, to read.
    pub sdk: &'a Path,
    /// `program_folders` of its manifest: what they may read beside that.
    pub folders: &'a [String],
    /// Whether they may have TCP.
    pub network: bool,
    /// The operator's environment. Of it programs get `PATH` and nothing else; it also says where `folders` are.
    pub environment: &'a BTreeMap<String, String>,
    /// Whether to refuse where the system cannot confine as asked.
    pub strict: bool,
}

/// The longest that a program with a deadline may run.
const LONGEST: u64 = 3_600_000;

/// Memory of each process: a linker of a large program needs some of it. All together may have three times as much:
/// compilers run side by side.
const MEMORY: u64 = 4 * 1024 * 1024 * 1024;

/// Processes and threads of all.
const TASKS: u64 = 8192;

/// Where programs are looked up where the operator's environment does not say it.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What is to be started; its streams are left to the caller.
pub fn admit(at: &Surroundings<'_>, ask: &ProcessSpec) -> Result<Confined, Fault> {
    let memory = bounds(ask)?;
    if ask.network && !at.network {
        let message = "the extension may not give its programs the network";
        return Err(Fault::denied(message).help("its manifest needs `rights: [network]`"));
    }
    let data = at.data.canonicalize()?;
    let directory = beneath(&data, &ask.directory)?;
    let mut writes =
        ask.folders.iter().map(|folder| beneath(&data, folder)).collect::<Result<Vec<_>, _>>()?;
    let temporary = data.join("tmp");
    drupe_confine::make_beneath(&data, &temporary)?;
    match writes.is_empty() {
        true => writes.push(data.clone()),
        false => writes.push(temporary.clone()),
    }
    let mut reads = vec![at.folder.to_owned(), at.sdk.to_owned()];
    for named in &ask.read {
        reads.extend(granted(at, named)?);
    }
    let path = path(at, ask, &[&reads[..], &writes[..]].concat())?;
    let program = find(&path, &ask.program)?;

    let limits = Limits {
        data: Some(memory),
        tree_memory: Some(3 * memory),
        tree_tasks: Some(TASKS),
        ..Limits::default()
    };
    // Compilers and unpackers set modes and times.
    let profile =
        Profile { network: ask.network, attributes: true, limits, strict: at.strict, ..Profile::program() };
    let profile = reads.iter().fold(profile, Profile::read);
    // The extension can exchange what lies in its data folder at any moment, also between here and there.
    let profile = writes.iter().fold(profile, Profile::write_unlinked).read_unlinked(&directory);
    let mut confined = Confined::new(at.exe, profile, program)
        .args(&ask.args)
        .directory(directory)
        .env("PATH", &path)
        .env("HOME", &data)
        .env("TMPDIR", &temporary);
    if let Some(timeout) = ask.timeout_ms {
        confined = confined.deadline(Duration::from_millis(timeout));
    }
    if ask.network {
        // Names are looked up by TCP: other sockets are denied.
        confined = confined.env("RES_OPTIONS", "use-vc");
    }
    Ok(ask.env.iter().fold(confined, |confined, (name, value)| confined.env(name, value)))
}

/// Checks the bounds; the memory of each process, in bytes.
fn bounds(ask: &ProcessSpec) -> Result<u64, Fault> {
    if ask.timeout_ms.is_some_and(|timeout| timeout == 0 || timeout > LONGEST) {
        return Err(Fault::invalid(format!("`timeout_ms` is 1 to {LONGEST}")));
    }
    let most = MEMORY >> 20;
    match ask.memory_mb.unwrap_or(most) {
        0 => Err(Fault::invalid(format!("`memory_mb` is 1 to {most}"))),
        memory if memory > most => Err(Fault::invalid(format!("`memory_mb` is 1 to {most}"))),
        memory => Ok(memory << 20),
    }
}

/// A folder that an extension names beneath its own, without links on the way.
fn beneath(data: &Path, named: &str) -> Result<PathBuf, Fault> {
    let folder = Path::new(named).canonicalize()?;
    match folder.starts_with(data) {
        true => Ok(folder),
        false => Err(Fault::denied(format!("`{named}` is not beneath the data folder `{}`", data.display()))),
    }
}

/// What an extension wants its program to read, where its manifest allows that. None where the manifest does and there is
/// nothing: a machine need not have all that a program could use.
fn granted(at: &Surroundings<'_>, named: &str) -> Result<Option<PathBuf>, Fault> {
    let path = Path::new(named);
    let plain = path.is_absolute() && path.components().all(|part| !matches!(part, Component::ParentDir));
    let allowed = at.folders.iter().filter_map(|folder| resolve(folder, at.environment));
    let Some(allowed) = allowed.filter(|_| plain).find(|allowed| path.starts_with(allowed)) else {
        let message = format!("`{named}` is not among what the programs of this extension may read");
        return Err(Fault::denied(message).help("its manifest names folders under `program_folders`"));
    };
    let (Ok(real), Ok(allowed)) = (path.canonicalize(), allowed.canonicalize()) else { return Ok(None) };
    // Nor where a link leads elsewhere, or where the home is: its token, its journal and the secrets in it are nobody's.
    let home = at.home.canonicalize()?;
    if !real.starts_with(&allowed) || real.starts_with(&home) || home.starts_with(&real) {
        return Err(Fault::denied(format!("`{named}` leads to what no program of an extension may read")));
    }
    Ok(Some(real))
}

/// A folder as a manifest names it: an absolute path that may begin with `~`, `$NAME` or `${NAME:-usual}`. None where
/// that has no meaning here.
pub fn resolve(folder: &str, environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let (start, rest) = match folder.strip_prefix("${") {
        Some(named) => {
            let (named, rest) = named.split_once('}')?;
            let (name, usual) = match named.split_once(":-") {
                Some((name, usual)) => (name, Some(usual)),
                None => (named, None),
            };
            (environment.get(name).map(String::as_str).or(usual)?, rest)
        }
        None => folder.split_at(folder.find('/').unwrap_or(folder.len())),
    };
    let start = match start.strip_prefix('~') {
        Some(within) if within.is_empty() || within.starts_with('/') => {
            format!("{}{within}", environment.get("HOME")?)
        }
        Some(_) => return None,
        None => start.to_owned(),
    };
    Some(PathBuf::from(start + rest)).filter(|path| path.is_absolute())
}

/// Where the program and those that it starts are looked up.
fn path(at: &Surroundings<'_>, ask: &ProcessSpec, reached: &[PathBuf]) -> Result<String, Fault> {
    let usual = at.environment.get("PATH").map_or(USUAL_PATH, String::as_str);
    let mut folders = Vec::new();
    for named in &ask.path {
        match Path::new(named).canonicalize() {
            Ok(folder) if reached.iter().any(|reached| folder.starts_with(reached)) => {
                folders.push(named.as_str())
            }
            // It was granted above, and there is nothing.
            Err(_) if ask.read.iter().any(|read| Path::new(named).starts_with(read)) => {}
            _ => {
                return Err(Fault::denied(format!(
                    "`{named}` of `path` is not among what the program may read"
                )));
            }
        }
    }
    folders.push(usual);
    Ok(folders.join(":"))
}

/// The file of a program.
fn find(path: &str, program: &str) -> Result<PathBuf, Fault> {
    if program.starts_with('/') {
        return Ok(PathBuf::from(program));
    }
    let plain = !program.is_empty() && !program.contains('/');
    let found = path.split(':').map(|folder| Path::new(folder).join(program)).find(|file| file.is_file());
    found.filter(|_| plain).ok_or_else(|| {
        Fault::not_found(format!("there is no program `{program}`"))
            .help("install it, or give its whole path")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_a_manifest_is_found_by_the_operators_environment() {
        let environment = BTreeMap::from([("HOME".into(), "/u".into()), ("TOOLS".into(), "/opt/t".into())]);
        for (named, found) in [
            ("/opt/tool", Some("/opt/tool")),
            ("~/.tool/bin", Some("/u/.tool/bin")),
            ("~", Some("/u")),
            ("${TOOLS}/bin", Some("/opt/t/bin")),
            ("${TOOLS:-~/.tools}/bin", Some("/opt/t/bin")),
            ("${OTHER:-~/.other}/bin", Some("/u/.other/bin")),
            ("${OTHER:-/opt/other}", Some("/opt/other")),
            // Nothing stands for what is not said: `/bin` is not what was meant.
            ("${OTHER}/bin", None),
            ("~other/bin", None),
            ("tool", None),
            ("${OTHER:-tool}", None),
            ("${OTHER", None),
        ] {
            assert_eq!(resolve(named, &environment).as_deref(), found.map(Path::new), "{named}");
        }
        assert_eq!(resolve("~/x", &BTreeMap::new()), None);
    }
}
