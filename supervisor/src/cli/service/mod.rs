//! `drupe service`: a unit for systemd, written, taken away and looked at. It is the operator's: no unit that was written
//! otherwise is touched, and all that would be done is shown before it is, with `--dry-run`.

mod systemctl;
mod unit;

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use drupe_config::{Sources, default_file, load_config};
use serde::Serialize;

use super::{
    Context, config,
    failure::{Failure, status},
};
use systemctl::{Systemctl, UNIT};
use unit::{MARKER, UnitFile, Unwritable, Whose};

/// The largest unit that is read to see whose it is.
const LARGEST: u64 = 1 << 20;

/// The home of a service of the machine, unless one is named.
const SYSTEM_HOME: &str = "/var/lib/drupe";

#[derive(Debug, clap::Subcommand)]
pub enum ServiceVerbs {
    /// Write the unit, and have systemd read it
    Install(Install),
    /// Stop the service, and take its unit away; the home stays
    Remove(Remove),
    /// Show whether the unit is there, and what systemd does with it
    Status(UnitStanding),
}

/// Which of the two managers it is about.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Manager {
    /// A service of the machine, in place of one of your user
    #[arg(long)]
    system: bool,
}

#[derive(Debug, clap::Args)]
pub struct Install {
    #[command(flatten)]
    manager: Manager,
    /// The user that a service of the machine runs as
    #[arg(long, value_name = "USER", requires = "system")]
    user_name: Option<String>,
    /// A file that holds a secret, which the daemon has as NAME; may be repeated
    #[arg(long = "credential", value_name = "NAME=FILE")]
    credentials: Vec<String>,
    /// Start it at once and with each start of the machine, or of your sessions
    #[arg(long)]
    now: bool,
    /// Take the place of a unit that was written otherwise
    #[arg(long)]
    force: bool,
    /// Print the unit, and what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub struct Remove {
    #[command(flatten)]
    manager: Manager,
    /// Also a unit that was written otherwise, and one that systemd does not stop
    #[arg(long)]
    force: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub struct UnitStanding {
    #[command(flatten)]
    manager: Manager,
    /// Print the same facts as JSON
    #[arg(long)]
    json: bool,
}

/// What is printed for programs.
#[derive(Debug, Serialize)]
struct Report {
    unit: PathBuf,
    installed: bool,
    /// Whether `drupe service install` wrote it.
    ours: bool,
    /// `active`, `failed` and so on; none where systemd does not answer.
    state: Option<String>,
    /// `enabled`, `disabled` and so on.
    enabled: Option<String>,
    pid: Option<u32>,
    /// What the daemon last said of itself.
    says: Option<String>,
}

/// What lies in the place of the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Ours,
    Foreign,
}

impl ServiceVerbs {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self {
            Self::Install(install) => install.execute(context),
            Self::Remove(remove) => remove.execute(context),
            Self::Status(shown) => shown.execute(context),
        }
    }
}

impl Install {
    fn execute(self, context: &Context) -> Result<u8, Failure> {
        let file = self.manager.file(context)?;
        let (text, remarks) = self.unit(context)?;
        let systemctl = self.manager.systemctl(context);
        let enable = ["enable", "--now", UNIT];
        if self.dry_run {
            context.console.print(text.trim_end())?;
            context.console.remark(&format!("would write `{}`", file.display()));
            let asked = systemctl.as_ref().map_or_else(Vec::new, |systemctl| {
                let reload = Some(systemctl.line(&["daemon-reload"]));
                reload.into_iter().chain(self.now.then(|| systemctl.line(&enable))).collect()
            });
            asked.iter().for_each(|line| context.console.remark(&format!("would run `{line}`")));
            if systemctl.is_none() {
                context.console.remark(&no_systemd().to_string());
            }
            remarks.iter().for_each(|remark| context.console.remark(remark));
            return Ok(0);
        }
        let systemctl = systemctl.ok_or_else(no_systemd)?;
        if found(&file)? == Found::Foreign && !self.force {
            return Err(foreign(&file, "the place of it is taken with `--force`, or move it away"));
        }
        write(&file, &text).map_err(|error| {
            Failure::unmade(&error, format!("`{}` cannot be written: {error}", file.display()))
        })?;
        context.console.print(&format!("the unit is `{}`", file.display()))?;
        systemctl.run(&["daemon-reload"])?;
        match self.now {
            true => {
                systemctl.run(&enable)?;
                context.console.print("the service is started, and starts by itself from now on")?;
            }
            false => {
                context.console.remark(&format!("`{}` starts it", systemctl.line(&enable)));
            }
        }
        remarks.iter().for_each(|remark| context.console.remark(remark));
        Ok(0)
    }

