//! The sidecar file of variables, `HOME/.env`, and what a service manager hands in beside it.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::FlockOperation;

use crate::{
    Diagnostics, Secret, forms,
    source::{self, Links},
};

/// The name of the file in a home.
const NAME: &str = ".env";

/// Held by whoever changes it: the file itself is another one after each change.
const LOCK: &str = ".env.lock";

/// The sidecar file of variables. It is refused when others can read it; one that does not exist is empty.
pub fn read_env_file(path: &Path, faults: &mut Diagnostics) -> BTreeMap<String, Secret> {
    if path.symlink_metadata().is_err() {
        return BTreeMap::new();
    }
    let Some(file) = source::open(path, Links::Followed, faults) else { return BTreeMap::new() };
    let mode = file.metadata().map_or(0o777, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        let message = format!("`{}` can be read by others (mode {:03o})", path.display(), mode & 0o777);
        faults
            .file_error("readable_secrets", path, 0, message)
            .help(format!("run: chmod 600 {}", path.display()));
        return BTreeMap::new();
    }
    let Some(text) = source::read_open(path, file, faults) else { return BTreeMap::new() };
    let mut values = BTreeMap::new();
    for (number, line) in (1u32..).zip(text.lines()) {
        match env_line(line) {
            Ok(None) => {}
            Ok(Some((name, value))) => {
                values.insert(name, Secret::new(value));
            }
            // The line itself may hold a secret, so it is not shown.
            Err(reason) => faults
                .file_error("env_file", path, number, reason)
                .help("write `NAME=value`, with quotes around a value that has spaces or `#`"),
        }
    }
    values
}

/// One line: blank, `# comment`, or `NAME=value`, optionally after `export`.
fn env_line(line: &str) -> Result<Option<(String, String)>, &'static str> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=').ok_or("this line is not `NAME=value`")?;
    let name = name.trim();
    if !forms::is_variable(name) {
        return Err("the name before `=` is not a variable's name");
    }
    let value = value.trim();
    let value = match value.chars().next() {
        Some('\'') => quoted(&value[1..], '\'')?,
        Some('"') => quoted(&value[1..], '"')?,
        _ => value.split(" #").next().unwrap_or_default().trim_end().to_owned(),
    };
    Ok(Some((name.to_owned(), value)))
}

/// The rest of a quoted value; backslashes mean something in double quotes only.
fn quoted(rest: &str, quote: char) -> Result<String, &'static str> {
    let mut value = String::new();
    let mut chars = rest.chars();
    while let Some(next) = chars.next() {
        match next {
            found if found == quote => {
                let tail = chars.as_str().trim_start();
                let ends = tail.is_empty() || tail.starts_with('#');
                return if ends { Ok(value) } else { Err("there is text after the closing quote") };
            }
            '\\' if quote == '"' => match chars.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some(other) => value.push(other),
                None => break,
            },
            other => value.push(other),
        }
    }
    Err("the closing quote is missing")
}

/// The sidecar file of a home, to look at and to change.
#[derive(Debug, Clone)]
pub struct EnvFile {
    home: PathBuf,
    names: Vec<String>,
    values: Vec<Secret>,
}

/// Why the sidecar file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum EnvFileFault {
    /// A daemon would refuse it; what stands here is shown to a person.
    #[error("{0}")]
    Refused(String),
    /// A name that is none, or a value that no line can hold.
    #[error("`{name}`: {why}")]
    Unfit {
        /// What it was to be called.
        name: String,
        /// What is wrong with it, as the end of a sentence.
        why: &'static str,
    },
    /// The file system did not do it.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file that was to be written.
        path: PathBuf,
        /// What the file system said of it.
        error: io::Error,
    },
}

