//! The one program of systemd that is asked, and what it says of a unit.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use super::super::failure::{Failure, status};

/// The one unit that there is for a manager.
pub const UNIT: &str = "drupe.service";

/// `systemctl`, of a user's services or of the machine's.
#[derive(Debug)]
pub struct Systemctl {
    program: PathBuf,
    user: bool,
}

impl Systemctl {
    /// The first of that name in `PATH`.
    pub fn find(path: Option<&str>, user: bool) -> Option<Self> {
        let folders = std::env::split_paths(path?).filter(|folder| folder.is_absolute());
        let program = folders.map(|folder| folder.join("systemctl")).find(|file| file.is_file())?;
        Some(Self { program, user })
    }

    /// How a person would type it.
    pub fn line(&self, arguments: &[&str]) -> String {
        let user = if self.user { " --user" } else { "" };
        format!("systemctl{user} {}", arguments.join(" "))
    }

    /// Runs it. What it says against that is the failure.
    pub fn run(&self, arguments: &[&str]) -> Result<(), Failure> {
        let output = self.output(arguments)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let line = self.line(arguments);
        let said = if said.trim().is_empty() { output.status.to_string() } else { said.trim().to_owned() };
        let message = format!("`{line}` failed: {said}");
        Err(Failure::new(status::SYSTEM, message)
            .help("where systemd does not run, as in most containers, start `drupe run` by what does"))
    }

    /// Properties of the unit; none where systemd does not answer.
    pub fn show(&self) -> Option<BTreeMap<String, String>> {
        let asked = ["show", "--property=ActiveState,SubState,UnitFileState,MainPID,StatusText", UNIT];
        let output = self.output(&asked).ok().filter(|output| output.status.success())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Some(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn output(&self, arguments: &[&str]) -> Result<Output, Failure> {
        #[expect(clippy::disallowed_methods, reason = "it is asked as the operator would ask it")]
        let mut command = Command::new(&self.program);
        let user = self.user.then_some("--user");
        command.args(user).arg("--no-ask-password").args(arguments).stdin(Stdio::null());
        command.output().map_err(|error| {
            let message = format!("`{}` cannot be run: {error}", shown(&self.program));
            Failure::new(status::SYSTEM, message)
        })
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