    /// The text of the unit, and what its operator should know.
    fn unit(&self, context: &Context) -> Result<(String, Vec<String>), Failure> {
        let mut remarks = Vec::new();
        let named = context.home_named;
        let home = match self.manager.system && !named {
            true => Path::new(SYSTEM_HOME),
            false => context.home().path(),
        };
        if !context.exe.is_file() {
            let message = format!("`{}` is not there any more", context.exe.display());
            return Err(
                Failure::new(status::FAILED, message).help("run the program that is to be the service")
            );
        }
        let whose = match (self.manager.system, &self.user_name) {
            (false, _) => Whose::User,
            (true, Some(user)) => Whose::System(self.user(user, &mut remarks)?),
            (true, None) => {
                let message = "a service of the machine needs a user of its own, who owns the home";
                return Err(Failure::new(2, message).help("`--user-name drupe`, say"));
            }
        };
        let credentials = self.credentials.iter().map(|given| credential(given, context));
        let credentials = credentials.collect::<Result<Vec<_>, _>>()?;
        let written = elsewhere(context, home, &mut remarks);
        let unit = UnitFile {
            program: &context.exe,
            home,
            config: context.config.as_deref(),
            whose,
            credentials: &credentials,
            written: &written,
        };
        if self.manager.system && unit.state_folder().is_none() && !home.is_dir() {
            let (user, shown) = (self.user_name.as_deref().unwrap_or_default(), home.display());
            let message = format!("`{shown}` is not there, and a service of the machine cannot make it");
            return Err(Failure::new(status::CANNOT_CREATE, message).help(format!(
                "make it with `install -d -m 0700 -o {user} {shown}`, or use `{SYSTEM_HOME}`"
            )));
        }
        if !self.manager.system {
            remarks.push(
                "it ends with your last session, unless `loginctl enable-linger` lets your services go on"
                    .into(),
            );
        }
        let text = unit.text().map_err(|error: Unwritable| {
            Failure::new(status::FAILED, error.to_string()).help("use another path")
        })?;
        Ok((text, remarks))
    }

    /// A name that systemd takes as one, and not as more lines.
    fn user(&self, user: &str, remarks: &mut Vec<String>) -> Result<String, Failure> {
        let sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if user.is_empty() || user.starts_with(['-', '.']) || !user.chars().all(sound) {
            let message = format!("`{user}` is not the name of a user: letters, digits, `-`, `_` and `.`");
            return Err(Failure::new(2, message));
        }
        let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
        if !known.lines().any(|line| line.split(':').next() == Some(user)) {
            remarks.push(format!(
                "`/etc/passwd` names no user `{user}`; `useradd --system --home-dir {SYSTEM_HOME} --shell /usr/sbin/nologin {user}` \
                 makes one"
            ));
        }
        Ok(user.to_owned())
    }
}