impl EnvFile {
    /// The file of a home; one that does not exist is empty.
    ///
    /// # Errors
    /// One that a daemon would refuse.
    pub fn of(home: &Path) -> Result<Self, EnvFileFault> {
        let mut faults = Diagnostics::default();
        let (names, values) = read_env_file(&home.join(NAME), &mut faults).into_iter().unzip();
        match faults.has_errors() {
            true => Err(EnvFileFault::Refused(faults.render(false).trim_end().to_owned())),
            false => Ok(Self { home: home.to_owned(), names, values }),
        }
    }

    /// The file itself, whether it exists or not.
    pub fn path(&self) -> PathBuf {
        self.home.join(NAME)
    }

    /// The names in it, in their order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The values in it, in the order of their names: for whoever takes them out of a text.
    pub fn values(&self) -> &[Secret] {
        &self.values
    }

    /// Whether a value can be kept under that name.
    ///
    /// # Errors
    /// [`EnvFileFault::Unfit`].
    pub fn fits(name: &str, value: &str) -> Result<(), EnvFileFault> {
        with_variable("", name, Some(value))
            .map(drop)
            .map_err(|why| EnvFileFault::Unfit { name: name.into(), why })
    }

    /// Keeps another value for a variable, or takes it out. All of the file is written or nothing of it, by one process at a
    /// time, and others can never read it.
    ///
    /// # Errors
    /// A name or value that cannot be kept, and what the file system says.
    pub fn set(&self, name: &str, value: Option<&str>) -> Result<(), EnvFileFault> {
        // Where the file is a link, what it leads to is written.
        let path = fs::canonicalize(self.path()).unwrap_or_else(|_| self.path());
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let failed = |error| EnvFileFault::Io { path: path.clone(), error };
        let mut lock = OpenOptions::new();
        let lock = lock.write(true).create(true).truncate(false).mode(0o600);
        let lock = lock.open(self.home.join(LOCK)).map_err(failed)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(failed)?,
        };
        let text = with_variable(&text, name, value)
            .map_err(|why| EnvFileFault::Unfit { name: name.into(), why })?;
        let written = || {
            let _ = fs::remove_file(&part);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&part, &path)
        };
        written().map_err(failed)
    }
}

/// The text of the file with another value for a variable, or without it. All other lines stay as they are.
fn with_variable(text: &str, name: &str, value: Option<&str>) -> Result<String, &'static str> {
    if !forms::is_variable(name) {
        return Err("this is not the name of a variable: letters, digits and `_`, no digit first");
    }
    if value.is_some_and(|value| value.contains(['\0', '\r'])) {
        return Err("a value holds neither a zero byte nor a carriage return");
    }
    let names = |line: &&str| env_line(line).is_ok_and(|line| line.is_some_and(|(named, _)| named == name));
    let mut lines: Vec<String> = text.lines().filter(|line| !names(line)).map(str::to_owned).collect();
    lines.extend(value.map(|value| format!("{name}={}", written(value))));
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

/// A value as [`env_line`] reads it back.
fn written(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,=~".contains(c);
    if value.chars().all(plain) {
        return value.to_owned();
    }
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    format!("\"{escaped}\"")
}

