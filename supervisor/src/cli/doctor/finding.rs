//! One thing that was found, and how all of them are shown.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::cli::console::{Style, plain};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gravity {
    /// It was looked at, and is as it should be.
    Fine,
    /// It is worth knowing, and nothing has to be done.
    Remark,
    /// It works, and may not for long; or it waits for the operator.
    Warning,
    /// Something does not work as it is.
    Fault,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, such as `journal`.
    pub subject: &'static str,
    pub level: Gravity,
    pub message: String,
    /// What the operator does about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// What `--fix` did, or why it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mended: Option<String>,
    /// Whether nothing else can be looked at.
    #[serde(skip)]
    pub ends: bool,
    #[serde(skip)]
    pub repair: Option<Repair>,
}

/// What can be made right without harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// A file or folder that others may reach is its owner's alone from then on.
    Close(PathBuf),
    /// What an attempt left behind that was cut off.
    Remove(PathBuf),
}

impl Finding {
    fn new(level: Gravity, subject: &'static str, message: String) -> Self {
        Self { subject, level, message, fix: None, mended: None, ends: false, repair: None }
    }

    pub fn fine(subject: &'static str, message: impl Into<String>) -> Self {
        Self::new(Gravity::Fine, subject, message.into())
    }

    pub fn remark(subject: &'static str, message: impl Into<String>) -> Self {
        Self::new(Gravity::Remark, subject, message.into())
    }

    pub fn warning(subject: &'static str, message: impl Into<String>) -> Self {
        Self::new(Gravity::Warning, subject, message.into())
    }

    pub fn fault(subject: &'static str, message: impl Into<String>) -> Self {
        Self::new(Gravity::Fault, subject, message.into())
    }

    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Nothing else can be looked at.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.ends = true;
        self
    }

    /// The fix is safe, and `--fix` does it.
    #[must_use]
    pub fn repair(mut self, repair: Repair) -> Self {
        self.repair = Some(repair);
        self
    }

    /// Makes it right where that is safe.
    pub fn mend(&mut self) {
        let Some(repair) = self.repair.take() else { return };
        match repair.done() {
            Ok(done) => {
                self.level = Gravity::Fine;
                self.mended = Some(done);
            }
            Err(error) => self.mended = Some(format!("it could not be made right: {error}")),
        }
    }
}

impl Repair {
    fn done(&self) -> io::Result<String> {
        match self {
            Self::Close(path) => close(path)
                .map(|mode| format!("`{}` has mode {mode:o} now: it is its owner's alone", path.display())),
            Self::Remove(path) => fs::remove_file(path).map(|()| format!("`{}` is removed", path.display())),
        }
    }
}

/// Takes from group and others what they may do; a link is not followed.
fn close(path: &Path) -> io::Result<u32> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Err(io::Error::other("it is a link; look where it leads"));
    }
    let mode = found.permissions().mode() & 0o700;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(mode)
}

/// The worst first; what is fine stands in one line for each subject.
pub fn render(findings: &[Finding], colour: bool) -> String {
    let mut text = String::new();
    for level in [Gravity::Fault, Gravity::Warning, Gravity::Remark] {
        for finding in findings.iter().filter(|finding| finding.level == level) {
            let (word, style) = word(level);
            let message = plain(finding.message.trim_end()).replace('\n', "\n    ");
            text.push_str(&format!("{} {}: {message}\n", style.paint(word, colour), finding.subject));
            if let Some(mended) = &finding.mended {
                text.push_str(&format!("    {}\n", plain(mended)));
            }
            if let Some(fix) = &finding.fix {
                text.push_str(&format!("    fix: {}\n", plain(fix)));
            }
        }
    }
    for finding in findings.iter().filter(|finding| finding.level == Gravity::Fine) {
        let (word, style) = word(Gravity::Fine);
        let said = finding.mended.as_ref().unwrap_or(&finding.message);
        text.push_str(&format!("{} {}: {}\n", style.paint(word, colour), finding.subject, plain(said)));
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (faults, warnings) = (count(Gravity::Fault), count(Gravity::Warning));
    let plural = |count, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    match (faults, warnings) {
        (0, 0) => text.push_str("nothing is wrong\n"),
        _ => text.push_str(&format!("{}, {}\n", plural(faults, "fault"), plural(warnings, "warning"))),
    }
    text
}

fn word(level: Gravity) -> (&'static str, Style) {
    match level {
        Gravity::Fine => ("fine   ", Style::Good),
        Gravity::Remark => ("remark ", Style::Plain),
        Gravity::Warning => ("warning", Style::Warning),
        Gravity::Fault => ("fault  ", Style::Bad),
    }
}