impl Remove {
    fn execute(self, context: &Context) -> Result<u8, Failure> {
        let file = self.manager.file(context)?;
        match found(&file)? {
            Found::Nothing => {
                let message = format!("there is no unit `{}`", file.display());
                return Err(Failure::new(status::FAILED, message).help(
                    "`drupe service status` says what there is; units of the machine go by `--system`",
                ));
            }
            Found::Foreign if !self.force => {
                return Err(foreign(&file, "it is removed with `--force`, or by whoever wrote it"));
            }
            Found::Ours | Found::Foreign => {}
        }
        let systemctl = self.manager.systemctl(context);
        let (disable, reload) = (["disable", "--now", UNIT], ["daemon-reload"]);
        if self.dry_run {
            let line = |arguments: &[&str]| systemctl.as_ref().map(|systemctl| systemctl.line(arguments));
            let would = |line: Option<String>| line.map(|line| format!("would run `{line}`"));
            let removal = Some(format!("would remove `{}`", file.display()));
            let steps = [would(line(&disable)), removal, would(line(&reload))];
            steps.iter().flatten().for_each(|step| context.console.remark(step));
            return Ok(0);
        }
        if let Some(systemctl) = &systemctl {
            match systemctl.run(&disable) {
                Err(failure) if self.force => context.console.remark(&failure.to_string()),
                Err(failure) => {
                    return Err(
                        failure.help("the unit stays where it is; `--force` takes it away all the same")
                    );
                }
                Ok(()) => {}
            }
        }
        fs::remove_file(&file).map_err(|error| {
            Failure::new(status::IO, format!("`{}` cannot be removed: {error}", file.display()))
        })?;
        context.console.print(&format!("`{}` is removed; the home stays", file.display()))?;
        match systemctl.as_ref().map(|systemctl| systemctl.run(&reload)) {
            Some(Err(failure)) if self.force => context.console.remark(&failure.to_string()),
            Some(done) => done?,
            None => {}
        }
        Ok(0)
    }
}

impl UnitStanding {
    fn execute(self, context: &Context) -> Result<u8, Failure> {
        let file = self.manager.file(context)?;
        let there = found(&file)?;
        let says = self.manager.systemctl(context).and_then(|systemctl| systemctl.show());
        let known = says.is_some();
        let of = |name: &str| says.as_ref()?.get(name).filter(|value| !value.is_empty()).cloned();
        let pid = of("MainPID").and_then(|pid| pid.parse().ok()).filter(|pid| *pid > 0);
        let report = Report {
            unit: file,
            installed: there != Found::Nothing,
            ours: there == Found::Ours,
            state: of("ActiveState"),
            enabled: of("UnitFileState"),
            pid,
            says: of("StatusText"),
        };
        let absent = !report.installed;
        if self.json {
            context.console.json(&report)?;
            return Ok(u8::from(absent));
        }
        let shown = report.unit.display();
        let whose = match there {
            Found::Nothing => return Err(missing(&report, known)),
            Found::Ours => "written by `drupe service install`",
            Found::Foreign => "not written by `drupe service install`",
        };
        let mut text = format!("{shown}: {whose}");
        let state = report.state.as_deref().unwrap_or("unknown: systemd does not answer");
        let enabled = report.enabled.as_deref().map_or(String::new(), |enabled| format!(", {enabled}"));
        let pid = report.pid.map_or(String::new(), |pid| format!(" (process {pid})"));
        text.push_str(&format!("\nstate: {state}{pid}{enabled}"));
        if let Some(says) = &report.says {
            text.push_str(&format!("\nit says: {}", super::console::plain(says)));
        }
        context.console.print(&text)?;
        Ok(0)
    }
}

impl Manager {
    fn systemctl(self, context: &Context) -> Option<Systemctl> {
        Systemctl::find(context.environment.text.get("PATH").map(String::as_str), !self.system)
    }