/// The credentials that systemd hands a service, a file each, where `CREDENTIALS_DIRECTORY` says: those whose names are names of
/// variables (<https://systemd.io/CREDENTIALS/>, read on 2026-11-25). A line break at the end of one is no part of it.
pub(crate) fn read_credentials(folder: &Path, faults: &mut Diagnostics) -> BTreeMap<String, Secret> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            let message = format!("the credentials in `{}` cannot be read: {error}", folder.display());
            faults
                .file_error("credentials", folder, 0, message)
                .help("let the service manager set CREDENTIALS_DIRECTORY, or unset it");
            return BTreeMap::new();
        }
    };
    let mut values = BTreeMap::new();
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !forms::is_variable(&name) {
            continue;
        }
        if let Some(text) = source::read_text(&entry.path(), Links::Followed, faults) {
            values.insert(name, Secret::new(text.strip_suffix('\n').unwrap_or(&text)));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn lines_of_the_sidecar_file_are_read_as_documented() {
        let check = |line: &str, expected: Result<Option<(&str, &str)>, ()>| {
            let expected = expected.map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
            assert_eq!(env_line(line).map_err(|_| ()), expected, "{line}");
        };
        check("", Ok(None));
        check("  # note", Ok(None));
        check("A=b", Ok(Some(("A", "b"))));
        check("export A = b c ", Ok(Some(("A", "b c"))));
        check("A=b # note", Ok(Some(("A", "b"))));
        check("A=b#c", Ok(Some(("A", "b#c"))));
        check("A=", Ok(Some(("A", ""))));
        check("A='x # y' # note", Ok(Some(("A", "x # y"))));
        check(r#"A="x\n\"y\"""#, Ok(Some(("A", "x\n\"y\""))));
        check(r"A='x\n'", Ok(Some(("A", r"x\n"))));
        check("A='x", Err(()));
        check("A='x'y", Err(()));
        check("A", Err(()));
        check("1A=x", Err(()));
    }

    #[test]
    fn a_sidecar_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".env");
        std::fs::write(&path, "A=secret\nbroken\n").unwrap();
        for (mode, codes) in [(0o644, ["readable_secrets"]), (0o600, ["env_file"])] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let mut faults = Diagnostics::default();
            let values = read_env_file(&path, &mut faults);
            assert_eq!(faults.iter().map(|fault| fault.code).collect::<Vec<_>>(), codes);
            assert_eq!(values.contains_key("A"), mode == 0o600);
            assert!(!faults.render(false).contains("secret\n"));
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_all_else_stays() {
        let text = "# mine\nOTHER=x # note\nexport TOKEN=old\n";
        for value in ["ghp_16C7", "two words", "a\"b\\c#d", "line\nline\ttab", "'", "", "ä ${X} $${Y}", " x "]
        {
            let written = with_variable(text, "TOKEN", Some(value)).unwrap();
            assert!(written.starts_with("# mine\nOTHER=x # note\nTOKEN="), "{written}");
            let last = env_line(written.lines().last().unwrap()).unwrap();
            assert_eq!(last, Some(("TOKEN".to_owned(), value.to_owned())), "{written}");
            assert_eq!(with_variable(&written, "TOKEN", None).unwrap(), "# mine\nOTHER=x # note\n");
        }
        assert!(with_variable(text, "NO NAME", Some("x")).is_err());
        assert!(with_variable(text, "TOKEN", Some("a\0")).is_err());
    }

    #[test]
    fn the_file_of_a_home_is_changed_as_a_whole_and_stays_private() {
        let home = tempfile::tempdir().unwrap();
        let file = || EnvFile::of(home.path()).unwrap();
        file().set("TOKEN", Some("one")).unwrap();
        // Each sees what the other wrote.
        let early = file();
        file().set("OTHER", Some("two")).unwrap();
        early.set("TOKEN", Some("three")).unwrap();
        assert_eq!(file().names(), ["OTHER", "TOKEN"]);
        let path = file().path();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "OTHER=two\nTOKEN=three\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        file().set("OTHER", None).unwrap();
        assert_eq!(file().names(), ["TOKEN"]);
        assert!(matches!(EnvFile::fits("NO NAME", "x"), Err(EnvFileFault::Unfit { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(EnvFile::of(home.path()), Err(EnvFileFault::Refused(_))));
    }

    #[test]
    fn credentials_are_files_with_names_of_variables() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("TOKEN", "t0p\n"), ("tls.key", "no variable"), ("TWO", "a\n\n")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let mut faults = Diagnostics::default();
        let values = read_credentials(folder.path(), &mut faults);
        let values: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(values, [("TOKEN", "t0p"), ("TWO", "a\n")]);
        assert!(faults.is_empty());
        read_credentials(&folder.path().join("gone"), &mut faults);
        assert_eq!(faults.iter().map(|fault| fault.code).collect::<Vec<_>>(), ["credentials"]);
    }
}
