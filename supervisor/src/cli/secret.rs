//! `drupe secret`: values that extensions and providers are given by name. They are read from the terminal or from standard
//! input, never from an argument: other processes see those, and shells keep them.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use drupe_config::{EnvFile, EnvFileFault};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;

use super::{
    Context, Facts,
    failure::{Failure, status},
    restore::not_half_restored,
};

/// The longest value that is taken.
const LONGEST: u64 = 64 << 10;

#[derive(Debug, clap::Subcommand)]
pub enum SecretVerbs {
    /// List the names; values are never shown
    List(Facts),
    /// Keep one, or another value for it; the value is asked for, or read from standard input
    Set(OneSecret),
    /// Take one out of the file
    Remove(OneSecret),
}

#[derive(Debug, clap::Args)]
pub struct OneSecret {
    /// Its name, as a manifest lists it under `secrets` or as `${NAME}` says it
    name: String,
}

impl SecretVerbs {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let file = EnvFile::of(context.home().path())?;
        if !matches!(self, Self::List(_)) {
            not_half_restored(context.home().path())?;
        }
        match self {
            Self::List(facts) => list(&file, &facts, context),
            Self::Set(OneSecret { name }) => {
                // Before anybody types a value.
                EnvFile::fits(&name, "x")?;
                let value = value(&name)?;
                file.set(&name, Some(&value))?;
                say(&file, context, &format!("`{name}` is kept"))
            }
            Self::Remove(OneSecret { name }) => {
                if !file.names().contains(&name) {
                    let message = format!("there is no `{name}` in {}", file.path().display());
                    return Err(
                        Failure::new(status::FAILED, message).help("`drupe secret list` shows what there is")
                    );
                }
                file.set(&name, None)?;
                say(&file, context, &format!("`{name}` is removed"))
            }
        }
    }
}

fn list(file: &EnvFile, facts: &Facts, context: &Context) -> Result<u8, Failure> {
    if facts.json {
        context.console.json(&json!({"file": file.path(), "names": file.names()}))?;
    } else if file.names().is_empty() {
        context.console.print(&format!("no secrets in {}", file.path().display()))?;
    } else {
        context.console.print(&file.names().join("\n"))?;
    }
    Ok(0)
}

fn say(file: &EnvFile, context: &Context, done: &str) -> Result<u8, Failure> {
    let text =
        format!("{done} in {}; a daemon that runs takes it in by `drupe restart`", file.path().display());
    context.console.print(&text)?;
    Ok(0)
}

impl From<EnvFileFault> for Failure {
    fn from(fault: EnvFileFault) -> Self {
        let code = if matches!(fault, EnvFileFault::Refused(_)) { status::CONFIG } else { status::FAILED };
        Self::new(code, fault.to_string())
    }
}

/// What somebody types, unseen, or what standard input holds, without the line break behind it.
pub fn value(name: &str) -> Result<String, Failure> {
    let unread =
        |error: io::Error| Failure::new(status::FAILED, format!("the value cannot be read: {error}"));
    let stdin = io::stdin();
    let mut value = String::new();
    if stdin.is_terminal() {
        let _ = write!(io::stderr(), "Value of {name}: ");
        let hidden = Unseen::begin().map_err(unread)?;
        stdin.read_line(&mut value).map_err(unread)?;
        drop(hidden);
        let _ = writeln!(io::stderr());
    } else {
        stdin.take(LONGEST + 1).read_to_string(&mut value).map_err(unread)?;
    }
    let value = value.strip_suffix('\n').map_or(value.as_str(), |value| value.trim_end_matches('\r'));
    if value.is_empty() || value.len() as u64 > LONGEST {
        return Err(Failure::new(status::FAILED, format!("`{name}` needs a value of 1 to {LONGEST} bytes"))
            .help("give it on standard input, such as `printf %s \"$KEY\" | drupe …`"));
    }
    Ok(value.to_owned())
}

/// A terminal that does not show what is typed, until this is dropped.
struct Unseen(Termios);

impl Unseen {
    fn begin() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut now = before.clone();
        now.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &now)?;
        Ok(Self(before))
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
