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
use drupe_extension_api::{
    Fault,
    wire::{ProcessSpec, TerminalSize},
};

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
    /// The folders of skills that they may read and run where they ask for it.
    pub skills: &'a [PathBuf],
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

/// Columns, and rows, of a terminal: many programs draw the whole of it.
const LARGEST_TERMINAL: u16 = 500;

/// Where the workspace is, beneath the home.
const WORKSPACE: &str = "workspace";

/// Where the data of all extensions is, beneath the home: each changes its own.
const DATA: &str = "data";

/// Folders of the home that hold what nobody is given: the token, the last good configuration. What lies in a folder within
/// one of them, as an extension that was restored, may be a skill.
const PRIVATE: [&str; 2] = ["run", "state"];

/// Where programs are looked up where the operator's environment does not say it.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What is to be started; its streams are left to the caller.
pub fn admit(at: &Surroundings<'_>, ask: &ProcessSpec) -> Result<Confined, Fault> {
    let (memory, tasks) = bounds(ask)?;
    let terminal = ask.terminal.map(sized).transpose()?;
    if ask.network && !at.network {
        let message = "the extension may not give its programs the network";
        return Err(Fault::denied(message).help("its manifest needs `rights: [network]`"));
    }
    let data = at.data.canonicalize()?;
    let workspace = ask.workspace.then(|| workspace(at)).transpose()?;
    let roots: Vec<&Path> =
        [Some(&data), workspace.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
    let directory = beneath(&roots, &ask.directory)?;
    let mut writes =
        ask.folders.iter().map(|folder| beneath(&[&data], folder)).collect::<Result<Vec<_>, _>>()?;
    let kept =
        ask.keep.iter().filter_map(|named| kept(&roots, named).transpose()).collect::<Result<Vec<_>, _>>()?;
    let temporary = data.join("tmp");
    drupe_confine::make_beneath(&data, &temporary)?;
    match writes.is_empty() {
        true => writes.push(data.clone()),
        false => writes.push(temporary.clone()),
    }
    writes.extend(workspace);
    let mut reads = vec![at.folder.to_owned(), at.sdk.to_owned()];
    for named in &ask.read {
        reads.extend(granted(at, named)?);
    }
    let skills = if ask.skills { skills(at)? } else { Vec::new() };
    let path = path(at, ask, &[&reads[..], &writes[..]].concat())?;
    let program = find(&path, &ask.program)?;

    let limits = Limits {
        data: Some(memory),
        tree_memory: Some(3 * memory),
        tree_tasks: Some(tasks),
        ..Limits::default()
    };
    // Compilers and unpackers set modes and times.
    let profile =
        Profile { network: ask.network, attributes: true, limits, strict: at.strict, ..Profile::program() };
    let profile = reads.iter().fold(profile, Profile::read);
    // The extension can exchange what lies in its data folder at any moment, also between here and there.
    let profile = writes.iter().fold(profile, Profile::write_unlinked).read_unlinked(&directory);
    let profile = skills.into_iter().fold(profile, Profile::read_unlinked);
    let profile = kept.into_iter().fold(profile, Profile::keep);
    let mut confined = Confined::new(at.exe, profile, program)
        .args(&ask.args)
        .directory(directory)
        .env("PATH", &path)
        .env("HOME", &data)
        .env("TMPDIR", &temporary);
    if let Some(timeout) = ask.timeout_ms {
        confined = confined.deadline(Duration::from_millis(timeout));
    }
    if let Some(size) = terminal {
        confined = confined.terminal(size.columns, size.rows);
    }
    if ask.network {
        // Names are looked up by TCP: other sockets are denied.
        confined = confined.env("RES_OPTIONS", "use-vc");
    }
    Ok(ask.env.iter().fold(confined, |confined, (name, value)| confined.env(name, value)))
}

/// Checks the bounds; the memory of each process, in bytes, and the processes and threads of all.
fn bounds(ask: &ProcessSpec) -> Result<(u64, u64), Fault> {
    let within = |name: &str, asked: Option<u64>, most: u64| match asked {
        Some(asked) if asked == 0 || asked > most => Err(Fault::invalid(format!("`{name}` is 1 to {most}"))),
        asked => Ok(asked.unwrap_or(most)),
    };
    within("timeout_ms", ask.timeout_ms, LONGEST)?;
    let memory = within("memory_mb", ask.memory_mb, MEMORY >> 20)?;
    Ok((memory << 20, within("tasks", ask.tasks, TASKS)?))
}

fn sized(size: TerminalSize) -> Result<TerminalSize, Fault> {
    let fits = |length| (1..=LARGEST_TERMINAL).contains(&length);
    if fits(size.columns) && fits(size.rows) {
        return Ok(size);
    }
    Err(Fault::invalid(format!("`columns` and `rows` of `terminal` are 1 to {LARGEST_TERMINAL}")))
}

/// The workspace. It lies in the home, or is a link of the operator's to a place from which the rest of the home is not reached.
fn workspace(at: &Surroundings<'_>) -> Result<PathBuf, Fault> {
    let named = at.home.join(WORKSPACE);
    let (home, real) = (at.home.canonicalize()?, named.canonicalize()?);
    let reaches = home.starts_with(&real) || real.starts_with(&home) && real != home.join(WORKSPACE);
    match reaches {
        true => {
            let message =
                format!("`{}` leads to what no program of an extension may change", named.display());
            Err(Fault::denied(message).help("make it a folder, or a link to one outside of the home"))
        }
        false => Ok(real),
    }
}

/// A folder that an extension names beneath one of those that are its programs', the data folder first, without links on the
/// way.
fn beneath(roots: &[&Path], named: &str) -> Result<PathBuf, Fault> {
    let folder = Path::new(named).canonicalize()?;
    if roots.iter().any(|root| folder.starts_with(root)) {
        return Ok(folder);
    }
    let roots: Vec<String> = roots.iter().map(|root| format!("`{}`", root.display())).collect();
    Err(Fault::denied(format!(
        "`{named}` is not beneath the data folder {}",
        roots.join(" or the workspace ")
    )))
}

/// What is to stay as it is, with the links on the way to it followed. None where there is nothing. A link in its place could
/// itself be exchanged, so that nothing would be kept.
fn kept(roots: &[&Path], named: &str) -> Result<Option<PathBuf>, Fault> {
    let path = Path::new(named);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Fault::invalid(format!("`{named}` of `keep` names no file")));
    };
    let Ok(place) = beneath(roots, &parent.display().to_string()).map(|parent| parent.join(name)) else {
        return Err(Fault::denied(format!("`{named}` of `keep` is not beneath what the program may change")));
    };
    match place.symlink_metadata() {
        Ok(found) if found.is_symlink() => {
            Err(Fault::denied(format!("`{named}` is a link, which cannot be kept from being changed")))
        }
        Ok(_) => Ok(Some(place)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
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

/// The folders of skills that a program may read. Not those to which the way leads through what programs may change: what lies in
/// the workspace it reads where it has that, and any other could have been exchanged for a link to anywhere. Nor those that hold
/// what is nobody's.
fn skills(at: &Surroundings<'_>) -> Result<Vec<PathBuf>, Fault> {
    let home = at.home.canonicalize()?;
    let changeable: Vec<PathBuf> =
        [WORKSPACE, DATA].iter().filter_map(|name| home.join(name).canonicalize().ok()).collect();
    let private = [home.clone()].into_iter().chain(PRIVATE.iter().map(|name| home.join(name)));
    let private: Vec<PathBuf> = private.collect();
    let is_fixed = |folder: &&PathBuf| {
        let mut way = folder.ancestors().filter_map(|part| part.canonicalize().ok());
        !way.any(|part| changeable.iter().any(|changeable| part.starts_with(changeable)))
    };
    let real = at.skills.iter().filter(is_fixed).filter_map(|folder| folder.canonicalize().ok());
    Ok(real.filter(|folder| !private.iter().any(|private| private.starts_with(folder))).collect())
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