    /// Where the unit belongs (`systemd.unit(5)`, "Unit File Load Path", read on 2026-11-27).
    fn file(self, context: &Context) -> Result<PathBuf, Failure> {
        if self.system {
            return Ok(Path::new("/etc/systemd/system").join(UNIT));
        }
        let environment = &context.environment;
        let folder = environment.path("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute());
        let folder = folder.or_else(|| Some(environment.path("HOME")?.join(".config")));
        folder.map(|folder| folder.join("systemd/user").join(UNIT)).ok_or_else(|| {
            Failure::new(status::CONFIG, "there is no place for the unit: HOME is not set")
                .help("set HOME, or use `--system`")
        })
    }
}

/// `NAME=FILE`, with a file that is there now.
fn credential(given: &str, context: &Context) -> Result<(String, String), Failure> {
    let wrong = |why: &str| {
        Failure::new(2, format!("`--credential {given}` {why}"))
            .help("such as `--credential OPENAI_API_KEY=/etc/drupe/openai`")
    };
    let (name, file) = given.split_once('=').ok_or_else(|| wrong("has no `=`"))?;
    // Only names of variables are read by the daemon.
    drupe_config::EnvFile::fits(name, "x")
        .map_err(|_| wrong("does not begin with the name of a variable"))?;
    let file = context.here.join(file);
    if !file.is_file() {
        return Err(wrong("names no file that is there"));
    }
    let file = file.to_str().ok_or_else(|| wrong("names a file whose path is not text"))?;
    Ok((name.to_owned(), file.to_owned()))
}

/// Where the daemon writes outside of its home: to what links in it lead to, and to folders that the configuration names.
fn elsewhere(context: &Context, home: &Path, remarks: &mut Vec<String>) -> Vec<PathBuf> {
    let file = context.config.clone().or_else(|| default_file(home));
    // Of one that is at fault the daemon itself says so.
    let sources = Sources { file, home: home.to_owned(), ..config::sources(context) };
    let journal = load_config(&sources).ok().map(|loaded| loaded.value.journal);
    let named = journal.map(|journal| [journal.backup.directory, journal.retention.archive.folder(home)]);
    let parts = ["workspace", "data", "extensions"].map(|part| Some(home.join(part)));
    let inside = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let mut written = Vec::new();
    for path in parts.into_iter().chain(named.into_iter().flatten()).flatten() {
        match path.canonicalize() {
            Ok(real) if !real.starts_with(&inside) && !written.contains(&real) => written.push(real),
            Err(_) if !path.starts_with(home) => remarks.push(format!(
                "`{}` is not there, and the service cannot make it: make it for the service's user, then install again",
                path.display()
            )),
            _ => {}
        }
    }
    written
}

fn found(file: &Path) -> Result<Found, Failure> {
    let unreadable =
        |error: io::Error| Failure::new(status::IO, format!("`{}` cannot be read: {error}", file.display()));
    match fs::symlink_metadata(file) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Found::Nothing)
        }
        Err(error) => Err(unreadable(error)),
        // A link is how a unit is masked, or somebody's own arrangement.
        Ok(seen) if !seen.is_file() || seen.len() > LARGEST => Ok(Found::Foreign),
        Ok(_) => {
            let bytes = fs::read(file).map_err(unreadable)?;
            let ours = bytes.split(|byte| *byte == b'\n').next() == Some(MARKER.as_bytes());
            Ok(if ours { Found::Ours } else { Found::Foreign })
        }
    }
}

fn foreign(file: &Path, help: &str) -> Failure {
    let message = format!("`{}` was not written by `drupe service install`", file.display());
    Failure::new(status::CANNOT_CREATE, message).help(help)
}

fn missing(report: &Report, known: bool) -> Failure {
    let systemd = if known { "" } else { ", and systemd does not answer" };
    Failure::new(status::FAILED, format!("there is no unit `{}`{systemd}", report.unit.display()))
        .help("`drupe service install` writes it, and with `--now` starts it")
}

fn no_systemd() -> Failure {
    Failure::new(status::SYSTEM, "systemd is not here: there is no `systemctl` in PATH").help(
        "have `drupe run` started by what starts services here, or in a container; `drupe service install --dry-run` prints \
         the unit for another machine",
    )
}

/// Writes beside it first: a unit is there as a whole or as it was.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let fresh = folder.join(format!(".{UNIT}.{}", std::process::id()));
    let written =
        File::options().write(true).create_new(true).mode(0o644).open(&fresh).and_then(|mut open| {
            open.write_all(text.as_bytes())?;
            // Whatever the umask: systemd reads it as another user, where it is the machine's.
            open.set_permissions(fs::Permissions::from_mode(0o644))?;
            open.sync_all()?;
            fs::rename(&fresh, file)
        });
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}
